# SPDX-License-Identifier: Apache-2.0
"""Annotations of objects that were taken over on a worker where the agent may not patch them.

Kueue's guide for kubeconfigs grants no `patch`. What Kueue has sent is found again after a restart by what it has
written itself, so that nothing is lost with the process.
"""

from __future__ import annotations

from collections.abc import Mapping

from multikueue.api.meta import JsonObject


class RememberedMarks:
    """The annotations by uid."""

    def __init__(self) -> None:
        self._by_uid: dict[str, Mapping[str, str]] = {}

    def set(self, uid: str, annotations: Mapping[str, str]) -> None:
        """Show the object with these from now on."""
        self._by_uid[uid] = dict(annotations)

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._by_uid.pop(uid, None)

    def on(self, obj: JsonObject) -> JsonObject:
        """The object with its remembered annotations; as it is without any."""
        metadata: JsonObject = obj["metadata"]
        found = self._by_uid.get(str(metadata.get("uid")))
        if found is None:
            return obj
        return {**obj, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **found}}}
