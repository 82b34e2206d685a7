# SPDX-License-Identifier: Apache-2.0
"""The estimated maximal cost of an expression, from the maximal sizes of its values.

Uses the units of a real server: one for a name, a selection or a call, more for strings and lists. The numbers were
measured on a real server; an expression with an unmeasured function has no estimate, since refusing a valid rule is
worse than accepting an expensive one. Costs of functions are in `prices`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from devcluster.apiserver.cel.checker import Checked, binders
from devcluster.apiserver.cel.prices import BOUNDLESS, PRICES, SCALARS, Priced, Unjudged, part
from devcluster.apiserver.cel.trees import Call, Field, Index, ListOf, Literal, MapOf, MessageOf, Name, Tree
from devcluster.apiserver.cel.types import Type

Path: TypeAlias = tuple[str, ...]
_LIST, _MAP = 10, 30
_ORDER: Final = frozenset({"<", "<=", ">", ">="})
_TEXTS: Final = frozenset({"string", "bytes", "dyn"})
_PLAIN: Final = frozenset({"net.IP", "net.CIDR", "kubernetes.Quantity", "kubernetes.Semver"})
"""Types that are compared in one step."""


def estimate(checked: Checked, kind: Type) -> int | None:
    """The maximal cost of the expression for a `self` of a type; None if unknown."""
    try:
        return min(_Costs(checked.types, kind).of(checked.tree, {}), BOUNDLESS)
    except Unjudged:
        return None


class _Costs:
    def __init__(self, types: Mapping[int, Type], kind: Type) -> None:
        self._types = types
        self._kind = kind
        self._paths: dict[int, Path] = {}
        self._sizes: dict[int, int] = {}
        self._entries: dict[int, int] = {}
        """The maximal sizes of items of intermediate lists."""

    def of(self, tree: Tree, scope: Mapping[str, Path]) -> int:
        match tree:
            case Literal():
                return 0
            case Name(name):
                self._paths[id(tree)] = scope.get(name, (name,))
                return 1
            case Field():
                return self._field(tree, scope)
            case Index():
                return self._index(tree, scope)
            case ListOf(items):
                total = _LIST + sum(self.of(item, scope) for item in items)
                self._sizes[id(tree)] = len(items)
                self._entries[id(tree)] = max((self._size(item) for item in items), default=0)
                return total
            case MapOf(entries):
                total = _MAP + sum(self.of(key, scope) + self.of(value, scope) for key, value in entries)
                self._sizes[id(tree)] = len(entries)
                self._entries[id(tree)] = max((self._size(value) for _, value in entries), default=0)
                return total
            case MessageOf():
                raise Unjudged
            case Call():
                return self._call(tree, scope)

    def _type(self, tree: Tree) -> Type:
        return self._types[id(tree)]

    def _path(self, tree: Tree) -> Path:
        return self._paths.get(id(tree), ())

    def _size(self, tree: Tree) -> int:
        """The maximal size of a value."""
        known = self._sizes.get(id(tree))
        if known is not None:
            return known
        if isinstance(tree, Literal):
            return len(str(tree.value)) if tree.type in ("string", "bytes") else 1
        path = self._path(tree)
        found = self._at(path) if path else None
        if found is not None:
            return found
        kind = self._types.get(id(tree))
        return 1 if kind is not None and kind.name in SCALARS else BOUNDLESS

    def _at(self, path: Path) -> int | None:
        """The maximal size of the value at a path, whatever the name of its first step."""
        kind: Type | None = self._kind
        for step in path[1:]:
            if kind is None:
                return None
            if step == "@items":
                kind = kind.parameters[0] if kind.name == "list" else None
            elif step in ("@keys", "@values"):
                kind = kind.parameters[step == "@values"] if kind.name == "map" else None
            else:
                kind = (kind.fields or {}).get(step)
        return None if kind is None else kind.most

    def _item_size(self, tree: Tree) -> int:
        """The maximal size of a list's items."""
        known = self._entries.get(id(tree))
        found = self._at((*self._path(tree), "@items")) if known is None and self._path(tree) else known
        if found is None:
            raise Unjudged
        return found

    def _field(self, tree: Field, scope: Mapping[str, Path]) -> int:
        cost = self.of(tree.operand, scope)
        if tree.optional:
            return cost + 1
        self._paths[id(tree)] = (*self._path(tree.operand), tree.name)
        kind = self._types.get(id(tree.operand))
        return cost + (kind is not None and (kind.fields is not None or kind.name == "map"))

    def _index(self, tree: Index, scope: Mapping[str, Path]) -> int:
        cost = self.of(tree.operand, scope) + self.of(tree.index, scope) + 1
        name = self._type(tree.operand).name
        if not tree.optional and name in ("list", "map"):
            step = "@items" if name == "list" else "@values"
            self._paths[id(tree)] = (*self._path(tree.operand), step)
            if id(tree.operand) in self._entries:
                self._sizes[id(tree)] = self._entries[id(tree.operand)]
        return cost

    def _call(self, tree: Call, scope: Mapping[str, Path]) -> int:
        name, arguments = tree.function, tree.arguments
        if binders(tree):
            return self._macro(tree, scope)
        if tree.target is None and name == "has":
            (selected,) = arguments
            assert isinstance(selected, Field)
            return self.of(selected.operand, scope)
        if name in ("optMap", "optFlatMap"):
            raise Unjudged
        library = tree.target if isinstance(tree.target, Name) and id(tree.target) not in self._types else None
        values = arguments if tree.target is None or library is not None else (tree.target, *arguments)
        costs = [self.of(value, scope) for value in values]
        if tree.target is None:
            if name in ("&&", "||", "?"):
                return sum(costs)
            if name == "?:":
                self._sizes[id(tree)] = max(self._size(value) for value in values[1:])
                return costs[0] + max(costs[1:])
            if name in ("==", "!=") or (name in _ORDER and _TEXTS & {self._type(value).name for value in values}):
                return sum(costs) + self._compared(values)
            if name == "+":
                return sum(costs) + self._added(tree, values)
            if name == "in":
                among = self._type(values[1]).name in ("list", "dyn")
                return sum(costs) + (self._size(values[1]) if among else 1)
        return sum(costs) + self._priced(tree, values, library)

    def _priced(self, tree: Call, values: tuple[Tree, ...], library: Name | None) -> int:
        name = f"{library.name}.{tree.function}" if library is not None else tree.function
        price = PRICES.get(name)
        if price is None:
            raise Unjudged
        sizes = [self._size(value) for value in values]
        kinds = [self._type(value) for value in values]
        item = self._item_size(values[0]) if values and kinds[0].name == "list" and price.items else 0
        found = price.of(Priced(sizes, kinds, item, tree.target is not None))
        if found.size is not None:
            self._sizes[id(tree)] = found.size
        return found.cost

    def _compared(self, values: tuple[Tree, ...]) -> int:
        kinds = {self._type(value).name for value in values}
        if kinds & _PLAIN:
            return 1
        shortest = min(self._size(value) for value in values)
        if shortest >= BOUNDLESS and not kinds <= {*_TEXTS, "list", "map"}:
            raise Unjudged
        if kinds & {"optional_type", "kubernetes.URL", "kubernetes.NamedFormat"}:
            raise Unjudged
        return part(shortest)

    def _added(self, tree: Call, values: tuple[Tree, ...]) -> int:
        kinds = {self._type(value).name for value in values}
        if not kinds & {*_TEXTS, "list"}:
            return 1
        size = self._sizes[id(tree)] = sum(self._size(value) for value in values)
        return 1 if "list" in kinds else part(size)

    def _macro(self, tree: Call, scope: Mapping[str, Path]) -> int:
        """The cost of a loop: that of its range, and that of its body for each possible item."""
        assert tree.target is not None
        name, count = tree.function, binders(tree)
        begin = self.of(tree.target, scope)
        size = self._size(tree.target)
        kind, path = self._type(tree.target).name, self._path(tree.target)
        steps = {"list": ("@items", "@items"), "map": ("@keys", "@values")}.get(kind, ())
        names = [argument.name for argument in tree.arguments[:count] if isinstance(argument, Name)]
        inner = dict(scope)
        for variable, step in zip(names, steps, strict=False):
            counts = count == 2 and kind == "list" and variable is names[0]
            inner[variable] = (variable,) if counts else (*path, step)
        bodies = tree.arguments[count:]
        costs = [self.of(body, inner) for body in bodies]
        match name:
            case "all":
                return begin + 1 + size * (3 + costs[-1])
            case "exists":
                return begin + 1 + size * (4 + costs[-1])
            case "exists_one":
                return begin + 2 + size * (2 + costs[-1])
            case "map" | "transformList":
                self._sizes[id(tree)], self._entries[id(tree)] = size, self._size(bodies[-1])
                return begin + _LIST + 1 + size * (sum(costs) + 2 + _LIST)
            case "filter":
                self._sizes[id(tree)] = size
                self._entries[id(tree)] = self._at(inner[names[0]]) or 0
                return begin + _LIST + 1 + size * (costs[-1] + 3 + _LIST)
        raise Unjudged
