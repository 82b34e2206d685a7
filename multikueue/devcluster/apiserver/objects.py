# SPDX-License-Identifier: Apache-2.0
"""The metadata that every object has.

Owns what the server sets in it, what an update may not change, and its rules on create and update.
"""

from __future__ import annotations

import random
from typing import Final
from uuid import UUID

from multikueue.devcluster.apiserver import documents, errors, words
from multikueue.devcluster.apiserver.documents import JsonObject, JsonValue
from multikueue.devcluster.apiserver.errors import Cause
from multikueue.devcluster.apiserver.resources import ResourceType
from multikueue.devcluster.apiserver.schema import builtin, structural

_SUFFIX: Final = "bcdfghjklmnpqrstvwxz2456789"
_MAX_GENERATED: Final = 63 - 5
_MAX_ANNOTATIONS: Final = 256 * 1024
_MAX_MANAGER: Final = 128
_LABEL_NAMED: Final = frozenset({"namespaces", "services"})
_SEGMENT_NAMED: Final = frozenset({"rbac.authorization.k8s.io", "apiregistration.k8s.io"})
"""The groups whose objects may be called anything that can stand in a path."""
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
    """Fill in place what clients may leave out; what `old` shares with it has been filled."""
    if kind.custom:
        structural.default(value, kind.node, old)
    else:
        kind.behaviour.default(value)
        builtin.fill_zero(kind.node, value)


def begin(value: JsonObject, *, kind: ResourceType, namespace: str, now: str, rng: random.Random) -> None:
    """The metadata of a new object. Raises `StatusError`."""
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
    if metadata.pop("resourceVersion", None):
        raise errors.StatusError(500, "", "resourceVersion should not be set on objects to be created")
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
    """The metadata as the next reader likes it: name first, bookkeeping last."""
    found: JsonObject = {name: metadata[name] for name in _ORDER if name in metadata}
    found.update(metadata)
    fields = found.pop("managedFields", None)
    if fields:
        found["managedFields"] = fields
    return found


_ORDER: Final = ("name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp")


def problems(value: JsonObject, *, kind: ResourceType, old: JsonObject | None = None) -> list[Cause]:
    """What is wrong with the metadata, and with the type of a custom resource."""
    metadata = value["metadata"]
    found: list[Cause] = []
    if kind.custom:
        for name, wanted in (("apiVersion", kind.api_version), ("kind", kind.kind)):
            if value.get(name) != wanted:
                found.append(words.bad_value(name, value.get(name), f"must be {wanted}"))
    before = old["metadata"] if old is not None else documents.EMPTY
    if old is None:
        found += _name_problems(metadata, kind)
    else:
        for name in _IMMUTABLE:
            if metadata.get(name) != before.get(name):
                found.append(words.immutable(f"metadata.{name}", metadata.get(name, "")))
    if metadata.get("labels") != before.get("labels"):
        found += words.label_problems("metadata.labels", metadata.get("labels"))
    annotations = metadata.get("annotations")
    if annotations != before.get("annotations") and annotations:
        for key in annotations:
            found += words.key_problems("metadata.annotations", key.lower(), shown=key)
        if sum(len(key) + len(entry) for key, entry in annotations.items()) > _MAX_ANNOTATIONS:
            text = f"Too long: may not be more than {_MAX_ANNOTATIONS} bytes"
            found.append(Cause("FieldValueTooLong", text, "metadata.annotations"))
    if metadata.get("ownerReferences") != before.get("ownerReferences"):
        found += _owner_problems(metadata.get("ownerReferences"))
    for index, entry in enumerate(metadata.get("managedFields") or ()):
        if len(entry.get("manager", "")) > _MAX_MANAGER:
            text = f"Too long: may not be more than {_MAX_MANAGER} bytes"
            found.append(Cause("FieldValueTooLong", text, f"metadata.managedFields[{index}].manager"))
    if metadata.get("finalizers") != before.get("finalizers"):
        found += _finalizer_problems(metadata, before, kind)
    return found


def about_given(value: JsonObject, name: str) -> errors.About:
    """An object of the type that it says it is."""
    group = value["apiVersion"].rpartition("/")[0]
    # Events are validated in their older form, whichever they came in.
    return errors.About(name, "" if group == "events.k8s.io" else group, value["kind"])


def advice(value: JsonObject, kind: ResourceType) -> list[str]:
    """What is right, but not wise."""
    if not kind.custom:
        return []
    return [
        f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name to avoid accidental conflicts with '
        "other finalizer writers"
        for name in value["metadata"].get("finalizers") or ()
        if name and "/" not in name and name not in _STANDARD_FINALIZERS
    ]


def _name_problems(metadata: JsonObject, kind: ResourceType) -> list[Cause]:
    name = metadata.get("name")
    if not name:
        return [words.required("metadata.name", "name or generateName is required")]
    if kind.group in _SEGMENT_NAMED:
        if "/" in name or "%" in name or name in (".", ".."):
            return [words.bad_value("metadata.name", name, "may not contain '/'")]
        return []
    found = []
    label = kind.plural in _LABEL_NAMED
    prefix = metadata.get("generateName")
    if prefix:
        # What follows the prefix is ours, so a dash may end it.
        masked = f"{prefix[:-1]}a" if len(prefix) > 1 and prefix.endswith("-") else prefix
        found += words.name_problems("metadata.generateName", masked, label=label, shown=prefix)
    return found + words.name_problems("metadata.name", name, label=label)


def _owner_problems(references: JsonValue) -> list[Cause]:
    found = []
    controller = ""
    for reference in references or ():
        where = "metadata.ownerReferences"
        group_version = reference.get("apiVersion", "")
        if not group_version or group_version.count("/") > 1 or group_version.endswith("/"):
            found.append(words.bad_value(f"{where}.apiVersion", group_version, "version must not be empty"))
        for name in ("kind", "name", "uid"):
            if not reference.get(name):
                found.append(words.bad_value(f"{where}.{name}", reference.get(name, ""), "must not be empty"))
        if group_version == "v1" and reference.get("kind") == "Event":
            detail = "/v1, Kind=Event is disallowed from being an owner"
            found.append(words.bad_value(where, reference, detail))
        if reference.get("controller"):
            named = f"{reference.get('kind', '')}/{reference.get('name', '')}"
            if controller:
                detail = (
                    'Only one reference can have Controller set to true. Found "true" in references for '
                    f"{controller} and {named}"
                )
                found.append(words.bad_value(where, references, detail))
            else:
                controller = named
    return found


def _finalizer_problems(metadata: JsonObject, before: JsonObject, kind: ResourceType) -> list[Cause]:
    found = []
    finalizers = metadata.get("finalizers") or []
    for name in finalizers:
        found += words.key_problems("metadata.finalizers", name)
    if not kind.custom:
        for index, name in enumerate(finalizers):
            if "/" not in name and name not in _STANDARD_FINALIZERS:
                detail = "name is neither a standard finalizer name nor is it fully qualified"
                found.append(words.bad_value(f"metadata.finalizers[{index}]", name, detail))
    if before.get("deletionTimestamp"):
        added = [name for name in finalizers if name not in (before.get("finalizers") or [])]
        if added:
            listed = ", ".join(f'"{name}"' for name in added)
            detail = (
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                f"[]string{{{listed}}}"
            )
            found.append(words.forbidden("metadata.finalizers", detail))
    return found


def carry(value: JsonObject, old: JsonObject) -> None:
    """What an update says nothing of, or has no say in, is taken from the old object."""
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
