# SPDX-License-Identifier: Apache-2.0
"""The rules of a definition's schema, judged when the definition is written.

Owns the causes for rules that say too little, that cannot mean anything for the types beside them, that look at an old
value where there is no telling which one it was, or that could cost too much, alone or all together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from multikueue.devcluster.apiserver import words
from multikueue.devcluster.apiserver.cel.checker import Checked, check
from multikueue.devcluster.apiserver.cel.compile import Expression
from multikueue.devcluster.apiserver.cel.costs import estimate
from multikueue.devcluster.apiserver.cel.syntax import CelError
from multikueue.devcluster.apiserver.cel.types import BOOL, STRING, Type, optional_of
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.errors import Cause
from multikueue.devcluster.apiserver.schema.declared import LARGEST, declared

_REASONS: Final = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_RULES: Final = "x-kubernetes-validations"
_MOST, _MOST_OF_ALL = 10_000_000, 100_000_000
"""What a rule may cost, and all of a schema together."""
_TOLD: Final = 4
"""How many rules are named when all together are too dear."""
_CONTRIBUTED: Final = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
_UNTYPED: Final = (
    "Internal error: internal error: failed to construct type information for x-kubernetes-validations rules: unable "
    "to convert structural schema to CEL declarations"
)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in the schema of a definition something is."""

    path: str
    bills: list[tuple[int, str]]
    """What each rule costs, and its path."""
    lost: str = ""
    """The list in which no item can be told to be the one that was there before."""
    count: int | None = 1
    """How many of it there can be in an object; None when nothing limits that."""

    def among(self, most: int | None) -> int | None:
        """How many items there can be of a list or map that is here."""
        return None if self.count is None or most is None else self.count * max(most, 0)


def rule_problems(schema: JsonObject, path: str) -> list[Cause]:
    """What is wrong with the rules of a whole object's schema."""
    place = _Place(path, [])
    found = list(_node(schema, place, whole=True))
    total = sum(cost for cost, _ in place.bills)
    if total <= _MOST_OF_ALL:
        return found
    dearest = sorted(place.bills, key=lambda bill: -bill[0])[:_TOLD]
    found += [words.forbidden(where, _CONTRIBUTED) for cost, where in dearest if cost >= _MOST_OF_ALL // 100]
    text = f"{_RULES} estimated rule cost total for entire OpenAPIv3 schema {_excess(total, _MOST_OF_ALL)}"
    return [*found, words.forbidden(path, text)]


def _excess(cost: int, limit: int) -> str:
    factor = cost / limit
    shown = f"{factor:.6f}x" if factor < 1.5 else f"{factor:.1f}x" if factor <= 100 else "more than 100x"
    return (
        f"exceeds budget by factor of {shown} (try simplifying the rule, or adding maxItems, maxProperties, and "
        "maxLength where arrays, maps, and strings are declared)"
    )


def _node(schema: JsonObject, place: _Place, *, whole: bool = False) -> Iterator[Cause]:
    rules = schema.get(_RULES) or ()
    if rules:
        kind = declared(schema, whole=whole)
        if kind is None:
            yield Cause("InternalError", _UNTYPED, f"{place.path}.{_RULES}")
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
        lost = place.lost or ("" if schema.get("x-kubernetes-list-type") == "map" else place.path)
        inner = replace(place, path=f"{place.path}.items", lost=lost, count=place.among(schema.get("maxItems")))
        yield from _node(items, inner)


def _form(rule: JsonObject, where: str, schema: JsonObject) -> Iterator[Cause]:
    """What is wrong with a rule beside its expressions."""
    text, reason, message = rule.get("rule", "").strip(), rule.get("reason"), rule.get("message", "")
    if not text:
        yield words.required(f"{where}.rule", "rule is not specified")
        return
    if reason is not None and reason not in _REASONS:
        yield words.unsupported(f"{where}.reason", reason, list(_REASONS))
    if "\n" in text and not message:
        yield words.required(f"{where}.message", "message must be specified if rule contains line breaks")
    if "\n" in message:
        yield words.bad_value(f"{where}.message", message, "must not contain line breaks")
    field = rule.get("fieldPath", "")
    if field and not _leads(field, schema):
        yield words.bad_value(f"{where}.fieldPath", field, "must be a valid path")


def _meaning(rule: JsonObject, where: str, kind: Type, place: _Place) -> Iterator[Cause]:
    """What is wrong with the expressions of a rule."""
    optional = rule.get("optionalOldSelf")
    variables = {"self": kind, "oldSelf": optional_of(kind) if optional else kind}
    uses_old = False
    try:
        checked = check(rule["rule"], variables)
        Expression(rule["rule"], variables=frozenset(variables))
    except CelError as error:
        yield words.bad_value(f"{where}.rule", _shown(rule), f"compilation failed: {error}")
    else:
        uses_old = "oldSelf" in checked.names
        if checked.type != BOOL:
            yield words.bad_value(f"{where}.rule", _shown(rule), "cel expression must evaluate to a bool")
        elif uses_old and place.lost:
            text = f"oldSelf cannot be used on the uncorrelatable portion of the schema within {place.lost}"
            yield words.bad_value(f"{where}.rule", rule["rule"], text)
        yield from _dearness(checked, f"{where}.rule", kind, place)
    if optional is not None and not uses_old:
        text = "may not be set if oldSelf is not used in rule"
        yield words.bad_value(f"{where}.optionalOldSelf", optional, text)
    if rule.get("messageExpression"):
        yield from _message(rule, where, kind, variables)


def _dearness(checked: Checked, where: str, kind: Type, place: _Place) -> Iterator[Cause]:
    """Whether a rule costs too much for all the values that there can be."""
    cost = estimate(checked, kind) if checked.type == BOOL else None
    if cost is None:
        return
    cost *= LARGEST // (kind.least + 1) if place.count is None else place.count
    place.bills.append((cost, where))
    if cost > _MOST:
        yield words.forbidden(where, f"estimated rule cost {_excess(cost, _MOST)}")


def _message(rule: JsonObject, where: str, kind: Type, variables: dict[str, Type]) -> Iterator[Cause]:
    try:
        checked = check(rule["messageExpression"], variables)
        Expression(rule["messageExpression"], variables=frozenset(variables))
    except CelError as error:
        text = f"messageExpression compilation failed: {error}"
        yield words.bad_value(f"{where}.messageExpression", _shown(rule), text)
        return
    if checked.type != STRING:
        text = "messageExpression must evaluate to a string"
        yield words.bad_value(f"{where}.messageExpression", _shown(rule), text)
    elif (cost := estimate(checked, kind)) is not None and cost > _MOST:
        text = f"estimated messageExpression cost {_excess(cost, _MOST)}"
        yield words.forbidden(f"{where}.messageExpression", text)


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
    """Whether a path of a rule leads to a field."""
    for plain, quoted_name in re.findall(r"\.([^.\[]+)|\['([^']*)'\]", field):
        name = plain or quoted_name
        child = (schema.get("properties") or {}).get(name)
        if child is None and isinstance(schema.get("additionalProperties"), dict):
            child = schema["additionalProperties"]
        if child is None:
            return False
        schema = child
    return True
