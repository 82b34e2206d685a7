# SPDX-License-Identifier: Apache-2.0
"""Saying to the hub what became of each assignment.

Owns batching: a word that somebody waits for goes out at once; that a job runs and how far it is waits for a while and
is sent as one, and the longer the more was sent; a word that was said already is not sent. Promises that the newest
word gets there in the end, that sequence numbers of one boot only grow, and that a status never lands on another
assignment of that name.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from random import Random
from typing import Final

import orjson

from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import Phase
from multikueue.api.resource import REMOTE_ASSIGNMENTS
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock
from multikueue.federation.mirror import Word
from multikueue.federation.wire import status_of, word_of
from multikueue.kube.client import PatchKind
from multikueue.kube.controller import Controller, Result
from multikueue.kube.errors import Invalid, NotFound
from multikueue.kube.store import Row
from multikueue.kube.workqueue import WorkQueue
from worker_agent.hub import HubClient

_log = logging.getLogger(__name__)

_SENDERS: Final = 8
_FIRST: Final = 1.5  # a job's own controller says only a second later that its pods are ready
_LONGEST: Final = 4
_BACKOFF: Final = Backoff(base=0.05, factor=2.0, cap=5.0, jitter=0.3)


@dataclass(slots=True)
class _Letter:
    uid: str
    word: Word
    sent: Word | None = None
    sent_at: float | None = None
    sequence: int = 0
    version: int = 0
    """The resourceVersion that the last word gave the assignment; 0 where there is none."""
    progress: int = 0


class Outbox:
    """The words that are on their way."""

    def __init__(
        self, client: HubClient, namespace: str, *, boot_id: str, window: float, clock: Clock, random: Random
    ) -> None:
        self.writes = 0
        self._client = client
        self._namespace = namespace
        self._boot_id = boot_id
        self._window = window
        self._clock = clock
        self._letters: dict[str, _Letter] = {}
        queue: WorkQueue[str] = WorkQueue(clock=clock, backoff=_BACKOFF, random=random)
        self._controller = Controller("status", self._send, workers=_SENDERS, queue=queue, clock=clock)

    def latest(self, name: str, uid: str) -> Word | None:
        """The newest word about that very assignment, sent or not."""
        letter = self._letters.get(name)
        return letter.word if letter is not None and letter.uid == uid else None

    def put(self, name: str, uid: str, word: Word, *, said: Word) -> None:
        """Have `word` said; `said` is what the assignment's status says already."""
        letter = self._letters.get(name)
        if letter is None or letter.uid != uid:
            letter = self._letters[name] = _Letter(uid=uid, word=said, sent=said)
        if word == letter.word:
            return
        before, letter.word = letter.word, word
        if _is_news(before, word):
            self._controller.enqueue(name)
        else:
            self._controller.queue.add_after(name, self._pause(letter))

    def is_ahead_of(self, row: Row) -> bool:
        """Whether the last word gave the assignment a later version than this one."""
        letter = self._letters.get(row.key.name)
        return letter is not None and letter.uid == row.uid and int(row.resource_version or 0) < letter.version

    def retell(self, obj: JsonObject) -> None:
        """The hub was asked, and this is what it has: say the newest word again where it was told another."""
        metadata: JsonObject = obj["metadata"]
        letter = self._letters.get(metadata["name"])
        if letter is None or letter.uid != metadata["uid"]:
            return
        if letter.word.epoch > int(obj["spec"]["epoch"]):
            # The hub has forgotten that epoch, and may give its number to another dispatch.
            del self._letters[metadata["name"]]
            return
        letter.sent = word_of(obj)
        letter.version = min(letter.version, _version(metadata))
        if letter.word != letter.sent:
            self._controller.enqueue(metadata["name"])

    def _pause(self, letter: _Letter) -> float:
        """How long progress waits for more: a little, as its end may follow at once, and longer the more there was."""
        if letter.sent_at is None:
            return self._window * _FIRST
        pause = self._window * min(1 << letter.progress, _LONGEST)
        return max(self._window, letter.sent_at + pause - self._clock.monotonic())

    def heed(self, obj: JsonObject) -> None:
        """Say the last word again when another has taken its place: a request of before that came twice, or late."""
        metadata: JsonObject = obj["metadata"]
        letter = self._letters.get(metadata["name"])
        if letter is None or letter.uid != metadata["uid"] or not letter.version:
            return
        status: JsonObject = obj.get("status") or {}
        said = (status.get("bootID"), status.get("sequence"))
        if said == (self._boot_id, letter.sequence) or _version(metadata) <= letter.version:
            return  # it is the last word, or what the cache has is older than that
        letter.sent = word_of(obj)
        self._controller.queue.add_after(metadata["name"], self._pause(letter))

    def forget(self, name: str) -> None:
        """The assignment is gone."""
        self._letters.pop(name, None)

    @property
    def unsent(self) -> int:
        """How many words have not got there."""
        return sum(letter.word != letter.sent for letter in self._letters.values())

    async def run(self) -> None:
        """Send until cancelled."""
        await self._controller.run()

    async def _send(self, name: str) -> Result | None:
        letter = self._letters.get(name)
        if letter is None or letter.word == letter.sent:
            return None
        word = letter.word
        self.writes += 1
        sequence = self.writes
        status = status_of(word, sequence=sequence, boot_id=self._boot_id, now=self._clock.now())
        patch: list[JsonObject] = [
            {"op": "test", "path": "/metadata/uid", "value": letter.uid},
            {"op": "add", "path": "/status", "value": status},
        ]
        try:
            answer = await self._client.patch(
                REMOTE_ASSIGNMENTS,
                name,
                patch,
                namespace=self._namespace,
                kind=PatchKind.JSON,
                subresource="status",
            )
        except NotFound:
            return None  # removed meanwhile; its event is on the way
        except Invalid as error:
            # The test of the uid failed, or the server does not take the status: neither gets better by repeating.
            _log.warning("assignment %s: the hub refused the status: %s", name, error)
        else:
            letter.sequence = sequence
            letter.version = _version(orjson.loads(answer).get("metadata") or {}) if isinstance(answer, bytes) else 0
        if letter.sent is not None and letter.sent.phase is word.phase:
            letter.progress += 1
        letter.sent, letter.sent_at = word, self._clock.monotonic()
        return None


def _version(metadata: JsonObject) -> int:
    """As a number; API servers promise that those of one resource can be compared."""
    return int(metadata.get("resourceVersion") or 0)


def _is_news(before: Word, word: Word) -> bool:
    """Whether somebody waits for it, rather than watches it.

    That a job runs is for watching: the hub has granted it and decides nothing more, and a moment later there is more
    to tell, or for a short job already its end.
    """
    if word.phase is Phase.RUNNING:
        return False
    return (before.epoch, before.phase, before.reason, before.blocked_since) != (
        word.epoch,
        word.phase,
        word.reason,
        word.blocked_since,
    )
