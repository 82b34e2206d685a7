# SPDX-License-Identifier: Apache-2.0
"""Faults on demand: what goes wrong in real clusters, when a test asks for it.

Owns the rules and what they do to a request: latency, an error, a dropped connection, a half-open link. Cutting
watches, compaction, stale reads and the clock are switches of the server itself. Asked for by a Python call, or by
`PUT /faults` of a master.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, fields
from typing import Final

from multikueue.core.errors import BadInput
from multikueue.devcluster.apiserver import errors
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.requests import Request

_CODES: Final = {429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}


@dataclass(frozen=True, slots=True)
class Fault:
    """One rule: which requests it befalls, and what happens to them."""

    user: str = ""
    """Only this client's requests; that is how one client is partitioned."""
    method: str = ""
    path: str = ""
    """Only paths that begin so."""
    share: float = 1.0
    """The part of these requests that it befalls."""
    seconds: float = 0.0
    """Latency."""
    code: int = 0
    """Answer with this error."""
    retry_after: int = 1
    drop: bool = False
    """Cut the connection without an answer."""
    hang: bool = False
    """Never answer; the connection stays open."""


class Faults:
    """The rules in force."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.rules: list[Fault] = []

    def of(self, request: Request) -> Fault | None:
        """What befalls a request; None most of the time."""
        for rule in self.rules:
            if rule.user and rule.user != request.user.name:
                continue
            if rule.method and rule.method != request.method:
                continue
            if rule.path and not request.path.startswith(rule.path):
                continue
            if rule.share >= 1.0 or self._rng.random() < rule.share:
                return rule
        return None


def error(rule: Fault) -> errors.StatusError:
    """The error that a rule answers with."""
    message = "injected fault"
    if rule.code == 429:
        return errors.too_many_requests("Too many requests, please try again later.", retry_after=rule.retry_after)
    return errors.StatusError(rule.code, _CODES.get(rule.code, ""), message)


def read(value: object) -> list[Fault]:
    """The rules of a request's body. Raises `BadInput`."""
    if not isinstance(value, list):
        raise BadInput("faults are a list of objects")
    known = {field.name: field for field in fields(Fault)}
    found = []
    for entry in value:
        if not isinstance(entry, dict) or not entry.keys() <= known.keys():
            raise BadInput(f"a fault has the fields {', '.join(known)}; got {entry!r}")
        found.append(Fault(**entry))
    return found


def document(rules: list[Fault]) -> list[JsonObject]:
    """The rules as they are shown."""
    return [{field.name: getattr(rule, field.name) for field in fields(Fault)} for rule in rules]
