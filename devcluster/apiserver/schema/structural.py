# SPDX-License-Identifier: Apache-2.0
"""Structural schemas of custom resources: compiled once, then used to prune and default.

Makes nodes of `openAPIV3Schema` with compiled checks and rules. Validation is in `validate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from sys import maxsize
from typing import Final

from devcluster.apiserver.cel.compile import Expression
from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.codec.documents import EMPTY, JsonObject, JsonValue, copy
from devcluster.apiserver.schema import builtin
from devcluster.apiserver.schema.node import ABSENT, TypeNode

VARIABLES: Final = frozenset({"self", "oldSelf"})
_CHECKED_OF_ANY: Final = frozenset({"enum", "allOf", "anyOf", "oneOf", "not", "x-kubernetes-int-or-string"})
_CHECKED_OF_STRINGS: Final = _CHECKED_OF_ANY | {"pattern", "format", "minLength"}


@dataclass(frozen=True, slots=True)
class ValidationRule:
    """One of `x-kubernetes-validations`."""

    expression: Expression
    message: str
    message_expression: Expression | None
    reason: str
    field_path: str
    optional_old: bool
    transition: bool
    """Whether it is a transition rule, which uses `oldSelf`."""


class Structural(TypeNode):
    """A node of a structural schema."""

    __slots__ = ("defaulted", "defaults", "embeds", "free", "plain", "right", "ruled", "rules")

    def __init__(self) -> None:
        super().__init__()
        self.rules: tuple[ValidationRule, ...] = ()
        self.defaults = False
        """Whether a value in here has a default."""
        self.defaulted: dict[str, Structural] = {}
        """The properties that have a default, or contain one."""
        self.embeds = False
        """Whether this is or contains an embedded object."""
        self.free = -1
        """The maximal length of a string without other checks; -1 if there are others."""
        self.plain = False
        """Whether the only check of an object itself is its type."""
        self.right: set[str] = set()
        """Short strings that were valid here; the same few occur again and again."""
        self.ruled = False
        """Whether this has or contains rules."""


def read(schema: JsonObject, *, root: bool = False, path: str = "") -> Structural:
    """The node of a schema. Raises `CelError` for a rule that cannot be compiled, naming its path."""
    found = Structural()
    found.source = schema
    found.type = schema.get("type", "")
    found.format = schema.get("format", "")
    found.nullable = bool(schema.get("nullable"))
    found.preserve = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    found.int_or_string = bool(schema.get("x-kubernetes-int-or-string"))
    found.embedded = bool(schema.get("x-kubernetes-embedded-resource"))
    found.atomic = schema.get("x-kubernetes-map-type") == "atomic"
    found.list_type = schema.get("x-kubernetes-list-type", "atomic")
    found.keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
    found.required = frozenset(schema.get("required", ()))
    if "default" in schema:
        found.default = schema["default"]
    for name, child in schema.get("properties", {}).items():
        found.properties[name] = read(child, path=f"{path}.properties[{name}]")
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        found.additional = read(extra, path=f"{path}.additionalProperties")
    elif extra is True:
        found.additional = Structural()
        found.additional.preserve = True
    if isinstance(schema.get("items"), dict):
        found.items = read(schema["items"], path=f"{path}.items")
    found.plain = found.type == "object" and _CHECKED_OF_ANY.isdisjoint(schema)
    if found.type == "string" and _CHECKED_OF_STRINGS.isdisjoint(schema):
        found.free = schema.get("maxLength", maxsize)
    found.rules = tuple(_rules(schema, path))
    if root or found.embedded:
        string = Structural()
        string.type = "string"
        for name in ("apiVersion", "kind"):
            found.properties.setdefault(name, string)
        found.properties["metadata"] = builtin.node("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
    children = [*found.properties.values(), *filter(None, (found.additional, found.items))]
    inner = [child for child in children if isinstance(child, Structural)]
    found.defaults = any(child.default is not ABSENT or child.defaults for child in inner)
    found.defaulted = {
        name: child
        for name, child in found.properties.items()
        if isinstance(child, Structural) and (child.default is not ABSENT or child.defaults)
    }
    found.embeds = found.embedded or any(child.embeds for child in inner)
    found.ruled = bool(found.rules) or any(child.ruled for child in inner)
    return found


def _rules(schema: JsonObject, path: str) -> list[ValidationRule]:
    found = []
    for index, rule in enumerate(schema.get("x-kubernetes-validations", ())):
        where = f"{path}.x-kubernetes-validations[{index}]"
        try:
            expression = Expression(rule["rule"], variables=VARIABLES)
        except CelError as error:
            raise CelError(f"{where}.rule\n{rule['rule']}\n{error}") from error
        text = rule.get("messageExpression")
        try:
            message_expression = Expression(text, variables=VARIABLES) if text else None
        except CelError as error:
            raise CelError(f"{where}.messageExpression\n{text}\n{error}") from error
        message = rule.get("message") or f"failed rule: {rule['rule'].strip()}"
        reason = rule.get("reason") or "FieldValueInvalid"
        found.append(
            ValidationRule(
                expression,
                message.strip(),
                message_expression,
                reason,
                rule.get("fieldPath", ""),
                bool(rule.get("optionalOldSelf")),
                "oldSelf" in expression.names,
            )
        )
    return found


def prune(
    value: JsonObject, kind: TypeNode, *, path: str = "", pruned: list[str] | None = None, old: JsonObject = EMPTY
) -> None:
    """Drop unknown fields in place; `pruned` collects their paths. Entries of `old` are known."""
    if kind.preserve and not kind.properties and kind.additional is None:
        return
    properties = kind.properties
    extra = kind.additional
    unknown, nulls = [], []
    for name, entry in value.items():
        field = properties.get(name)
        if field is not None and type(entry) is str:
            continue
        was = old.get(name, ABSENT) if old else ABSENT
        if entry is was:
            continue
        field = field or extra
        if field is None:
            if not kind.preserve:
                unknown.append(name)
                if pruned is not None:
                    pruned.append(f"{path}.{name}" if path else name)
            continue
        if entry is None and not field.nullable and field.default is ABSENT and isinstance(kind, Structural):
            nulls.append(name)
        elif isinstance(entry, dict):
            if field.properties or field.additional is not None or not field.preserve:
                known = was if isinstance(was, dict) else EMPTY
                prune(entry, field, path=_join(path, name, extra is field), pruned=pruned, old=known)
        elif isinstance(entry, list):
            _prune_items(entry, field, path=_join(path, name, extra is field), pruned=pruned)
        elif type(entry) is float and entry.is_integer() and abs(entry) < 1 << 53:
            value[name] = int(entry)  # a real server writes 1.0 as 1
    for name in nulls:
        del value[name]
    for name in unknown:
        del value[name]


def _join(path: str, name: str, is_key: bool) -> str:
    return f"{path}.{name}" if path else name


def _prune_items(items: list[JsonValue], kind: TypeNode, *, path: str, pruned: list[str] | None) -> None:
    inner = kind.items
    if inner is None:
        return
    for index, item in enumerate(items):
        if isinstance(item, dict):
            prune(item, inner, path=f"{path}[{index}]", pruned=pruned)
        elif isinstance(item, list):
            _prune_items(item, inner, path=f"{path}[{index}]", pruned=pruned)


def default(value: JsonValue, kind: TypeNode, old: JsonObject = EMPTY) -> None:
    """Set the defaults of absent fields in place; entries of `old` have theirs."""
    if not isinstance(kind, Structural) or not kind.defaults:
        return
    if isinstance(value, dict):
        for name, field in kind.defaulted.items():
            if field.default is not ABSENT and (name not in value or (value[name] is None and not field.nullable)):
                value[name] = copy(field.default)
            entry = value.get(name)
            was = old.get(name)
            if isinstance(entry, dict | list) and entry is not was:
                default(entry, field, was if isinstance(was, dict) else EMPTY)
        if kind.additional is not None:
            for name, entry in value.items():
                if name not in kind.properties and entry is not old.get(name):
                    if entry is None and kind.additional.default is not ABSENT and not kind.additional.nullable:
                        value[name] = copy(kind.additional.default)
                    default(value[name], kind.additional)
    elif isinstance(value, list) and kind.items is not None:
        for item in value:
            default(item, kind.items)
