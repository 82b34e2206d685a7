# SPDX-License-Identifier: Apache-2.0
"""Compiles trees to closures.

Owns evaluation: each node becomes a function of the variables, so that a rule costs a few Python calls and no walk of
a tree. `&&` and `||` ignore an error on one side if the other side decides, as the language requires.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from operator import itemgetter
from sys import intern
from typing import Final

from devcluster.apiserver.cel import loops, messages, syntax
from devcluster.apiserver.cel.budget import LIMITED, charge_round, charged
from devcluster.apiserver.cel.library.functions import FUNCTIONS, METHODS, TYPES
from devcluster.apiserver.cel.library.libraries import LIBRARIES
from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.cel.trees import Call, Field, Index, ListOf, Literal, MapOf, MessageOf, Name, Tree
from devcluster.apiserver.cel.values import CelMessage, MadeMap, Optional, Program, Variables
from devcluster.apiserver.codec.documents import JsonValue
from multikueue.core.quantity import Quantity

_BIGGEST: Final = 2**63 - 1
_NUMBER: Final = (int, float)
_WHOLE: Final = frozenset({"self", "oldSelf"})
"""The cache that all rules of one object share."""
_FAILURES: Final = (TypeError, AttributeError, KeyError, IndexError, ValueError, ZeroDivisionError)
"""The exceptions of functions for arguments of a wrong type."""
_NOT_BOOLEAN: Final = "no such overload: expected bool"
_SHADOWED: Final = loops.SHADOWED
"""Marks, in the known names, that a macro's variable shadows another name."""
_MACROS: Final = frozenset({"all", "exists", "exists_one", "existsOne", "map", "filter"})


class Expression:
    """A compiled expression."""

    __slots__ = ("_program", "names", "text")

    def __init__(self, text: str, *, variables: frozenset[str]) -> None:
        """Compile. Raises `CelError` for bad syntax, unknown functions and undeclared names."""
        self.text = text
        tree = syntax.parse(text)
        used: set[str] = set()
        self._program = _compile(tree, variables, used)
        self.names = frozenset(used)
        """The variables that it uses."""

    def holds(self, variables: Variables) -> bool:
        """Whether it is true; `evaluate` raises the error if it fails."""
        try:
            return self._program(variables) is True
        except (CelError, *_FAILURES):
            return False

    def evaluate(self, variables: Variables) -> JsonValue:
        """Its value. Values that rules share are cached in the variables, under names that no variable can have.

        Raises `CelError`.
        """
        try:
            return self._program(variables)
        except CelError:
            raise
        except _FAILURES as error:
            raise CelError(f"no such overload: {error}") from error


def _compile(tree: Tree, known: frozenset[str], used: set[str]) -> Program:
    match tree:
        case Literal(value):
            return lambda _: value
        case Name(name):
            if name not in known:
                if name in TYPES:
                    return lambda _: name
                raise CelError(f"undeclared reference to '{name}' (in container '')")
            used.add(name)
            return itemgetter(name)
        case Field(Field(Name("google"), "protobuf"), "Timestamp" | "Duration" as name):
            return lambda _: f"google.protobuf.{name}"
        case Field(operand, name, optional):
            if isinstance(operand, Name) and operand.name == "optional" and name == "none":
                return lambda _: Optional(False)
            program = _field(_compile(operand, known, used), _unescape(name), optional=optional)
            path = _path(tree)
            return program if path is None else _followed(*path, program)
        case Index(operand, index, optional):
            return _index(_compile(operand, known, used), _compile(index, known, used), optional=optional)
        case ListOf() | MapOf() if loops.has_gaps(tree):
            return loops.with_gaps(tree, lambda part: _compile(part, known, used))
        case ListOf(items):
            programs = [_compile(item, known, used) for item in items]
            return lambda variables: [program(variables) for program in programs]
        case MapOf(entries):
            pairs = [(_compile(key, known, used), _compile(value, known, used)) for key, value in entries]
            return lambda variables: MadeMap({key(variables): value(variables) for key, value in pairs})
        case MessageOf(name, entries):
            return messages.making(name, [(entry, _compile(entry.value, known, used)) for entry in entries])
        case Call():
            called = _call(tree, known, used)
            return charged(called, tree.function) if LIMITED in known else called
    raise CelError(f"cannot compile {tree!r}")


def _unescape(name: str) -> str:
    if name.startswith("__") and name.endswith("__") and len(name) > 4:
        return name[2:-2]
    return (
        name.replace("__dot__", ".").replace("__dash__", "-").replace("__slash__", "/").replace("__underscores__", "__")
    )


def _path(tree: Tree) -> tuple[str, list[str]] | None:
    """The variable and field names of a path such as `self.a.b`; None for any other expression."""
    names: list[str] = []
    while isinstance(tree, Field) and not tree.optional:
        names.insert(0, _unescape(tree.name))
        tree = tree.operand
    return (tree.name, names) if isinstance(tree, Name) else None


def _followed(variable: str, names: list[str], otherwise: Program) -> Program:
    """Resolve a path of fields in one call, since rules are full of them. `otherwise` raises the error."""

    def get(variables: Variables) -> JsonValue:
        value = variables[variable]
        try:
            for name in names:
                value = value[name]
        except (KeyError, TypeError):
            return otherwise(variables)
        return value

    return get


def _field(operand: Program, name: str, *, optional: bool) -> Program:
    def get(variables: Variables) -> JsonValue:
        value = operand(variables)
        if type(value) is dict and not optional:
            try:
                return value[name]
            except KeyError:
                raise CelError(f"no such key: {name}") from None
        wrapped = isinstance(value, Optional)
        if wrapped:
            if not value.present:
                return value
            value = value.value
        if isinstance(value, CelMessage):
            value = value.fields
        if not isinstance(value, dict):
            raise CelError(f"no such overload: select {name}")
        if optional or wrapped:
            return Optional(True, value[name]) if name in value else Optional(False)
        try:
            return value[name]
        except KeyError:
            raise CelError(f"no such key: {name}") from None

    return get


def _index(operand: Program, index: Program, *, optional: bool) -> Program:
    def get(variables: Variables) -> JsonValue:
        value, at = operand(variables), index(variables)
        if isinstance(value, Optional):
            if not value.present:
                return value
            value = value.value
        if isinstance(value, list):
            if not isinstance(at, int) or not 0 <= at < len(value):
                if optional:
                    return Optional(False)
                raise CelError(f"index out of bounds: {at}")
        elif isinstance(value, dict):
            if at not in value:
                if optional:
                    return Optional(False)
                raise CelError(f"no such key: {at}")
        else:
            raise CelError("no such overload: index")
        return Optional(True, value[at]) if optional else value[at]

    return get


def _call(tree: Call, known: frozenset[str], used: set[str]) -> Program:
    name, target, arguments = tree.function, tree.target, tree.arguments
    if target is None:
        if name == "has":
            return _has(arguments, known, used)
        if name == "==" and isinstance(arguments[1], Literal) and isinstance(arguments[1].value, str):
            # The most common comparison; only a string equals a string.
            text, other = arguments[1].value, _compile(arguments[0], known, used)
            return lambda variables: bool(other(variables) == text)
        if name == "&&" and _has_macro(tree) and _SHADOWED not in known:
            # A prefix that several rules share, such as that the old object had a condition.
            free: set[str] = set()
            program = _joined(name, [_compile(part, known, free) for part in _parts(tree)])
            used |= free
            return _remembered(program, repr(tree)) if free <= _WHOLE else program
        if name in ("&&", "||"):
            return _joined(name, [_compile(part, known, used) for part in _parts(tree)])
        if name in _OPERATORS or name == "?:":
            return _operator(name, [_compile(argument, known, used) for argument in arguments])
        function = FUNCTIONS.get(name)
        if function is None:
            raise CelError(f"undeclared reference to '{name}' (in container '')")
        programs = [_compile(argument, known, used) for argument in arguments]
        if len(programs) == 1:
            (one,) = programs
            return lambda variables: function(one(variables))
        return lambda variables: function(*(program(variables) for program in programs))
    if loops.is_loop(tree):
        return loops.loop(tree, known, used, _compile)
    if name in _MACROS and arguments and isinstance(arguments[0], Name):
        return _macro(name, target, arguments, known, used)
    if isinstance(target, Name) and target.name not in known and (target.name, name) in LIBRARIES:
        called = LIBRARIES[target.name, name]
        given = [_compile(argument, known, used) for argument in arguments]
        return lambda variables: called(*(program(variables) for program in given))
    method = METHODS.get(name)
    if method is None:
        raise CelError(f"undeclared reference to '{name}' (in container '')")
    operand = _compile(target, known, used)
    programs = [_compile(argument, known, used) for argument in arguments]
    return lambda variables: method(operand(variables), *(program(variables) for program in programs))


def _has_macro(tree: Tree) -> bool:
    """Whether a part of an expression contains a macro."""
    if not isinstance(tree, Call):
        return False
    return tree.function in _MACROS or (tree.target is None and any(_has_macro(part) for part in tree.arguments))


def _has(arguments: tuple[Tree, ...], known: frozenset[str], used: set[str]) -> Program:
    if len(arguments) != 1 or not isinstance(arguments[0], Field):
        raise CelError("invalid argument to has() macro")
    operand, name = _compile(arguments[0].operand, known, used), _unescape(arguments[0].name)

    def has(variables: Variables) -> bool:
        value = operand(variables)
        if type(value) is dict:
            return value.get(name) is not None
        if isinstance(value, Optional):
            value = value.value
        if isinstance(value, CelMessage):
            return name in value.fields
        if not isinstance(value, dict):
            raise CelError(f"no such overload: has {name}")
        return value.get(name) is not None

    return has


def _macro(name: str, target: Tree, arguments: tuple[Tree, ...], known: frozenset[str], used: set[str]) -> Program:
    first = arguments[0]
    if not isinstance(first, Name):
        raise CelError(f"argument of {name}() must be a simple name")
    variable = first.name
    free: set[str] = set()
    source = _compile(target, known, free)
    inner: set[str] = set()
    within = known | {variable, _SHADOWED} if variable in known else known | {variable}
    bodies = [_compile(argument, within, inner) for argument in arguments[1:]]
    if not bodies:
        raise CelError(f"{name}() needs two arguments")
    free |= inner - {variable}
    used |= free
    last = bodies[-1]

    def items(variables: Variables) -> list[JsonValue]:
        value = source(variables)
        if isinstance(value, dict):
            return list(value)
        if isinstance(value, list):
            return value
        raise CelError(f"no such overload: {name}")

    def scopes(variables: Variables) -> Iterator[Variables]:
        scope = dict(variables)
        for item in items(variables):
            charge_round(variables)
            scope[variable] = item
            yield scope

    def over_all(variables: Variables) -> bool:
        return not loops.decided(scopes(variables), last, wanted=False)

    def over_any(variables: Variables) -> bool:
        return loops.decided(scopes(variables), last, wanted=True)

    def chosen(variables: Variables) -> list[JsonValue]:
        return [scope[variable] for scope in scopes(variables) if last(scope)]

    def over_one(variables: Variables) -> bool:
        return len(chosen(variables)) == 1

    def mapped(variables: Variables) -> list[JsonValue]:
        return [last(scope) for scope in scopes(variables) if len(bodies) == 1 or bodies[0](scope)]

    programs: dict[str, Program] = {"all": over_all, "exists": over_any, "filter": chosen, "map": mapped}
    program = programs.get(name, over_one)
    if _SHADOWED in known or not free <= _WHOLE:
        return program
    return _remembered(program, f"{name} {target!r} {arguments!r}")


def _remembered(program: Program, key: str) -> Program:
    """The program, evaluated once for the same variables: the rules of one object repeat parts."""
    key = intern(f"#{key}")

    def remembered(variables: Variables) -> JsonValue:
        if key in variables:
            return variables[key]
        found = variables[key] = program(variables)
        return found

    return remembered


def _parts(tree: Call) -> list[Tree]:
    """The operands of a chain of `&&` or of `||`; a part that several rules may share stays one operand."""
    left, right = tree.arguments
    if isinstance(left, Call) and left.target is None and left.function == tree.function and not _has_macro(left):
        return [*_parts(left), right]
    return [left, right]


def _joined(name: str, parts: list[Program]) -> Program:
    decides = name == "||"
    undecided = not decides

    def joined(variables: Variables) -> bool:
        failed: CelError | None = None  # the first error is raised, unless another operand decides
        for part in parts:
            try:
                found = part(variables)
            except CelError as error:
                failed = failed or error
                continue
            if found is decides:
                return bool(found)
            if found is not undecided:
                failed = failed or CelError(_NOT_BOOLEAN)
        if failed is not None:
            raise failed
        return undecided

    return joined


def _operator(name: str, operands: list[Program]) -> Program:
    if name == "?:":
        condition, yes, no = operands
        return lambda variables: yes(variables) if condition(variables) else no(variables)
    operation = _OPERATORS[name]
    if len(operands) == 1:
        (one,) = operands
        return lambda variables: operation(one(variables))
    left, right = operands
    return lambda variables: operation(left(variables), right(variables))


def _truth(value: JsonValue) -> bool:
    if isinstance(value, bool):
        return value
    raise CelError(_NOT_BOOLEAN)


def _equal(left: JsonValue, right: JsonValue) -> bool:
    if isinstance(left, bool) is not isinstance(right, bool):
        return False
    return bool(left == right)


def _comparable(left: JsonValue, right: JsonValue) -> None:
    if isinstance(left, _NUMBER) and isinstance(right, _NUMBER):
        return
    if type(left) is not type(right) or not isinstance(left, str | datetime | timedelta | Quantity | bool):
        raise CelError(f"no such overload: {type(left).__name__} and {type(right).__name__}")


def _less(left: JsonValue, right: JsonValue) -> bool:
    _comparable(left, right)
    return bool(left < right)


def _less_equal(left: JsonValue, right: JsonValue) -> bool:
    _comparable(left, right)
    return bool(left <= right)


def _in_range(value: JsonValue) -> JsonValue:
    if type(value) is int and not -_BIGGEST - 1 <= value <= _BIGGEST:
        raise CelError("integer overflow")
    return value


def _divide(left: JsonValue, right: JsonValue) -> JsonValue:
    if isinstance(left, int) and isinstance(right, int):
        if right == 0:
            raise CelError("division by zero")
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    return left / right


def _remainder(left: JsonValue, right: JsonValue) -> JsonValue:
    if right == 0:
        raise CelError("modulus by zero")
    return left - right * _divide(left, right)


def _in(item: JsonValue, container: JsonValue) -> bool:
    if not isinstance(container, list | dict):
        raise CelError("no such overload: in")
    return item in container


_OPERATORS: Final[dict[str, Callable[..., JsonValue]]] = {
    "!": lambda value: not _truth(value),
    "neg": lambda value: -value,
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": _less,
    "<=": _less_equal,
    ">": lambda left, right: _less(right, left),
    ">=": lambda left, right: _less_equal(right, left),
    "+": lambda left, right: _in_range(left + right),
    "-": lambda left, right: _in_range(left - right),
    "*": lambda left, right: _in_range(left * right),
    "/": _divide,
    "%": _remainder,
    "in": _in,
}
