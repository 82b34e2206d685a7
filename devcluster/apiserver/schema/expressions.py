# SPDX-License-Identifier: Apache-2.0
"""Validation of the CEL rules of a definition's schema, when the definition is written.

Owns the causes for incomplete rules, type errors, uses of `oldSelf` in parts of the schema that cannot be correlated,
and rules that cost too much, alone or together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.cel.checker import Checked, check
from devcluster.apiserver.cel.compile import Expression
from devcluster.apiserver.cel.costs import estimate
from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.cel.types import BOOL, STRING, Type, optional_of
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.schema.declared import LARGEST, declared

_REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_RULES: Final = "x-kubernetes-validations"
_MOST, _MOST_OF_ALL = 10_000_000, 100_000_000
"""The cost limits of one rule and of all rules of a schema."""
_LISTED: Final = 4
"""The number of rules that are named if the total cost is too high."""
_CONTRIBUTED: Final = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
_UNTYPED: Final = (
    "Internal error: internal error: failed to construct type information for x-kubernetes-validations rules: unable "
    "to convert structural schema to CEL declarations"
)


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in the schema of a definition."""

    path: str
    bills: list[tuple[int, str]]
    """The cost and path of each rule."""
    uncorrelatable: str = ""
    """The list whose items cannot be correlated with the old ones."""
    count: int | None = 1
    """The maximal number of such values in an object; None if unlimited."""

    def among(self, most: int | None) -> int | None:
        """The maximal number of items of a list or map at this place."""
        return None if self.count is None or most is None else self.count * max(most, 0)


def rule_problems(schema: JsonObject, path: str) -> list[StatusCause]:
    """The problems of the rules of a whole object's schema."""
    place = _Place(path, [])
    found = list(_node(schema, place, whole=True))
    total = sum(cost for cost, _ in place.bills)
    if total <= _MOST_OF_ALL:
        return found
    dearest = sorted(place.bills, key=lambda bill: -bill[0])[:_LISTED]
    found += [field_errors.forbidden(where, _CONTRIBUTED) for cost, where in dearest if cost >= _MOST_OF_ALL // 100]
    text = f"{_RULES} estimated rule cost total for entire OpenAPIv3 schema {_excess(total, _MOST_OF_ALL)}"
    return [*found, field_errors.forbidden(path, text)]


def _excess(cost: int, limit: int) -> str:
    factor = cost / limit
    shown = f"{factor:.6f}x" if factor < 1.5 else f"{factor:.1f}x" if factor <= 100 else "more than 100x"
    return (
        f"exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems, maxProperties, and "
        "maxLength where arrays, maps, and strings are declared)"
    )


def _node(schema: JsonObject, place: _Place, *, whole: bool = False) -> Iterator[StatusCause]:
    rules = schema.get(_RULES) or ()
    if rules:
        kind = declared(schema, whole=whole)
        if kind is None:
            yield StatusCause("InternalError", _UNTYPED, f"{place.path}.{_RULES}")
        for index, rule in enumerate(rules):
            yield from _form(rule, f"{place.path}.{_RULES}[{index}]", schema)
            if kind is not None and rule.get("rule", "").strip():
                yield from _meaning(rule, f"{place.path}.{_RULES}[{index}]", kind, place)
    for name, child in (schema.get("properties") or {}).items():
        yield from _node(child, replace(place, path=f"{place.path}.properties[{name}]"))
    if isinstance(extra := schema.get("additionalProperties"), dict):
        inner = replace(
            place, path=f"{place.path}.additionalProperties", count=place.among(schema.get("maxProperties"))
        )
        yield from _node(extra, inner)
    if isinstance(items := schema.get("items"), dict):
        uncorrelatable = place.uncorrelatable or ("" if schema.get("x-kubernetes-list-type") == "map" else place.path)
        inner = replace(
            place, path=f"{place.path}.items", uncorrelatable=uncorrelatable, count=place.among(schema.get("maxItems"))
        )
        yield from _node(items, inner)


def _form(rule: JsonObject, where: str, schema: JsonObject) -> Iterator[StatusCause]:
    """The problems of a rule apart from its expressions."""
    text, reason, message = rule.get("rule", "").strip(), rule.get("reason"), rule.get("message", "")
    if not text:
        yield field_errors.required(f"{where}.rule", "rule is not specified")
        return
    if reason is not None and reason not in _REASONS:
        yield field_errors.not_supported(f"{where}.reason", reason, _REASONS)
    if "\n" in text and not message:
        yield field_errors.required(f"{where}.message", "message must be specified if rule contains line breaks")
    if "\n" in message:
        yield field_errors.invalid(f"{where}.message", message, "must not contain line breaks")
    field = rule.get("fieldPath", "")
    if field and not _leads(field, schema):
        yield field_errors.invalid(f"{where}.fieldPath", field, "must be a valid path")


def _meaning(rule: JsonObject, where: str, kind: Type, place: _Place) -> Iterator[StatusCause]:
    """The problems of the expressions of a rule."""
    optional = rule.get("optionalOldSelf")
    variables = {"self": kind, "oldSelf": optional_of(kind) if optional else kind}
    uses_old = False
    try:
        checked = check(rule["rule"], variables)
        Expression(rule["rule"], variables=frozenset(variables))
    except CelError as error:
        yield field_errors.invalid(f"{where}.rule", _shown(rule), f"compilation failed: {error}")
    else:
        uses_old = "oldSelf" in checked.names
        if checked.type != BOOL:
            yield field_errors.invalid(f"{where}.rule", _shown(rule), "cel expression must evaluate to a bool")
        elif uses_old and place.uncorrelatable:
            text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {place.uncorrelatable}"
            yield field_errors.invalid(f"{where}.rule", rule["rule"], text)
        yield from _cost(checked, f"{where}.rule", kind, place)
    if optional is not None and not uses_old:
        text = "may not be set if oldSelf is not used in rule"
        yield field_errors.invalid(f"{where}.optionalOldSelf", optional, text)
    if rule.get("messageExpression"):
        yield from _message(rule, where, kind, variables)


def _cost(checked: Checked, where: str, kind: Type, place: _Place) -> Iterator[StatusCause]:
    """The problem of a rule that costs too much for all possible values."""
    cost = estimate(checked, kind) if checked.type == BOOL else None
    if cost is None:
        return
    cost *= LARGEST // (kind.least + 1) if place.count is None else place.count
    place.bills.append((cost, where))
    if cost > _MOST:
        yield field_errors.forbidden(where, f"estimated rule cost {_excess(cost, _MOST)}")


def _message(rule: JsonObject, where: str, kind: Type, variables: dict[str, Type]) -> Iterator[StatusCause]:
    try:
        checked = check(rule["messageExpression"], variables)
        Expression(rule["messageExpression"], variables=frozenset(variables))
    except CelError as error:
        text = f"messageExpression compilation failed: {error}"
        yield field_errors.invalid(f"{where}.messageExpression", _shown(rule), text)
        return
    if checked.type != STRING:
        text = "messageExpression must evaluate to a string"
        yield field_errors.invalid(f"{where}.messageExpression", _shown(rule), text)
    elif (cost := estimate(checked, kind)) is not None and cost > _MOST:
        text = f"estimated messageExpression cost {_excess(cost, _MOST)}"
        yield field_errors.forbidden(f"{where}.messageExpression", text)


def _shown(rule: JsonObject) -> JsonObject:
    names = ("rule", "message", "messageExpression")
    found: JsonObject = {name[0].upper() + name[1:]: rule.get(name, "") for name in names}
    return {
        **found,
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath", ""),
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }


def _leads(field: str, schema: JsonObject) -> bool:
    """Whether a `fieldPath` leads to a field."""
    for plain, quoted_name in re.findall(r"\.([^.\[]+)|\['([^']*)'\]", field):
        name = plain or quoted_name
        child = (schema.get("properties") or {}).get(name)
        if child is None and isinstance(schema.get("additionalProperties"), dict):
            child = schema["additionalProperties"]
        if child is None:
            return False
        schema = child
    return True
