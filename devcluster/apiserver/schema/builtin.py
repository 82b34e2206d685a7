# SPDX-License-Identifier: Apache-2.0
"""The types of the built-in kinds, read from the table of definitions.

Makes nodes of OpenAPI v3 definitions (lazily, since some contain themselves), and sets the zero values that a real
server always writes: a nested struct as `{}`, a required list as null.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final, cast

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.schema.node import ABSENT, TypeNode

_REFERENCE: Final = "#/components/schemas/"
_UNTYPED: Final = frozenset(
    {
        "io.k8s.apimachinery.pkg.runtime.RawExtension",
        "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray",
    }
)
# Required lists that a struct leaves out while they are empty.
_OMITTED: Final = frozenset(
    {("io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicyBindingSpec", "validationActions")}
)
# Defaults of list keys, which OpenAPI does not tell from zero values.
_KEY_DEFAULTS: Final = {"protocol": "TCP"}


@cache
def table(name: str) -> JsonValue:
    """A table of `data/`; must not be changed."""
    return documents.load((resources.files("devcluster.apiserver") / "data" / name).read_bytes())


def definitions() -> JsonObject:
    """Every definition by its name."""
    return cast(JsonObject, table("definitions.json"))


@cache
def omitted_fields(definition: str) -> frozenset[str]:
    """The fields of a definition's Go struct that are not shown if they are zero; those that are pointers are."""
    package = definition.removeprefix("io.k8s.")
    for module in ("apiextensions-apiserver", "kube-aggregator"):
        package = package.replace(module, module.replace("-", "_"))
    return _omitted(f"k8s.io.{package}")


def _omitted(message: str) -> frozenset[str]:
    found: set[str] = set()
    for _, name, kind, _, shown in table("protobuf.json").get(message, ()):
        if shown == "inline":
            found |= _omitted(kind)
        elif shown == "drop":
            found.add(name)
    return frozenset(found)


@cache
def definition_of(group: str, version: str, kind: str) -> str | None:
    """The name of a kind's definition."""
    return _by_kind().get((group, version, kind))


@cache
def _by_kind() -> dict[tuple[str, str, str], str]:
    found = {}
    for name, schema in definitions().items():
        for entry in schema.get("x-kubernetes-group-version-kind", []):
            found[entry["group"], entry["version"], entry["kind"]] = name
    return found


_nodes: dict[str, TypeNode] = {}


def node(name: str) -> TypeNode:
    """The type of a definition."""
    found = _nodes.get(name)
    if found is None:
        found = _nodes[name] = TypeNode()
        found.name = name
        _fill(found, definitions()[name])
        if name in _UNTYPED:
            found.preserve = True
            found.atomic = name == "io.k8s.apimachinery.pkg.runtime.RawExtension"
    return found


def _fill(found: TypeNode, schema: JsonObject) -> None:
    found.source = schema
    found.type = schema.get("type", "")
    found.format = schema.get("format", "")
    if "default" in schema:
        found.default = schema["default"]
    found.required = frozenset(schema.get("required", ()))
    for name, child in schema.get("properties", {}).items():
        found.properties[name] = _of(child)
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        found.additional = _of(extra)
    if "items" in schema:
        found.items = _of(schema["items"])
    if found.format == "int-or-string":
        found.int_or_string = True
    if found.type == "object" and not found.properties and found.additional is None:
        found.preserve = True
    found.atomic = schema.get("x-kubernetes-map-type") == "atomic"
    found.list_type = schema.get("x-kubernetes-list-type", "atomic")
    found.keys = tuple(schema.get("x-kubernetes-list-map-keys", ()))
    strategies = schema.get("x-kubernetes-patch-strategy", "").split(",")
    found.merges = "merge" in strategies
    found.replaces_keys = "retainKeys" in strategies
    found.merge_key = schema.get("x-kubernetes-patch-merge-key", "")
    if found.list_type == "map" and found.items is not None:
        for key in found.keys:
            if key in _KEY_DEFAULTS and key in found.items.properties:
                field = found.items.properties[key]
                if field.default is ABSENT:
                    field.default = _KEY_DEFAULTS[key]


def _of(schema: JsonObject) -> TypeNode:
    reference = schema.get("$ref")
    if reference is None and len(schema.get("allOf", ())) == 1:
        reference = schema["allOf"][0].get("$ref")
    if reference is None:
        found = TypeNode()
        _fill(found, schema)
        return found
    target = node(reference.removeprefix(_REFERENCE))
    own = {key for key in schema if key.startswith("x-kubernetes")} | ({"default"} & schema.keys())
    if not own:
        return target
    return _Use(target, schema)


class _Use(TypeNode):
    """A definition as one field uses it, with the default and merge rules of that field."""

    __slots__ = ("_target",)

    def __init__(self, target: TypeNode, schema: JsonObject) -> None:
        super().__init__()
        self._target = target
        # The containers are shared, so a definition that is still being read is complete when it is used.
        self.name = target.name
        self.properties = target.properties
        self.source = target.source
        self.type = target.type
        self.format = target.format
        self.additional = target.additional
        self.items = target.items
        self.required = target.required
        self.preserve = target.preserve
        self.int_or_string = target.int_or_string
        self.keys = target.keys
        self.list_type = target.list_type
        self.merges = "merge" in schema.get("x-kubernetes-patch-strategy", "").split(",")
        self.replaces_keys = "retainKeys" in schema.get("x-kubernetes-patch-strategy", "").split(",")
        self.atomic = schema.get("x-kubernetes-map-type", "atomic" if target.atomic else "") == "atomic"
        if "default" in schema:
            self.default = schema["default"]


_EMPTY_TEXTS: Final = {"io.k8s.api.core.v1.Event": ("reportingComponent", "reportingInstance")}
_TIMES: Final = ("v1.Time", "v1.MicroTime")


@cache
def _null_times() -> dict[str, tuple[str, ...]]:
    """The times that structs write as null if unset, by definition; OpenAPI does not have them."""
    found: dict[str, tuple[str, ...]] = {
        "io.k8s.api.core.v1.Event": ("eventTime", "firstTimestamp", "lastTimestamp"),
        "io.k8s.api.events.v1.Event": ("eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"),
    }
    for name, schema in definitions().items():
        if name.endswith("Condition") or ".ContainerState" in name:
            times = tuple(
                field
                for field, child in schema.get("properties", {}).items()
                if any(entry.get("$ref", "").endswith(_TIMES) for entry in child.get("allOf", ()))
            )
            if times:
                found[name] = times
    return found


@cache
def _always(kind: TypeNode) -> tuple[tuple[str, TypeNode], ...]:
    """The fields that a struct writes even if they are not set, with their types."""
    found = []
    for name, field in kind.properties.items():
        if isinstance(field.default, dict):
            is_written = bool(field.properties)
        else:
            has_zero = field.default is not ABSENT or field.type == "array"
            is_map = field.type == "object" and field.additional is not None
            is_written = name in kind.required and name not in ("apiVersion", "kind") and (has_zero or is_map)
        if is_written and (kind.name, name) not in _OMITTED:
            found.append((name, field))
    return tuple(found)


def _zero(field: TypeNode) -> JsonValue:
    return None if field.default is ABSENT else field.default


def fill_zero(kind: TypeNode, value: JsonObject) -> JsonObject:
    """Add the fields that a struct always writes, in place; returns the same object."""
    properties = kind.properties
    for name, entry in value.items():
        if isinstance(entry, dict):
            field = properties.get(name)
            if field is None:
                continue
            if field.properties:
                fill_zero(field, entry)
            elif field.additional is not None and field.additional.properties:
                for inner in entry.values():
                    if isinstance(inner, dict):
                        fill_zero(field.additional, inner)
        elif isinstance(entry, list):
            field = properties.get(name)
            if field is not None and field.items is not None and field.items.properties:
                for inner in entry:
                    if isinstance(inner, dict):
                        fill_zero(field.items, inner)
        elif entry is None and name in properties and isinstance(properties[name].default, dict):
            value[name] = fill_zero(properties[name], {})
    for name, field in _always(kind):
        if name not in value:
            value[name] = fill_zero(field, {}) if isinstance(field.default, dict) else _zero(field)
    for name in _null_times().get(kind.name, ()):
        value.setdefault(name, None)
    for name in _EMPTY_TEXTS.get(kind.name, ()):
        value.setdefault(name, "")
    return value
