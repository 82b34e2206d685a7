# SPDX-License-Identifier: Apache-2.0
"""JSONPath (RFC 9535) of a declaration: read and written in jobs, within limits.

Owns which queries are allowed. A query of names and indexes has one value and can be written to. One with wildcards and
filters has several and is only read; its cost is at most linear in the job: there are no descendants (`..`), no regular
expressions, one selector a segment, and filters contain neither wildcards nor filters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeAlias

from jsonpath_rfc9535 import JSONPathEnvironment, JSONPathError, JSONPathQuery
from jsonpath_rfc9535.filter_expressions import ComparisonExpression as Comparison
from jsonpath_rfc9535.filter_expressions import (
    Expression,
    FilterExpression,
    FilterQuery,
    FunctionExtension,
    LogicalExpression,
    PrefixExpression,
)
from jsonpath_rfc9535.segments import JSONPathRecursiveDescentSegment
from jsonpath_rfc9535.selectors import FilterSelector, IndexSelector, NameSelector

from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt

Keys: TypeAlias = tuple[str | int, ...]
"""Names of fields and indexes of lists, from the job to a value in it."""
MAX_PATH: Final = 256
MAX_VALUES: Final = 10_000
"""The most values that one path may find in a job."""
_REGULAR_EXPRESSIONS: Final = ("match", "search")


class _Environment(JSONPathEnvironment):
    """Without functions that match regular expressions, whose cost has no limit."""

    def setup_function_extensions(self) -> None:
        super().setup_function_extensions()
        for name in _REGULAR_EXPRESSIONS:
            self.function_extensions.pop(name)


_ENVIRONMENT: Final = _Environment()


class JobPath:
    """One path, compiled."""

    __slots__ = ("_query", "keys", "text")

    def __init__(self, text: str) -> None:
        """Raises `BadInput` for a text that is not a path, or not an allowed one."""
        if len(text) > MAX_PATH:
            raise BadInput(f"a path has at most {MAX_PATH} characters, this one has {len(text)}")
        try:
            query = _ENVIRONMENT.compile(text)
        except (JSONPathError, RecursionError) as error:
            raise BadInput(f"{excerpt(text)} is not a JSONPath such as $.spec.suspend: {_first_line(error)}") from error
        for problem in _problems(query):
            raise BadInput(f"{excerpt(text)}: {problem}")
        if not query.segments:
            raise BadInput(f"{excerpt(text)}: expected a field of the job, found the job itself")
        self.text = text
        self._query = query
        self.keys: Keys | None = _keys(query) if query.singular_query() else None
        """How to get to its only value; None if the path has wildcards or filters."""

    @property
    def names_entry(self) -> bool:
        """Whether it is about the entry of a `forEach`."""
        return "$.each" in self.text or "$.key" in self.text

    def values(self, root: JsonObject) -> list[Any]:
        """The values that are there and not null. Raises `BadInput` if there are too many."""
        if self.keys is not None:
            found = value_at(root, self.keys)
            return [] if found is None else [found]
        values: list[Any] = []
        for node in self._query.finditer(root):
            if node.value is None:
                continue
            if len(values) == MAX_VALUES:
                raise BadInput(f"{self.text}: expected at most {MAX_VALUES} values, found more")
            values.append(node.value)
        return values

    def value(self, root: JsonObject) -> Any:
        """The first value; None if there is none."""
        return next(iter(self.values(root)), None)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"JobPath({self.text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobPath) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


def value_at(root: Any, keys: Keys) -> Any:
    """The value at these keys; None if any of them is absent."""
    for key in keys:
        if isinstance(key, str):
            root = root.get(key) if isinstance(root, dict) else None
        else:
            root = root[key] if isinstance(root, list) and key < len(root) else None
    return root


def with_value(root: Any, keys: Keys, value: Any) -> Any:
    """A copy with the value at these keys; absent objects on the way are made. Shares what it does not change.

    Raises `BadInput` for an index that the list does not have.
    """
    if not keys:
        return value
    key, *rest = keys
    if isinstance(key, str):
        fields = dict(root) if isinstance(root, dict) else {}
        fields[key] = with_value(fields.get(key), tuple(rest), value)
        return fields
    if not isinstance(root, list) or key >= len(root):
        raise BadInput(f"expected a list with an entry [{key}], found {excerpt(root)}")
    return [*root[:key], with_value(root[key], tuple(rest), value), *root[key + 1 :]]


def without_value(root: Any, keys: Keys) -> Any:
    """A copy without the field at these keys; the same value if it has none."""
    if value_at(root, keys[:-1]) is None:
        return root
    key, *rest = keys
    if isinstance(root, dict):
        if key not in root:
            return root
        if not rest:
            return {name: item for name, item in root.items() if name != key}
        return {**root, key: without_value(root[key], tuple(rest))}
    if isinstance(root, list) and isinstance(key, int) and rest:
        return [*root[:key], without_value(root[key], tuple(rest)), *root[key + 1 :]]
    return root


def shown(keys: Sequence[str | int]) -> str:
    """The keys as a path in a message, such as `spec.groups[0].template`."""
    text = ""
    for key in keys:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else key
    return text


def _keys(query: JSONPathQuery) -> Keys:
    keys: list[str | int] = []
    for segment in query.segments:
        (selector,) = segment.selectors
        if isinstance(selector, NameSelector):
            keys.append(selector.name)
        elif isinstance(selector, IndexSelector):
            keys.append(selector.index)
    return tuple(keys)


def _problems(query: JSONPathQuery, *, in_filter: bool = False) -> Iterator[str]:
    for segment in query.segments:
        if isinstance(segment, JSONPathRecursiveDescentSegment):
            yield "descendants (..) are not allowed, write the path to the field"
        if len(segment.selectors) != 1:
            yield "more than one selector in brackets is not allowed"
        for selector in segment.selectors:
            if isinstance(selector, IndexSelector) and selector.index < 0:
                yield "an index counts from the beginning of the list, from 0"
            if in_filter and not isinstance(selector, NameSelector | IndexSelector):
                yield "a filter may contain only paths of names and indexes"
            if isinstance(selector, FilterSelector):
                yield from _in_filter(selector.expression)


def _in_filter(expression: Expression) -> Iterator[str]:
    if isinstance(expression, FilterExpression):
        yield from _in_filter(expression.expression)
    elif isinstance(expression, PrefixExpression):
        yield from _in_filter(expression.right)
    elif isinstance(expression, LogicalExpression | Comparison):
        yield from _in_filter(expression.left)
        yield from _in_filter(expression.right)
    elif isinstance(expression, FunctionExtension):
        for argument in expression.args:
            yield from _in_filter(argument)
    elif isinstance(expression, FilterQuery):
        yield from _problems(expression.query, in_filter=True)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
