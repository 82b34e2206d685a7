# SPDX-License-Identifier: Apache-2.0
"""Validation and defaults of custom resource definitions. What they define is served by `registry.definitions`."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds.behaviour import KindBehaviour, RequestContext

_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_MIXED_TEXT: Final = f"may have mixed case, but should otherwise match: {field_errors.DNS_1035_TEXT}"
_APPROVED: Final = "api-approved.kubernetes.io"
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_SELECTABLE: Final = frozenset({"string", "boolean", "integer"})
_STORED_TEXT: Final = (
    "missing from spec.versions; {0} was previously a storage version, and must remain in spec.versions until a "
    "storage migration ensures no data remains persisted in {0} and removes {0} from status.storedVersions"
)


class DefinitionBehaviour(KindBehaviour):
    """Custom resource definitions."""

    has_status = True
    generation = True

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        spec = value.setdefault("spec", {})
        names = spec.setdefault("names", {})
        if isinstance(names, dict) and isinstance(names.get("kind"), str) and names["kind"]:
            names.setdefault("singular", names["kind"].lower())
            names.setdefault("listKind", f"{names['kind']}List")
        conversion = spec.setdefault("conversion", {"strategy": "None"})
        service = documents.child(conversion, "webhook", "clientConfig", "service")
        if service:
            service.setdefault("port", 443)

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Set the status of a new one, which is not established."""
        super().prepare_create(value, request_context)
        stored = [entry["name"] for entry in documents.items(value, "spec", "versions") if entry.get("storage")]
        value["status"] = {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": stored[:1] or None,
        }

    def prepare_update(self, value: JsonObject, old: JsonObject, request_context: RequestContext) -> None:
        """Add a new storage version to `status.storedVersions`."""
        super().prepare_update(value, old, request_context)
        status = value.get("status")
        if isinstance(status, dict) and request_context.subresource == "":
            stored = list(status.get("storedVersions") or [])
            for entry in documents.items(value, "spec", "versions"):
                if entry.get("storage") and entry["name"] not in stored:
                    value["status"] = {**status, "storedVersions": [*stored, entry["name"]]}

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the definition, beyond its schemas."""
        found = _stored_problems(value)
        if request_context.subresource == "status":
            return found
        spec = value["spec"]
        if old is None:
            wanted = f"{documents.child(spec, 'names').get('plural', '')}.{spec.get('group', '')}"
            if value["metadata"].get("name") != wanted:
                text = 'must be spec.names.plural+"."+spec.group'
                found.append(field_errors.invalid("metadata.name", value["metadata"].get("name", ""), text))
        found += _group_problems(value, old)
        found += _name_problems(documents.child(spec, "names"))
        found += _version_problems(spec)
        found += _conversion_problems(documents.child(spec, "conversion"))
        scope = spec.get("scope", "")
        if not scope:
            found.append(field_errors.required("spec.scope"))
        elif scope not in ("Namespaced", "Cluster"):
            found.append(field_errors.not_supported("spec.scope", scope, ["Cluster", "Namespaced"]))
        if spec.get("preserveUnknownFields") and not (old or {}).get("spec", {}).get("preserveUnknownFields"):
            text = (
                "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema "
                "instead"
            )
            found.append(field_errors.invalid("spec.preserveUnknownFields", True, text))
        return found + (_changes(spec, old["spec"], old) if old is not None else [])

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Created At."""
        return [value["metadata"]["name"], value["metadata"].get("creationTimestamp", "")]


def _is_shared(spec: JsonObject, name: str) -> bool:
    """Whether all versions have the same value of this field, which the server then keeps once for all."""
    versions = documents.items(spec, "versions")
    return all(entry.get(name) == versions[0].get(name) for entry in versions)


def field(spec: JsonObject, index: int, shared: str, own: str) -> str:
    """The path of a field of a version; the field that all versions share has a path of its own."""
    if _is_shared(spec, own.partition(".")[0]):
        return f"spec.{shared}"
    return f"spec.versions[{index}].{own}"


def _changes(spec: JsonObject, before: JsonObject, old: JsonObject) -> list[StatusCause]:
    found = [
        field_errors.immutable(f"spec.{name}", spec.get(name)) for name in ("group",) if spec[name] != before[name]
    ]
    established = any(
        entry.get("type") == "Established" and entry.get("status") == "True"
        for entry in documents.items(old, "status", "conditions")
    )
    if spec["names"].get("plural") != before["names"].get("plural"):
        found.append(field_errors.immutable("spec.names.plural", spec["names"].get("plural")))
    if established:
        if spec.get("scope") != before.get("scope"):
            found.append(field_errors.immutable("spec.scope", spec.get("scope")))
        if spec["names"].get("kind") != before["names"].get("kind"):
            found.append(field_errors.immutable("spec.names.kind", spec["names"].get("kind")))
    return found


def _stored_problems(value: JsonObject) -> list[StatusCause]:
    versions = documents.items(value, "spec", "versions")
    stored = documents.child(value, "status").get("storedVersions")
    path = "status.storedVersions"
    if not stored:
        return [field_errors.invalid(path, stored, "must have at least one stored version")]
    known = [entry["name"] for entry in versions]
    found = [
        field_errors.invalid(f"{path}[{index}]", name, _STORED_TEXT.format(name))
        for index, name in enumerate(stored)
        if name not in known
    ]
    storage = [entry["name"] for entry in versions if entry.get("storage")]
    if storage and storage[-1] not in stored:
        found.append(field_errors.invalid(path, stored, f"must have the storage version {storage[-1]}"))
    return found


def _group_problems(value: JsonObject, old: JsonObject | None) -> list[StatusCause]:
    group = value["spec"].get("group", "")
    if not group:
        return [field_errors.required("spec.group")]
    if not field_errors.is_subdomain(group):
        return [field_errors.invalid("spec.group", group, field_errors.SUBDOMAIN_TEXT)]
    if "." not in group:
        return [field_errors.invalid("spec.group", group, "should be a domain with at least one dot")]
    annotations = value["metadata"].get("annotations") or {}
    protected = group.endswith((".k8s.io", ".kubernetes.io"))
    if protected and not annotations.get(_APPROVED) and old is None:
        text = (
            f'protected groups must have approval annotation "{_APPROVED}", see '
            "https://github.com/kubernetes/enhancements/pull/1111"
        )
        return [field_errors.required(f"metadata.annotations[{_APPROVED}]", text)]
    return []


def _label(path: str, text: str, detail: str = field_errors.DNS_1035_TEXT) -> list[StatusCause]:
    shown = text.lower() if detail is _MIXED_TEXT else text
    return [] if _LABEL.fullmatch(shown) and len(text) <= 63 else [field_errors.invalid(path, text, detail)]


def _name_problems(names: JsonObject) -> list[StatusCause]:
    found = []
    for name, detail in (
        ("plural", field_errors.DNS_1035_TEXT),
        ("singular", field_errors.DNS_1035_TEXT),
        ("kind", _MIXED_TEXT),
        ("listKind", _MIXED_TEXT),
    ):
        path, text = f"spec.names.{name}", names.get(name, "")
        found += _label(path, text, detail) if text else [field_errors.required(path)]
    for name in ("shortNames", "categories"):
        for index, text in enumerate(names.get(name) or ()):
            found += _label(f"spec.names.{name}[{index}]", text)
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        text = "kind and listKind may not be the same"
        found.append(field_errors.invalid("spec.names.listKind", names["listKind"], text))
    return found


def _version_problems(spec: JsonObject) -> list[StatusCause]:
    versions = documents.items(spec, "versions")
    found = []
    names = [entry.get("name", "") for entry in versions]
    shown = [
        {
            "Name": entry.get("name", ""),
            "Served": bool(entry.get("served")),
            "Storage": bool(entry.get("storage")),
            "Deprecated": bool(entry.get("deprecated")),
            "DeprecationWarning": entry.get("deprecationWarning"),
            "Schema": None,
            "Subresources": None,
            "AdditionalPrinterColumns": None,
            "SelectableFields": None,
        }
        for entry in versions
    ]
    if sum(1 for entry in versions if entry.get("storage")) != 1:
        text = "must have exactly one version marked as storage version"
        found.append(field_errors.invalid("spec.versions", shown, text))
    if len(set(names)) != len(names):
        found.append(field_errors.invalid("spec.versions", shown, "must contain unique version names"))
    for index, entry in enumerate(versions):
        found += _label(f"spec.versions[{index}].name", names[index])
        if index == 0:
            found += _label("spec.version", names[0])
        if not isinstance(documents.child(entry, "schema").get("openAPIV3Schema"), dict):
            found.append(field_errors.required(f"spec.versions[{index}].schema.openAPIV3Schema"))
        found += _column_problems(spec, index, entry)
        found += _selectable_problems(spec, index, entry)
        scale = documents.child(entry, "subresources").get("scale")
        if scale is not None:
            path = field(spec, index, "subresources.scale", "subresources.scale")
            wanted = ("specReplicasPath", "statusReplicasPath")
            found += [field_errors.required(f"{path}.{name}") for name in wanted if not scale.get(name)]
    return list(dict.fromkeys(found))


def _column_problems(spec: JsonObject, index: int, entry: JsonObject) -> list[StatusCause]:
    found = []
    for number, column in enumerate(documents.items(entry, "additionalPrinterColumns")):
        path = f"{field(spec, index, 'additionalPrinterColumns', 'additionalPrinterColumns')}[{number}]"
        if not column.get("name"):
            found.append(field_errors.required(f"{path}.name"))
        kind, where = column.get("type", ""), column.get("jsonPath", "")
        if not kind:
            allowed = ",".join(_COLUMN_TYPES)
            found.append(field_errors.required(f"{path}.type", f"must be one of {allowed}"))
        elif kind not in _COLUMN_TYPES:
            found.append(field_errors.invalid(f"{path}.type", kind, f"must be one of {','.join(_COLUMN_TYPES)}"))
        if not where:
            found.append(field_errors.required(f"{path}.JSONPath"))
        elif not where.startswith("."):
            found.append(field_errors.invalid(f"{path}.JSONPath", where, "must be a simple json path starting with ."))
    return found


def _selectable_problems(spec: JsonObject, index: int, entry: JsonObject) -> list[StatusCause]:
    found: list[StatusCause] = []
    fields = documents.items(entry, "selectableFields")
    base = field(spec, index, "selectableFields", "selectableFields")
    if fields and _is_shared(spec, "schema") and not _is_shared(spec, "selectableFields"):
        # What the server means: a version has no schema left beside them.
        text = "may only be set when `version.schema.openAPIV3Schema` is not included"
        return [field_errors.invalid(base, "", text)]
    seen = set()
    for number, selectable in enumerate(fields):
        path = f"{base}[{number}].jsonPath"
        where = selectable.get("jsonPath", "")
        schema: JsonObject | None = documents.child(entry, "schema", "openAPIV3Schema")
        for name in where.strip(".").split("."):
            schema = ((schema or {}).get("properties") or {}).get(name)
        if where in seen:
            found.append(field_errors.duplicate(path, where))
        elif schema is None:
            found.append(field_errors.invalid(path, where, "is an invalid path: does not refer to a valid field"))
        elif schema.get("type") not in _SELECTABLE:
            text = (
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats "
                "are allowed."
            )
            found.append(field_errors.invalid(path, where, text))
        seen.add(where)
    return found


def _conversion_problems(conversion: JsonObject) -> list[StatusCause]:
    strategy, webhook = conversion.get("strategy", "None"), conversion.get("webhook")
    path = "spec.conversion"
    if strategy == "None":
        if webhook is not None:
            text = "should not be set when strategy is not set to Webhook"
            return [field_errors.forbidden(f"{path}.webhookClientConfig", text)]
        return []
    if strategy != "Webhook":
        return [field_errors.not_supported(f"{path}.strategy", strategy, ["None", "Webhook"])]
    found = []
    webhook = webhook if isinstance(webhook, dict) else {}
    client = webhook.get("clientConfig")
    if not isinstance(client, dict):
        found.append(field_errors.required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook"))
    else:
        url = client.get("url")
        if url is not None and not url.startswith("https://"):
            scheme = url.partition("://")[0]
            text = "'https' is the only allowed URL scheme; desired format: https://host[/path]"
            found.append(field_errors.invalid(f"{path}.webhookClientConfig.url", scheme, text))
    versions = webhook.get("conversionReviewVersions") or []
    if not versions:
        found.append(field_errors.required(f"{path}.conversionReviewVersions"))
    elif not {"v1", "v1beta1"} & set(versions):
        text = "must include at least one of v1, v1beta1"
        found.append(field_errors.invalid(f"{path}.conversionReviewVersions", versions, text))
    return found
