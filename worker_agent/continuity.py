# SPDX-License-Identifier: Apache-2.0
"""Whether the hub that answers is still the one that was followed.

Owns what a hub gives away when it was made anew (its objects have other uids) or put back in time by a restored backup
(it gives a write an older version than was heard of before). No watch tells of either: one goes on from a version that
such a hub has yet to reach, and is silent until then. Promises one alarm for each break. Leaves out a hub whose other
writers have passed that version before the first write comes: that is found by comparing digests
(`multikueue.federation.digests`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

import orjson

from multikueue.api.meta import JsonObject
from multikueue.api.resource import Resource

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Followed:
    """How far a hub was followed: which list of the mailbox it was, and the newest version since; 0 for none yet."""

    lists: int = 0
    version: int = 0


class Continuity:
    """What this process knows of one hub."""

    def __init__(
        self,
        cluster: str,
        *,
        followed: Callable[[], Followed] = Followed,
        broken: Callable[[], None] = lambda: None,
    ) -> None:
        """`broken` is called for each break; without `followed` only a hub that was made anew is noticed."""
        self.followed = followed
        self._cluster = cluster
        self._broken = broken
        self._uids: dict[str, str] = {}

    def check(self, resource: Resource, answer: object, *, since: Followed) -> None:
        """Compare what a write has stored with what was known of the hub before it was sent.

        `answer` is an object or its bytes; `since` is what `followed` said before.
        """
        metadata = stored(answer).get("metadata") or {}
        uid, version = str(metadata.get("uid") or ""), str(metadata.get("resourceVersion") or "")
        before = self._uids.setdefault(resource.plural, uid)
        now = self.followed()
        if before != uid:
            self._uids = {resource.plural: uid}
            self._tell("was made anew")
        elif version.isdigit() and since.lists == now.lists and int(version) < min(since.version, now.version):
            self._tell(f"was put back in time, from version {now.version} to before {version}")

    def _tell(self, what: str) -> None:
        _log.warning("the hub of %s %s; its mailbox is read again", self._cluster, what)
        self._broken()


def stored(answer: object) -> JsonObject:
    """The object that a write has stored: bytes from an API server, a value from a mailbox in memory."""
    if isinstance(answer, bytes):
        answer = orjson.loads(answer)
    assert isinstance(answer, dict), "an object is stored as a map"
    return answer
