# SPDX-License-Identifier: Apache-2.0
"""Macros that few rules use: loops with two variables, `sortBy`, `optMap`, and optional entries.

Owns `all(i, v, …)` and the like, the `transform…` macros, `sortBy`, `optMap` and `optFlatMap`, and lists and maps with
optional entries. The loops with one variable, which must be fast, are in `compile`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from devcluster.apiserver.cel.budget import charge_round
from devcluster.apiserver.cel.checker import binders
from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.cel.trees import Call, ListOf, MapOf, Name, Tree
from devcluster.apiserver.cel.values import MadeMap, Program, Variables
from devcluster.apiserver.codec.documents import JsonValue

Compiler: TypeAlias = Callable[[Tree, frozenset[str], set[str]], Program]
SHADOWED: Final = "#shadowed"
_OF_ONE: Final = frozenset({"optMap", "optFlatMap", "sortBy"})


def is_loop(tree: Call) -> bool:
    """Whether `loop` compiles it."""
    if tree.target is None:
        return False
    return binders(tree) == 2 or (tree.function in _OF_ONE and len(tree.arguments) == 2)


def loop(tree: Call, known: frozenset[str], used: set[str], compile: Compiler) -> Program:
    """The program of a macro. Raises `CelError`."""
    assert tree.target is not None
    count = 1 if tree.function in _OF_ONE else 2
    names = [_variable(argument) for argument in tree.arguments[:count]]
    within = known | {*names, *([SHADOWED] if known & {*names} else [])}
    source = compile(tree.target, known, used)
    inner: set[str] = set()
    bodies = [compile(argument, within, inner) for argument in tree.arguments[count:]]
    used |= inner - {*names}
    if count == 1:
        return _with_one(tree.function, source, names[0], bodies[0])
    return _with_two(tree.function, source, (names[0], names[1]), bodies)


def decided(rounds: Iterable[Variables], body: Program, *, wanted: bool) -> bool:
    """Whether the body has the wanted value in any round. Raises the last error if none has."""
    failed: CelError | None = None
    for scope in rounds:
        try:
            if bool(body(scope)) is wanted:
                return True
        except CelError as error:
            failed = error
    if failed is not None:
        raise failed
    return False


def has_gaps(tree: ListOf | MapOf) -> bool:
    """Whether a list or map has optional entries."""
    return any(map(_is_gap, _marks(tree)))


def with_gaps(tree: ListOf | MapOf, compile: Callable[[Tree], Program]) -> Program:
    """The program of a list or a map with such entries."""
    if isinstance(tree, ListOf):
        items = [(_is_gap(item), compile(_inside(item))) for item in tree.items]

        def make_list(variables: Variables) -> JsonValue:
            found = []
            for gap, program in items:
                value = program(variables)
                if not gap:
                    found.append(value)
                elif value.present:
                    found.append(value.value)
            return found

        return make_list
    entries = [(_is_gap(key), compile(_inside(key)), compile(value)) for key, value in tree.items]

    def make_map(variables: Variables) -> JsonValue:
        found = MadeMap()
        for gap, key, program in entries:
            value = program(variables)
            if not gap:
                found[key(variables)] = value
            elif value.present:
                found[key(variables)] = value.value
        return found

    return make_map


def _marks(tree: ListOf | MapOf) -> Iterator[Tree]:
    if isinstance(tree, ListOf):
        yield from tree.items
    else:
        yield from (key for key, _ in tree.items)


def _is_gap(tree: Tree) -> bool:
    return isinstance(tree, Call) and tree.function == "?" and tree.target is None


def _inside(tree: Tree) -> Tree:
    return tree.arguments[0] if isinstance(tree, Call) and _is_gap(tree) else tree


def _variable(tree: Tree) -> str:
    if not isinstance(tree, Name):
        raise CelError("argument must be a simple name", at=tree.at)
    return tree.name


def _with_one(name: str, source: Program, variable: str, body: Program) -> Program:
    def in_order(variables: Variables) -> JsonValue:
        return sorted(source(variables), key=lambda item: body({**variables, variable: item}))

    def mapped(variables: Variables) -> JsonValue:
        value = source(variables)
        if not value.present:
            return value
        found = body({**variables, variable: value.value})
        return type(value)(True, found) if name == "optMap" else found

    return in_order if name == "sortBy" else mapped


def _with_two(name: str, source: Program, names: tuple[str, str], bodies: list[Program]) -> Program:
    last = bodies[-1]

    def scopes(variables: Variables) -> Iterator[Variables]:
        """The variables of each round that the filter, if any, accepts."""
        value = source(variables)
        for first, second in value.items() if isinstance(value, dict) else enumerate(value):
            charge_round(variables)
            scope = {**variables, names[0]: first, names[1]: second}
            if len(bodies) == 1 or bodies[0](scope):
                yield scope

    def entries(variables: Variables) -> JsonValue:
        found = MadeMap()
        for scope in scopes(variables):
            for key, value in last(scope).items():
                if key in found:
                    raise CelError(f"insert failed: key {key} already exists")
                found[key] = value
        return found

    match name:
        case "all":
            return lambda variables: not decided(scopes(variables), last, wanted=False)
        case "exists":
            return lambda variables: decided(scopes(variables), last, wanted=True)
        case "exists_one":
            return lambda variables: sum(1 for scope in scopes(variables) if last(scope)) == 1
        case "transformMap":
            return lambda variables: MadeMap({scope[names[0]]: last(scope) for scope in scopes(variables)})
        case "transformMapEntry":
            return entries
    return lambda variables: [last(scope) for scope in scopes(variables)]
