# SPDX-License-Identifier: Apache-2.0
"""Writes that are only sent if they change the object.

In a large federation most reconciles find nothing to change: a write is skipped if the server would store the same
object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from multikueue.api.resource import Resource
from multikueue.kube.rest.client import KubeClient


def contains(current: object, wanted: object) -> bool:
    """Whether `current` has all fields of `wanted`; maps may have more keys, lists must have the same length."""
    if isinstance(wanted, Mapping):
        return isinstance(current, Mapping) and all(
            key in current and contains(current[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(current, list)
            and len(current) == len(wanted)
            and all(contains(have, want) for have, want in zip(current, wanted, strict=True))
        )
    return current == wanted


async def apply_unless_same(
    client: KubeClient,
    resource: Resource,
    wanted: Mapping[str, Any],
    *,
    current: Mapping[str, Any] | None,
    manager: str,
    force: bool = True,
    subresource: str | None = None,
) -> bytes | None:
    """Server-side apply of `wanted`; None if `current` has all of it and `manager` owns no other fields.

    If `manager` owns a field that is not in `wanted`, the apply is sent, since it would remove that field.
    """
    metadata = wanted["metadata"]
    if (
        current is not None
        and contains(current, wanted)
        and not _owns_more(current, wanted, manager=manager, subresource=subresource)
    ):
        return None
    return await client.apply(
        resource,
        metadata["name"],
        wanted,
        namespace=metadata.get("namespace"),
        manager=manager,
        force=force,
        subresource=subresource,
    )


def _owns_more(current: Mapping[str, Any], wanted: Mapping[str, Any], *, manager: str, subresource: str | None) -> bool:
    for entry in current.get("metadata", {}).get("managedFields") or ():
        if (
            entry.get("manager") == manager
            and entry.get("operation") == "Apply"
            and (entry.get("subresource") or None) == subresource
        ):
            return _fields_beyond(entry.get("fieldsV1") or {}, wanted)
    return True  # not an owner yet: the apply makes it one


def _fields_beyond(fields: Mapping[str, Any], wanted: object) -> bool:
    """Whether a fieldsV1 tree names a field that `wanted` does not have."""
    for name, inner in fields.items():
        if name.startswith("k:"):
            item = _item(orjson.loads(name[2:]), wanted)
            if item is None or _fields_beyond(inner, item):
                return True
            continue
        if not name.startswith("f:"):
            continue
        if not isinstance(wanted, Mapping) or name[2:] not in wanted:
            return True
        if inner and _fields_beyond(inner, wanted[name[2:]]):
            return True
    return False


def _item(keys: Mapping[str, Any], wanted: object) -> Mapping[str, Any] | None:
    """The item of a list map that has these keys."""
    for item in wanted if isinstance(wanted, list) else ():
        if isinstance(item, Mapping) and all(item.get(name) == value for name, value in keys.items()):
            return item
    return None
