# SPDX-License-Identifier: Apache-2.0
"""Detects that the hub was rebuilt, or restored from a backup.

A rebuilt hub stores objects with other uids; a restored one gives a write an older version than was read before. A
watch shows neither: it continues from a version that such a hub has not reached, and receives nothing until then. Each
break is notified once. A restored hub whose versions have passed the old ones before the first write is found by
comparing digests instead (`multikueue.dispatch.protocol.digests`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from multikueue.api.meta import JsonObject
from multikueue.api.resource import Resource
from multikueue.core.parsing import version_number

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FollowedVersion:
    """How far a hub was followed: the number of the mailbox list, and the newest version since; 0 for none yet."""

    lists: int = 0
    version: int = 0


class RestoreDetector:
    """Compares the writes to one hub with what was read from it."""

    def __init__(
        self,
        cluster: str,
        *,
        followed: Callable[[], FollowedVersion] = FollowedVersion,
        broken: Callable[[], None] = lambda: None,
    ) -> None:
        """`broken` is called for each break; without `followed` only a rebuilt hub is detected."""
        self.followed = followed
        self._cluster = cluster
        self._broken = broken
        self._uids: dict[str, str] = {}

    def check(self, resource: Resource, answer: object, *, since: FollowedVersion) -> None:
        """Compare the stored object of a write with what was read before the write was sent.

        `answer` is an object or its bytes; `since` is the value of `followed` before the write.
        """
        metadata = stored(answer).get("metadata") or {}
        uid, version = str(metadata.get("uid") or ""), str(metadata.get("resourceVersion") or "")
        before = self._uids.setdefault(resource.plural, uid)
        now = self.followed()
        if before != uid:
            self._uids = {resource.plural: uid}
            self._notify("rebuilt", version=version, followed=now.version)
        elif since.lists == now.lists and 0 < version_number(version) < min(since.version, now.version):
            self._notify("restored from backup", version=version, followed=now.version)

    def _notify(self, cause: str, *, version: str, followed: int) -> None:
        _log.warning(
            "hub rebuilt or restored; listing its mailbox again cluster=%s cause=%s version=%s followed=%d",
            self._cluster,
            cause,
            version,
            followed,
        )
        self._broken()


def stored(answer: object) -> JsonObject:
    """The object that a write stored: bytes from an API server, a value from a mailbox in memory."""
    if isinstance(answer, bytes):
        answer = orjson.loads(answer)
    assert isinstance(answer, dict), "an object is stored as a map"
    return answer
