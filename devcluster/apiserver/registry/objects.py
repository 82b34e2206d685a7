# SPDX-License-Identifier: Apache-2.0
"""The metadata of objects: what the server sets, what an update may not change, and its validation."""

from __future__ import annotations

import random
from typing import Final
from uuid import UUID

from devcluster.apiserver import errors, field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.registry.resources import ResourceType
from devcluster.apiserver.schema import builtin, structural

_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
_MAX_GENERATED: Final = 63 - 5
_MAX_ANNOTATIONS: Final = 256 * 1024
_MAX_MANAGER: Final = 128
_LABEL_NAMED: Final = frozenset({"namespaces", "services"})
_SEGMENT_NAMED: Final = frozenset({"rbac.authorization.k8s.io", "apiregistration.k8s.io"})
"""The groups whose objects may have any name that a path can hold."""
_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
_IMMUTABLE: Final = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def default(value: JsonObject, kind: ResourceType, old: JsonObject = documents.EMPTY) -> None:
    """Set the defaults in place; parts shared with `old` have theirs."""
    if kind.custom:
        structural.default(value, kind.node, old)
    else:
        kind.behaviour.default(value)
        builtin.fill_zero(kind.node, value)


def begin(value: JsonObject, *, kind: ResourceType, namespace: str, now: str, rng: random.Random) -> None:
    """Set the metadata of a new object. Raises `StatusError`."""
    metadata = value["metadata"]
    if kind.namespaced:
        given = metadata.get("namespace")
        if given and given != namespace:
            raise errors.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "creationTimestamp", "uid"):
        metadata.pop(name, None)
    if not metadata.get("name"):
        generate = metadata.get("generateName")
        if generate:
            metadata["name"] = generate[:_MAX_GENERATED] + "".join(rng.choices(_SUFFIX, k=5))
    metadata["uid"] = new_uid(rng)
    metadata["creationTimestamp"] = now


def new_uid(rng: random.Random) -> str:
    """A version 4 UUID."""
    return str(UUID(int=rng.getrandbits(128), version=4))


def ordered(metadata: JsonObject) -> JsonObject:
    """The metadata in a readable order: name first, bookkeeping last."""
    found: JsonObject = {name: metadata[name] for name in _ORDER if name in metadata}
    found.update(metadata)
    fields = found.pop("managedFields", None)
    if fields:
        found["managedFields"] = fields
    return found


_ORDER: Final = ("name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp")


def problems(value: JsonObject, *, kind: ResourceType, old: JsonObject | None = None) -> list[StatusCause]:
    """The problems of the metadata, and of the types in a custom resource's metadata."""
    metadata = value["metadata"]
    found: list[StatusCause] = []
    if kind.custom:
        for name, wanted in (("apiVersion", kind.api_version), ("kind", kind.kind)):
            if value.get(name) != wanted:
                found.append(field_errors.invalid(name, value.get(name), f"must be {wanted}"))
    before = old["metadata"] if old is not None else documents.EMPTY
    if old is None:
        found += _name_problems(metadata, kind)
    else:
        for name in _IMMUTABLE:
            if metadata.get(name) != before.get(name):
                found.append(field_errors.immutable(f"metadata.{name}", metadata.get(name, "")))
    if metadata.get("labels") != before.get("labels"):
        found += field_errors.label_problems("metadata.labels", metadata.get("labels"))
    annotations = metadata.get("annotations")
    if annotations != before.get("annotations") and annotations:
        for key in annotations:
            found += field_errors.key_problems("metadata.annotations", key.lower(), shown=key)
        if sum(len(key) + len(entry) for key, entry in annotations.items()) > _MAX_ANNOTATIONS:
            text = f"Too long: may not be more than {_MAX_ANNOTATIONS} bytes"
            found.append(StatusCause("FieldValueTooLong", text, "metadata.annotations"))
    if metadata.get("ownerReferences") != before.get("ownerReferences"):
        found += _owner_problems(metadata.get("ownerReferences"))
    for index, entry in enumerate(metadata.get("managedFields") or ()):
        if len(entry.get("manager", "")) > _MAX_MANAGER:
            text = f"Too long: may not be more than {_MAX_MANAGER} bytes"
            found.append(StatusCause("FieldValueTooLong", text, f"metadata.managedFields[{index}].manager"))
    if metadata.get("finalizers") != before.get("finalizers"):
        found += _finalizer_problems(metadata, before, kind)
    return found


def about_given(value: JsonObject, name: str) -> errors.About:
    """The object, by the type that it gives itself."""
    group = value["apiVersion"].rpartition("/")[0]
    # Events are validated in the older of their two forms.
    return errors.About(name, "" if group == "events.k8s.io" else group, value["kind"])


def advice(value: JsonObject, kind: ResourceType) -> list[str]:
    """Warnings: what is valid but not recommended."""
    if not kind.custom:
        return []
    return [
        f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name to avoid accidental conflicts with '
        "other finalizer writers"
        for name in value["metadata"].get("finalizers") or ()
        if name and "/" not in name and name not in _STANDARD_FINALIZERS
    ]


def _name_problems(metadata: JsonObject, kind: ResourceType) -> list[StatusCause]:
    name = metadata.get("name")
    if not name:
        return [field_errors.required("metadata.name", "name or generateName is required")]
    if kind.group in _SEGMENT_NAMED:
        if "/" in name or "%" in name or name in (".", ".."):
            return [field_errors.invalid("metadata.name", name, "may not contain '/'")]
        return []
    if kind.plural == "ipaddresses" and not kind.custom:
        return field_errors.address_problems("metadata.name", name)
    found = []
    label = kind.plural in _LABEL_NAMED
    prefix = metadata.get("generateName")
    if prefix:
        # The server adds a suffix, so the prefix may end with a dash.
        masked = f"{prefix[:-1]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix
        found += field_errors.name_problems("metadata.generateName", masked, label=label, shown=prefix)
    return found + field_errors.name_problems("metadata.name", name, label=label)


def _owner_problems(references: JsonValue) -> list[StatusCause]:
    found = []
    controller = ""
    for reference in references or ():
        where = "metadata.ownerReferences"
        group_version = reference.get("apiVersion", "")
        if not group_version or group_version.count("/") > 1 or group_version.endswith("/"):
            found.append(field_errors.invalid(f"{where}.apiVersion", group_version, "version must not be empty"))
        for name in ("kind", "name", "uid"):
            if not reference.get(name):
                found.append(field_errors.invalid(f"{where}.{name}", reference.get(name, ""), "must not be empty"))
        if group_version == "v1" and reference.get("kind") == "Event":
            detail = "/v1, Kind=Event is disallowed from being an owner"
            found.append(field_errors.invalid(where, reference, detail))
        if reference.get("controller"):
            named = f"{reference.get('kind', '')}/{reference.get('name', '')}"
            if controller:
                detail = (
                    'Only one reference can have Controller set to true. Found "true" in references for '
                    f"{controller} and {named}"
                )
                found.append(field_errors.invalid(where, references, detail))
            else:
                controller = named
    return found


def _finalizer_problems(metadata: JsonObject, before: JsonObject, kind: ResourceType) -> list[StatusCause]:
    found = []
    # A null entry counts as empty text, as in a typed decoder.
    finalizers = ["" if name is None else name for name in metadata.get("finalizers") or []]
    for name in finalizers:
        found += field_errors.key_problems("metadata.finalizers", name)
    if not kind.custom:
        for index, name in enumerate(finalizers):
            if "/" not in name and name not in _STANDARD_FINALIZERS:
                detail = "name is neither a standard finalizer name nor is it fully qualified"
                found.append(field_errors.invalid(f"metadata.finalizers[{index}]", name, detail))
    if before.get("deletionTimestamp"):
        added = [name for name in finalizers if name not in (before.get("finalizers") or [])]
        if added:
            listed = ", ".join(f'"{name}"' for name in added)
            detail = (
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                f"[]string{{{listed}}}"
            )
            found.append(field_errors.forbidden("metadata.finalizers", detail))
    return found


def carry(value: JsonObject, old: JsonObject) -> None:
    """Copy from the old object what an update leaves out or cannot change."""
    metadata, before = value["metadata"], old["metadata"]
    for name in ("uid", "namespace", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if not metadata.get(name) and name in before:
            metadata[name] = before[name]
    for name in ("creationTimestamp", "generation"):
        if name in before:
            metadata[name] = before[name]
        else:
            metadata.pop(name, None)
    metadata.pop("selfLink", None)
