# SPDX-License-Identifier: Apache-2.0
"""The type checker of expressions.

Owns the types of all parts of an expression, and its errors in the language's words, each with its position. Costs are
estimated in `costs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from devcluster.apiserver.cel import messages, syntax
from devcluster.apiserver.cel.library import functions
from devcluster.apiserver.cel.signatures import PATCH_FUNCTIONS, Signature, signatures
from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.cel.trees import (
    Call,
    Entry,
    Field,
    Index,
    ListOf,
    Literal,
    MapOf,
    MessageOf,
    Name,
    Tree,
    qualified,
)
from devcluster.apiserver.cel.types import (
    BOOL,
    DOUBLE,
    DURATION,
    DYN,
    ERROR,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    Bindings,
    Type,
    all_fit,
    closed,
    fits,
    list_of,
    map_of,
    optional_of,
    renamed,
    resolved,
)
from devcluster.apiserver.codec.documents import JsonValue

_SYMBOLS: Final = {"!": "!_", "neg": "-_", "?:": "_?_:_", "in": "@in"}
"""The function names of operators that are not made of their symbol."""
_OPERATORS: Final = frozenset({"==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", *_SYMBOLS})
_TYPE_NAMES: Final[Mapping[str, Type]] = {
    **{kind.name: kind for kind in (BOOL, DOUBLE, DURATION, INT, STRING, TIMESTAMP, UINT)},
    "bytes": Type("bytes"),
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "null_type": NULL,
    "type": Type("type"),
    "google.protobuf.Timestamp": TIMESTAMP,
    "google.protobuf.Duration": DURATION,
}
_MACROS: Final[Mapping[str, tuple[int, ...]]] = {
    "all": (2, 3),
    "exists": (2, 3),
    "exists_one": (2, 3),
    "filter": (2,),
    "map": (2, 3),
    "sortBy": (2,),
    "transformList": (3, 4),
    "transformMap": (3, 4),
    "transformMapEntry": (3, 4),
}
"""The macros over a list or a map, and the numbers of their arguments."""
_OPTIONAL_MACROS: Final = frozenset({"optMap", "optFlatMap"})
_OF_TWO: Final = frozenset({"transformList", "transformMap", "transformMapEntry"})


@dataclass(frozen=True, slots=True)
class Checked:
    """A type-checked expression."""

    tree: Tree
    type: Type
    types: Mapping[int, Type]
    """The type of each node, by its `id`."""
    names: frozenset[str]
    """The variables that it uses."""


def check(text: str, variables: Mapping[str, Type], *, patches: bool = False) -> Checked:
    """The expression with its types; with `patches` it may make messages.

    Raises `CelError` with the text of all errors.
    """
    try:
        tree = syntax.parse(text)
    except CelError as error:
        lines = [syntax.located(text, wrong.at, str(wrong)) for wrong in (*error.before, error)]
        raise CelError("\n".join(lines)) from error
    checker = _Checker(patches=patches)
    try:
        type = checker.check(tree, variables)
    except RecursionError:
        raise CelError(syntax.located(text, -1, "max recursion depth exceeded")) from None
    wrong = checker.wrong or checker.late
    if wrong:
        lines = [syntax.located(text, at, message) for at, message in sorted(dict.fromkeys(wrong))]
        raise CelError("\n".join(lines))
    types = {key: checker.settled(kind) for key, kind in checker.types.items()}
    return Checked(tree, checker.settled(type), types, frozenset(checker.names))


def binders(tree: Call) -> int:
    """The number of variables that a macro over a list or a map declares; 0 if it is no such macro."""
    count = len(tree.arguments)
    if tree.target is None or count not in _MACROS.get(tree.function, ()):
        return 0
    return 2 if tree.function in _OF_TWO or (count == 3 and tree.function != "map") else 1


class _Checker:
    def __init__(self, *, patches: bool) -> None:
        self._patches = patches
        self.wrong: list[tuple[int, str]] = []
        self.late: list[tuple[int, str]] = []
        """Errors that are reported only if there are no type errors."""
        self._mixing = 0
        """The number of enclosing calls that accept lists of mixed types."""
        self.types: dict[int, Type] = {}
        self.names: set[str] = set()
        self._bindings: Bindings = {}
        self._fresh = 0

    def settled(self, kind: Type) -> Type:
        return closed(resolved(kind, self._bindings))

    def check(self, tree: Tree, scope: Mapping[str, Type]) -> Type:
        found = self.types[id(tree)] = self._type(tree, scope)
        return found

    def _type(self, tree: Tree, scope: Mapping[str, Type]) -> Type:
        match tree:
            case Literal():
                return Type(tree.type)
            case Name(name):
                return self._name(name, tree.at, scope)
            case Field():
                return self._field(tree, scope)
            case Index(operand, index):
                kinds = [self.check(operand, scope), self.check(index, scope)]
                return self._resolve("_[?_]" if tree.optional else "_[_]", tree.at, kinds, is_method=False)
            case ListOf(items):
                inner = self._join([(item, self._entry(item, scope)) for item in items])
                return list_of(inner)
            case MapOf(entries):
                keys, values = [], []
                for key, value in entries:
                    optional = isinstance(key, Call) and key.function == "?" and key.target is None
                    named = key.arguments[0] if optional and isinstance(key, Call) else key
                    keys.append((named, self.check(named, scope)))
                    kind = self.check(value, scope)
                    values.append((value, self._unwrapped(value, kind) if optional else kind))
                return map_of(self._join(keys), self._join(values))
            case MessageOf():
                return self._message(tree, scope)
            case Call():
                return self._call(tree, scope)

    def _message(self, tree: MessageOf, scope: Mapping[str, Type]) -> Type:
        kind = messages.type_of(tree.name) if self._patches else None
        for entry in tree.entries:
            self._message_field(entry, kind, self.check(entry.value, scope))
        if kind is not None:
            return kind
        if tree.name in scope:
            return self._fault(tree.at, f"'{self.settled(scope[tree.name]).name}' is not a type")
        if tree.name in _TYPE_NAMES:
            return self._fault(tree.at, f"'{tree.name}' is not a message type")
        return self._fault(tree.at, f"undeclared reference to '{tree.name}' (in container '')")

    def _message_field(self, entry: Entry, kind: Type | None, given: Type) -> None:
        if entry.optional:
            given = self._unwrapped(entry.value, given)
        if kind is None:
            return
        wanted = messages.field_of(kind, entry.name)
        if wanted is None or not fits(given, wanted, self._bindings):
            shown = "" if wanted is None else str(self.settled(wanted))
            text = f"expected type of field '{entry.name}' is '{shown}' but provided type is '{self.settled(given)}'"
            self._fault(entry.at, text)

    def _name(self, name: str, at: int, scope: Mapping[str, Type]) -> Type:
        found = scope.get(name)
        self.names.add(name)
        if found is None and name in _TYPE_NAMES:
            kind = _TYPE_NAMES[name]
            found = Type("type") if name == "type" else Type("type", (kind,))
        return self._fault(at, f"undeclared reference to '{name}' (in container '')") if found is None else found

    def _field(self, tree: Field, scope: Mapping[str, Type], at: int | None = None) -> Type:
        """The type of the selected field; `at` is the position of an enclosing macro, for errors."""
        spelled = qualified(tree)
        if spelled is not None and spelled in _TYPE_NAMES:
            return Type("type", (_TYPE_NAMES[spelled],))
        at = tree.at if at is None else at
        kind = self.settled(self.check(tree.operand, scope))
        wrapped = kind.name == "optional_type"
        inner = self._selected(kind.parameters[0] if wrapped else kind, tree.name, at)
        return optional_of(inner) if (tree.optional or wrapped) and inner is not ERROR else inner

    def _selected(self, kind: Type, name: str, at: int) -> Type:
        if messages.is_message(kind):
            found = messages.field_of(kind, name)
            return self._fault(at, f"undefined field '{name}'") if found is None else found
        if kind.fields is not None:
            found = kind.fields.get(name)
            return self._fault(at, f"undefined field '{name}'") if found is None else found
        if kind.name in ("dyn", "!error!"):
            return DYN if kind.name == "dyn" else ERROR
        if kind.name == "map":
            return kind.parameters[1]
        return self._fault(at, f"type '{kind}' does not support field selection")

    def _call(self, tree: Call, scope: Mapping[str, Type]) -> Type:
        name, target, arguments = tree.function, tree.target, tree.arguments
        if target is None and name == "has" and len(arguments) == 1:
            return self._has(tree, scope)
        if binders(tree):
            return self._macro(tree, scope)
        if name in _OPTIONAL_MACROS and target is not None and len(arguments) == 2:
            return self._optional_macro(tree, target, scope)
        self._mixing += name == "format"
        kinds = [self.check(argument, scope) for argument in arguments]
        self._mixing -= name == "format"
        if target is None:
            if name in ("&&", "||"):
                for argument, kind in zip(arguments, kinds, strict=True):
                    self._expect(argument.at, BOOL, kind)
                return BOOL
            operator = _SYMBOLS.get(name, f"_{name}_") if name in _OPERATORS else name
            found = self._resolve(operator, tree.at, kinds, is_method=False)
            self._judge_constant(name, arguments)
            return found
        prefix = qualified(target)
        declared = prefix is not None and f"{prefix}.{name}" in signatures()
        if declared and (self._patches or f"{prefix}.{name}" not in PATCH_FUNCTIONS):
            return self._resolve(f"{prefix}.{name}", tree.at, kinds, is_method=False)
        kinds.insert(0, self.check(target, scope))
        found = self._resolve(name, tree.at, kinds, is_method=True)
        self._judge_constant(name, arguments)
        return found

    def _has(self, tree: Call, scope: Mapping[str, Type]) -> Type:
        (selected,) = tree.arguments
        if not isinstance(selected, Field):
            return self._fault(selected.at, "invalid argument to has() macro")
        self.types[id(selected)] = self._field(selected, scope, tree.at)
        return BOOL

    def _macro(self, tree: Call, scope: Mapping[str, Type]) -> Type:
        """The type of a macro over a list or a map."""
        count, arguments = binders(tree), tree.arguments
        names = []
        for argument in arguments[:count]:
            if not isinstance(argument, Name):
                return self._fault(argument.at, "argument must be a simple name")
            names.append(argument.name)
        assert tree.target is not None
        source = self.settled(self.check(tree.target, scope))
        inner = {**scope, **self._bound(names, source, tree.target.at)}
        bodies = [self.check(argument, inner) for argument in arguments[count:]]
        return self._made(tree, bodies, inner, names)

    def _bound(self, names: list[str], source: Type, at: int) -> dict[str, Type]:
        if source.name == "list":
            kinds = [INT, source.parameters[0]] if len(names) == 2 else [source.parameters[0]]
        elif source.name == "map":
            kinds = list(source.parameters)
        else:
            if source.name not in ("dyn", "!error!"):
                text = (
                    f"expression of type '{source}' cannot be range of a comprehension (must be list, map, or dynamic)"
                )
                self._fault(at, text)
            kinds = [DYN, DYN]
        return dict(zip(names, kinds, strict=False))

    def _made(self, tree: Call, bodies: list[Type], scope: Mapping[str, Type], names: list[str]) -> Type:
        last, at = bodies[-1], tree.at
        match tree.function:
            case "all" | "exists":
                self._expect(tree.arguments[-1].at, BOOL, last)
                return BOOL
            case "exists_one":
                self._resolve("_?_:_", at, [last, INT, INT], is_method=False)
                return BOOL
            case "sortBy":
                return list_of(scope[names[0]])
            case "filter":
                made = list_of(scope[names[0]])
                return self._resolve("_?_:_", at, [last, made, made], is_method=False)
            case "transformMap":
                made = map_of(scope[names[0]], last)
            case "transformMapEntry":
                made = last
            case _:
                made = list_of(last)
        if len(bodies) == 2:
            self._resolve("_?_:_", at, [bodies[0], made, made], is_method=False)
        return made

    def _optional_macro(self, tree: Call, target: Tree, scope: Mapping[str, Type]) -> Type:
        name, body = tree.arguments
        if not isinstance(name, Name):
            return self._fault(name.at, "argument must be a simple name")
        kind = self.settled(self.check(target, scope))
        inner = kind.parameters[0] if kind.name == "optional_type" else DYN
        found = self.check(body, {**scope, name.name: inner})
        return optional_of(found) if tree.function == "optMap" else found

    def _resolve(self, name: str, at: int, given: list[Type], *, is_method: bool) -> Type:
        """The result type of a call, by the function's overloads."""
        forms, before = signatures().get(name), self._bindings
        if forms is None:
            return self._fault(at, f"undeclared reference to '{name}' (in container '')")
        fitting = [form for form in forms if form.is_method is is_method and len(form.parameters) == len(given)]
        tried = [found for found in (self._tried(form, given) for form in fitting) if found is not None]
        if tried:
            result, self._bindings = tried[0]
            if all(other == result for other, _ in tried[1:]):
                return result
            self._bindings = before
            return DYN
        shown = [str(self.settled(kind)) for kind in given]
        receiver = f"{shown.pop(0)}." if is_method else ""
        text = f"found no matching overload for '{name}' applied to '{receiver}({', '.join(shown)})'"
        return self._fault(at, text)

    def _tried(self, form: Signature, given: list[Type]) -> tuple[Type, Bindings] | None:
        self._fresh += 1
        wanted = [renamed(kind, self._fresh) for kind in form.parameters]
        bindings = dict(self._bindings)
        if not all_fit(given, wanted, bindings):
            return None
        return resolved(renamed(form.result, self._fresh), bindings), bindings

    def _entry(self, item: Tree, scope: Mapping[str, Type]) -> Type:
        if isinstance(item, Call) and item.function == "?" and item.target is None:
            (inner,) = item.arguments
            return self._unwrapped(inner, self.check(inner, scope))
        return self.check(item, scope)

    def _unwrapped(self, tree: Tree, kind: Type) -> Type:
        kind = self.settled(kind)
        if kind.name == "optional_type":
            return kind.parameters[0]
        return kind if kind.name in ("dyn", "!error!") else self._mismatch(tree.at, optional_of(kind), kind)

    def _join(self, items: Iterable[tuple[Tree, Type]]) -> Type:
        """The common type of the items; `dyn` if they differ where that is allowed, else an error."""
        self._fresh += 1
        first = joined = Type(f"J{self._fresh}")
        for tree, kind in items:
            if self.settled(kind) == DYN:
                first = joined = DYN
            elif not fits(kind, first, self._bindings):
                joined = DYN
                if not self._mixing:
                    text = f"expected type '{self.settled(first)}' but found '{self.settled(kind)}'"
                    self.late.append((tree.at, text))
        return resolved(joined, self._bindings)

    def _expect(self, at: int, wanted: Type, given: Type) -> None:
        if not fits(given, wanted, self._bindings):
            self._mismatch(at, wanted, given)

    def _mismatch(self, at: int, wanted: Type, given: Type) -> Type:
        return self._fault(at, f"expected type '{self.settled(wanted)}' but found '{self.settled(given)}'")

    def _judge_constant(self, name: str, arguments: tuple[Tree, ...]) -> None:
        """Report constant arguments that the function cannot parse."""
        judge = _JUDGES.get(name)
        if judge is None or len(arguments) != 1 or not isinstance(arguments[0], Literal):
            return
        if name == "timestamp" and arguments[0].type == "int":
            return
        try:
            judge(arguments[0].value)
        except CelError:
            self.late.append((arguments[0].at, f"invalid {name} argument"))

    def _fault(self, at: int, message: str) -> Type:
        self.wrong.append((at, message))
        return ERROR


_JUDGES: Final[Mapping[str, Callable[[JsonValue], object]]] = {
    "matches": functions.compiled,
    "duration": functions.duration,
    "timestamp": functions.timestamp,
}
