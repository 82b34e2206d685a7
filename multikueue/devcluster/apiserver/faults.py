# SPDX-License-Identifier: Apache-2.0
"""Faults on demand: what goes wrong in real clusters, when a test asks for it.

Owns the rules and what they do to a request: latency, an error, a dropped connection, a half-open link. A rule that
drops or hangs every request it befalls does the same to the watches that run, so one rule about one user is a partition
of that client; what hung goes on when the rule is gone, as bytes do that the network held back. Cutting watches,
compaction, stale reads and the clock are switches of the server. Asked for by a Python call, or at `/faults`
(`injecting`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Final

from multikueue.core.errors import BadInput
from multikueue.devcluster.apiserver import errors
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.requests import Request

_REASONS: Final = {500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}
_CODES: Final = range(400, 600)


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
    """No answer while the rule is there; the connection stays open."""

    def is_about(self, request: Request) -> bool:
        """Whether it may befall a request."""
        return (
            (not self.user or self.user == request.user.name)
            and (not self.method or self.method == request.method)
            and request.path.startswith(self.path)
        )


class Faults:
    """The rules in force."""

    def __init__(self, rng: random.Random, *, changed: Callable[[], None]) -> None:
        self._rng = rng
        self._rules: tuple[Fault, ...] = ()
        self._lifted = asyncio.Event()
        self._changed = changed

    @property
    def rules(self) -> Sequence[Fault]:
        """The rules, of which the first that befalls a request counts; set them to inject faults."""
        return self._rules

    @rules.setter
    def rules(self, rules: Sequence[Fault]) -> None:
        self._rules = tuple(rules)
        lifted, self._lifted = self._lifted, asyncio.Event()
        lifted.set()
        self._changed()

    def of(self, request: Request) -> Fault | None:
        """What befalls a request; None most of the time."""
        for rule in self._rules:
            if rule.is_about(request) and (rule.share >= 1.0 or self._rng.random() < rule.share):
                return rule
        return None

    def of_running(self, request: Request) -> Fault | None:
        """The rule that befalls a watch which that request has begun."""
        for rule in self._rules:
            if rule.share >= 1.0 and (rule.drop or rule.hang) and rule.is_about(request):
                return rule
        return None

    async def changed(self) -> None:
        """Wait until there are other rules."""
        await self._lifted.wait()


def error(rule: Fault) -> errors.StatusError:
    """The error that a rule answers with."""
    if rule.code == 429:
        return errors.too_many_requests("Too many requests, please try again later.", retry_after=rule.retry_after)
    return errors.StatusError(rule.code, _REASONS.get(rule.code, ""), "injected fault")


def read(value: object) -> list[Fault]:
    """The rules of a request's body. Raises `BadInput`."""
    if not isinstance(value, list):
        raise BadInput(f"rules are a list of objects; got {value!r}")
    known = {field.name: type(field.default) for field in fields(Fault)}
    found = []
    for index, entry in enumerate(value):
        if not isinstance(entry, dict):
            raise BadInput(f"rules[{index}]: expected an object; got {entry!r}")
        for name, given in entry.items():
            if name not in known:
                raise BadInput(f"rules[{index}]: unknown field {name!r}; known are {', '.join(known)}")
            wanted = known[name]
            if not (type(given) is wanted or (wanted is float and type(given) is int)):
                raise BadInput(f"rules[{index}].{name}: expected {wanted.__name__}; got {given!r}")
        rule = Fault(**entry)
        if rule.code and rule.code not in _CODES:
            raise BadInput(f"rules[{index}].code: expected 400 to 599; got {rule.code}")
        found.append(rule)
    return found


def document(rules: Sequence[Fault]) -> list[JsonObject]:
    """The rules as they are shown."""
    return [{field.name: getattr(rule, field.name) for field in fields(Fault)} for rule in rules]
