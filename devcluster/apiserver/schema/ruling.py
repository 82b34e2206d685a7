# SPDX-License-Identifier: Apache-2.0
"""Applies the rules of a schema to an object.

Owns which rules apply to an update, the value of `oldSelf`, and the causes of violated rules.
"""

from __future__ import annotations

import re
from typing import Final

from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.cel.values import Optional
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.schema.node import ABSENT, TypeNode, item_key
from devcluster.apiserver.schema.structural import Structural, ValidationRule
from devcluster.apiserver.schema.values import correlated, quoted

_SEEN: Final = "integer,string"
_BRACKETS: Final = re.compile(r"\['([^']*)'\]")


def apply_rules(value: JsonValue, kind: TypeNode, path: str, causes: list[StatusCause], old: JsonValue) -> None:
    """Collect the causes of violated rules; `old` is `ABSENT` if there was no value before."""
    if old is not ABSENT and (old is value or old == value):
        return
    if not isinstance(kind, Structural) or value is None:
        return
    if kind.rules:
        variables: JsonObject = {"self": value} if old is ABSENT else {"self": value, "oldSelf": old}
        for rule in kind.rules:
            if rule.optional_old or not rule.expression.holds(variables):
                _apply_rule(rule, variables, kind, path, causes)
    if isinstance(value, dict):
        before: JsonObject = old if isinstance(old, dict) else documents.EMPTY
        for name, entry in value.items():
            named = kind.properties.get(name)
            field = named or kind.additional
            if isinstance(field, Structural) and field.ruled:
                where = f"{path}[{name}]" if named is None else f"{path}.{name}" if path else name
                apply_rules(entry, field, where, causes, before.get(name, ABSENT))
    elif isinstance(value, list) and isinstance(kind.items, Structural) and kind.items.ruled:
        earlier = correlated(old, kind)
        for index, item in enumerate(value):
            was = earlier.get(item_key(kind, item), ABSENT) if earlier else ABSENT
            apply_rules(item, kind.items, f"{path}[{index}]", causes, was)


def _apply_rule(
    rule: ValidationRule, variables: JsonObject, kind: TypeNode, path: str, causes: list[StatusCause]
) -> None:
    value = variables["self"]
    if rule.optional_old:
        old = Optional(True, variables["oldSelf"]) if "oldSelf" in variables else Optional(False)
        variables = {"self": value, "oldSelf": old}
    elif rule.transition and "oldSelf" not in variables:
        return
    failed: CelError | None = None
    try:
        if rule.expression.evaluate(variables) is True:
            return
    except CelError as error:
        failed = error
    where = path
    if rule.field_path:
        inside = _BRACKETS.sub(r".\1", rule.field_path)
        where = f"{path}{inside}" if path else inside.lstrip(".")
    if failed is not None:
        seen = _SEEN if kind.int_or_string else kind.type
        shown_message = rule.message.removeprefix("failed rule: ")
        text = f'Invalid value: "{seen}": {failed} evaluating rule: {shown_message}'
        causes.append(StatusCause("FieldValueInvalid", text, where or "<nil>"))
        return
    # Objects and lists are not shown.
    shown = "" if isinstance(value, dict | list) else f" {quoted(value)}:"
    message = rule.message
    if rule.message_expression is not None:
        try:
            found = rule.message_expression.evaluate(variables)
        except CelError:
            found = None
        if isinstance(found, str) and found.strip() and "\n" not in found:
            message = found
    match rule.reason:
        case "FieldValueRequired":
            text = f"Required value: {message}"
        case "FieldValueForbidden":
            text = f"Forbidden: {message}"
        case "FieldValueDuplicate":
            text = f"Duplicate value:{shown}".rstrip(":")
        case _:
            text = f"Invalid value:{shown} {message}"
    causes.append(StatusCause(rule.reason, text, where or "<nil>"))
