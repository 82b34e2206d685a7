# SPDX-License-Identifier: Apache-2.0
"""Writes that are only sent when they change something.

Owns the comparison of what is wanted with what is there. Promises that nothing is sent when the server would store the
same object: in a big federation most reconciles find the world as it should be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from multikueue.api.resource import Resource
from multikueue.kube.client import KubeClient


def merge_diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any] | None:
    """The JSON merge patch that turns `old` into `new`; None when they are equal. Lists are replaced whole."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old:
            patch[key] = value
            continue
        before = old[key]
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            inner = merge_diff(before, value)
            if inner is not None:
                patch[key] = inner
        elif before != value:
            patch[key] = value
    return patch or None


def contains(current: object, wanted: object) -> bool:
    """Whether `current` already says all that `wanted` says; maps may say more, lists must be equal in length."""
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


async def patch_unless_same(
    client: KubeClient,
    resource: Resource,
    current: Mapping[str, Any],
    wanted: Mapping[str, Any],
    *,
    subresource: str | None = None,
    guarded: bool = False,
) -> bytes | None:
    """Merge-patch `current` into `wanted`; None when nothing was sent.

    With `guarded` the write is refused (`Conflict`) when the object is no longer the one that was compared.
    """
    patch = merge_diff(current, wanted)
    if patch is None:
        return None
    metadata = current["metadata"]
    return await client.patch(
        resource,
        metadata["name"],
        patch,
        namespace=metadata.get("namespace"),
        subresource=subresource,
        resource_version=metadata.get("resourceVersion") if guarded else None,
    )


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
    """Server-side apply of `wanted`; None when `current` already says it all and `manager` owns no more than that.

    What `manager` once owned and `wanted` no longer lists would be dropped by the apply, so that such an apply is sent.
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
    return True  # not the owner yet: the apply makes it one


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
