# SPDX-License-Identifier: Apache-2.0
"""Custom resource definitions: what they may say. What follows from them is done by `definitions`."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from multikueue.devcluster.apiserver import documents, words
from multikueue.devcluster.apiserver.documents import JsonObject, JsonValue
from multikueue.devcluster.apiserver.errors import Cause
from multikueue.devcluster.apiserver.kinds.behaviour import Behaviour, Occasion

_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_TEXT: Final = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    "'[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_MIXED_TEXT: Final = f"may have mixed case, but should otherwise match: {_LABEL_TEXT}"
_APPROVED: Final = "api-approved.kubernetes.io"
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_SELECTABLE: Final = frozenset({"string", "boolean", "integer"})
_STORED_TEXT: Final = (
    "missing from spec.versions; {0} was previously a storage version, and must remain in spec.versions until a "
    "storage migration ensures no data remains persisted in {0} and removes {0} from status.storedVersions"
)


class DefinitionBehaviour(Behaviour):
    """Custom resource definitions."""

    has_status = True
    generation = True

    def default(self, value: JsonObject) -> None:
        """Fill in what clients may leave out."""
        spec = value.setdefault("spec", {})
        names = spec.setdefault("names", {})
        if isinstance(names, dict) and isinstance(names.get("kind"), str) and names["kind"]:
            names.setdefault("singular", names["kind"].lower())
            names.setdefault("listKind", f"{names['kind']}List")
        conversion = spec.setdefault("conversion", {"strategy": "None"})
        service = documents.child(conversion, "webhook", "clientConfig", "service")
        if service:
            service.setdefault("port", 443)

    def prepare_create(self, value: JsonObject, occasion: Occasion) -> None:
        """A new one is not established."""
        super().prepare_create(value, occasion)
        stored = [entry["name"] for entry in documents.items(value, "spec", "versions") if entry.get("storage")]
        value["status"] = {
            "conditions": None,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": stored[:1] or None,
        }

    def prepare_update(self, value: JsonObject, old: JsonObject, occasion: Occasion) -> None:
        """A version that becomes the stored one is remembered."""
        super().prepare_update(value, old, occasion)
        status = value.get("status")
        if isinstance(status, dict) and occasion.subresource == "":
            stored = list(status.get("storedVersions") or [])
            for entry in documents.items(value, "spec", "versions"):
                if entry.get("storage") and entry["name"] not in stored:
                    value["status"] = {**status, "storedVersions": [*stored, entry["name"]]}

    def validate(self, value: JsonObject, old: JsonObject | None, occasion: Occasion) -> list[Cause]:
        """What is wrong with it, beyond its schemas."""
        found = _stored_problems(value)
        if occasion.subresource == "status":
            return found
        spec = value["spec"]
        if old is None:
            wanted = f"{documents.child(spec, 'names').get('plural', '')}.{spec.get('group', '')}"
            if value["metadata"].get("name") != wanted:
                text = 'must be spec.names.plural+"."+spec.group'
                found.append(words.bad_value("metadata.name", value["metadata"].get("name", ""), text))
        found += _group_problems(value, old)
        found += _name_problems(documents.child(spec, "names"))
        found += _version_problems(spec)
        found += _conversion_problems(documents.child(spec, "conversion"))
        scope = spec.get("scope", "")
        if not scope:
            found.append(words.required("spec.scope"))
        elif scope not in ("Namespaced", "Cluster"):
            found.append(words.unsupported("spec.scope", scope, ["Cluster", "Namespaced"]))
        if spec.get("preserveUnknownFields") and not (old or {}).get("spec", {}).get("preserveUnknownFields"):
            text = (
                "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema "
                "instead"
            )
            found.append(words.bad_value("spec.preserveUnknownFields", True, text))
        return found + (_changes(spec, old["spec"], old) if old is not None else [])

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Created At."""
        return [value["metadata"]["name"], value["metadata"].get("creationTimestamp", "")]


def field(spec: JsonObject, index: int, shared: str, own: str) -> str:
    """Where something of a version is said to be: what all versions share stands beside them."""
    versions = documents.items(spec, "versions")
    name = own.partition(".")[0]
    if all(entry.get(name) == versions[0].get(name) for entry in versions):
        return f"spec.{shared}"
    return f"spec.versions[{index}].{own}"


def _changes(spec: JsonObject, before: JsonObject, old: JsonObject) -> list[Cause]:
    found = [words.immutable(f"spec.{name}", spec.get(name)) for name in ("group",) if spec[name] != before[name]]
    established = any(
        entry.get("type") == "Established" and entry.get("status") == "True"
        for entry in documents.items(old, "status", "conditions")
    )
    if spec["names"].get("plural") != before["names"].get("plural"):
        found.append(words.immutable("spec.names.plural", spec["names"].get("plural")))
    if established:
        if spec.get("scope") != before.get("scope"):
            found.append(words.immutable("spec.scope", spec.get("scope")))
        if spec["names"].get("kind") != before["names"].get("kind"):
            found.append(words.immutable("spec.names.kind", spec["names"].get("kind")))
    return found


def _stored_problems(value: JsonObject) -> list[Cause]:
    versions = documents.items(value, "spec", "versions")
    stored = documents.child(value, "status").get("storedVersions")
    path = "status.storedVersions"
    if not stored:
        return [words.bad_value(path, stored, "must have at least one stored version")]
    known = [entry["name"] for entry in versions]
    found = [
        words.bad_value(f"{path}[{index}]", name, _STORED_TEXT.format(name))
        for index, name in enumerate(stored)
        if name not in known
    ]
    storage = [entry["name"] for entry in versions if entry.get("storage")]
    if storage and storage[-1] not in stored:
        found.append(words.bad_value(path, stored, f"must have the storage version {storage[-1]}"))
    return found


def _group_problems(value: JsonObject, old: JsonObject | None) -> list[Cause]:
    group = value["spec"].get("group", "")
    if not group:
        return [words.required("spec.group")]
    if not words.is_subdomain(group):
        return [words.bad_value("spec.group", group, words.SUBDOMAIN_TEXT)]
    if "." not in group:
        return [words.bad_value("spec.group", group, "should be a domain with at least one dot")]
    annotations = value["metadata"].get("annotations") or {}
    protected = group.endswith((".k8s.io", ".kubernetes.io"))
    if protected and not annotations.get(_APPROVED) and old is None:
        text = (
            f'protected groups must have approval annotation "{_APPROVED}", see '
            "https://github.com/kubernetes/enhancements/pull/1111"
        )
        return [words.required(f"metadata.annotations[{_APPROVED}]", text)]
    return []


def _label(path: str, text: str, detail: str = _LABEL_TEXT) -> list[Cause]:
    shown = text.lower() if detail is _MIXED_TEXT else text
    return [] if _LABEL.fullmatch(shown) and len(text) <= 63 else [words.bad_value(path, text, detail)]


def _name_problems(names: JsonObject) -> list[Cause]:
    found = []
    for name, detail in (
        ("plural", _LABEL_TEXT),
        ("singular", _LABEL_TEXT),
        ("kind", _MIXED_TEXT),
        ("listKind", _MIXED_TEXT),
    ):
        path, text = f"spec.names.{name}", names.get(name, "")
        found += _label(path, text, detail) if text else [words.required(path)]
    for name in ("shortNames", "categories"):
        for index, text in enumerate(names.get(name) or ()):
            found += _label(f"spec.names.{name}[{index}]", text)
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        text = "kind and listKind may not be the same"
        found.append(words.bad_value("spec.names.listKind", names["listKind"], text))
    return found


def _version_problems(spec: JsonObject) -> list[Cause]:
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
        found.append(words.bad_value("spec.versions", shown, text))
    if len(set(names)) != len(names):
        found.append(words.bad_value("spec.versions", shown, "must contain unique version names"))
    for index, entry in enumerate(versions):
        found += _label(f"spec.versions[{index}].name", names[index])
        if index == 0:
            found += _label("spec.version", names[0])
        if not isinstance(documents.child(entry, "schema").get("openAPIV3Schema"), dict):
            found.append(words.required(f"spec.versions[{index}].schema.openAPIV3Schema"))
        found += _column_problems(spec, index, entry)
        found += _selectable_problems(spec, index, entry)
        scale = documents.child(entry, "subresources").get("scale")
        if scale is not None:
            path = field(spec, index, "subresources.scale", "subresources.scale")
            wanted = ("specReplicasPath", "statusReplicasPath")
            found += [words.required(f"{path}.{name}") for name in wanted if not scale.get(name)]
    return list(dict.fromkeys(found))


def _column_problems(spec: JsonObject, index: int, entry: JsonObject) -> list[Cause]:
    found = []
    for number, column in enumerate(documents.items(entry, "additionalPrinterColumns")):
        path = f"{field(spec, index, 'additionalPrinterColumns', 'additionalPrinterColumns')}[{number}]"
        if not column.get("name"):
            found.append(words.required(f"{path}.name"))
        kind, where = column.get("type", ""), column.get("jsonPath", "")
        if not kind:
            allowed = ",".join(_COLUMN_TYPES)
            found.append(words.required(f"{path}.type", f"must be one of {allowed}"))
        elif kind not in _COLUMN_TYPES:
            found.append(words.bad_value(f"{path}.type", kind, f"must be one of {','.join(_COLUMN_TYPES)}"))
        if not where:
            found.append(words.required(f"{path}.JSONPath"))
        elif not where.startswith("."):
            found.append(words.bad_value(f"{path}.JSONPath", where, "must be a simple json path starting with ."))
    return found


def _selectable_problems(spec: JsonObject, index: int, entry: JsonObject) -> list[Cause]:
    found = []
    seen = set()
    for number, selectable in enumerate(documents.items(entry, "selectableFields")):
        path = f"{field(spec, index, 'selectableFields', 'selectableFields')}[{number}].jsonPath"
        where = selectable.get("jsonPath", "")
        schema: JsonObject | None = documents.child(entry, "schema", "openAPIV3Schema")
        for name in where.strip(".").split("."):
            schema = ((schema or {}).get("properties") or {}).get(name)
        if where in seen:
            found.append(Cause("FieldValueDuplicate", f'Duplicate value: "{where}"', path))
        elif schema is None:
            found.append(words.bad_value(path, where, "is an invalid path: does not refer to a valid field"))
        elif schema.get("type") not in _SELECTABLE:
            text = (
                "must point to a field of type string, boolean or integer. Enum string fields and strings with formats "
                "are allowed."
            )
            found.append(words.bad_value(path, where, text))
        seen.add(where)
    return found


def _conversion_problems(conversion: JsonObject) -> list[Cause]:
    strategy, webhook = conversion.get("strategy", "None"), conversion.get("webhook")
    path = "spec.conversion"
    if strategy == "None":
        if webhook is not None:
            text = "should not be set when strategy is not set to Webhook"
            return [words.forbidden(f"{path}.webhookClientConfig", text)]
        return []
    if strategy != "Webhook":
        return [words.unsupported(f"{path}.strategy", strategy, ["None", "Webhook"])]
    found = []
    webhook = webhook if isinstance(webhook, dict) else {}
    client = webhook.get("clientConfig")
    if not isinstance(client, dict):
        found.append(words.required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook"))
    else:
        url = client.get("url")
        if url is not None and not url.startswith("https://"):
            scheme = url.partition("://")[0]
            text = "'https' is the only allowed URL scheme; desired format: https://host[/path]"
            found.append(words.bad_value(f"{path}.webhookClientConfig.url", scheme, text))
    versions = webhook.get("conversionReviewVersions") or []
    if not versions:
        found.append(words.required(f"{path}.conversionReviewVersions"))
    elif not {"v1", "v1beta1"} & set(versions):
        text = "must include at least one of v1, v1beta1"
        found.append(words.bad_value(f"{path}.conversionReviewVersions", versions, text))
    return found
