# SPDX-License-Identifier: Apache-2.0
"""Faults on demand, for tests: latency, an error, a dropped connection, a half-open link.

Owns the rules and which requests they match. A rule that drops or hangs every request it matches does the same to open
watches, so one rule for one user partitions that client; what was held back is sent once the rule is removed. Cutting
watches, compaction, stale reads and the clock offset are switches of the server.

They are set from Python, or by clients in other processes at `/faults`. `GET` shows the faults in force;
`PUT {"rules": [...], "clockOffset": seconds, "staleReads": version}` replaces the given ones; `DELETE` removes all;
`POST /faults/compact` forgets the history and `POST /faults/cut-watches?user=NAME` breaks watches once. Only for
`system:masters`; no rule applies to these requests.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Final, Protocol

from devcluster.apiserver import errors
from devcluster.apiserver.codec import decoding
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.http.requests import Answer, Request, answer
from devcluster.apiserver.registry.reading import Reader
from multikueue.core.errors import BadInput

_REASONS: Final = {500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout"}
_CODES: Final = range(400, 600)
PATH: Final = "/faults"
_FIELDS: Final = ("rules", "clockOffset", "staleReads")


@dataclass(frozen=True, slots=True)
class Fault:
    """One rule: which requests it matches, and what happens to them."""

    user: str = ""
    """Only requests of this user; partitions one client."""
    method: str = ""
    path: str = ""
    """Only paths with this prefix."""
    share: float = 1.0
    """The fraction of matching requests that are affected."""
    seconds: float = 0.0
    """Latency."""
    code: int = 0
    """The status code of the error to answer with."""
    retry_after: int = 1
    drop: bool = False
    """Cut the connection without an answer."""
    hang: bool = False
    """Send no answer while the rule is in force; the connection stays open."""

    def is_about(self, request: Request) -> bool:
        """Whether the rule matches a request."""
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
        """The rules; the first that matches a request applies. Set them to inject faults."""
        return self._rules

    @rules.setter
    def rules(self, rules: Sequence[Fault]) -> None:
        self._rules = tuple(rules)
        lifted, self._lifted = self._lifted, asyncio.Event()
        lifted.set()
        self._changed()

    def of(self, request: Request) -> Fault | None:
        """The rule that applies to a request, if any."""
        for rule in self._rules:
            if rule.is_about(request) and (rule.share >= 1.0 or self._rng.random() < rule.share):
                return rule
        return None

    def of_running(self, request: Request) -> Fault | None:
        """The rule that applies to an open watch, given the request that began it."""
        for rule in self._rules:
            if rule.share >= 1.0 and (rule.drop or rule.hang) and rule.is_about(request):
                return rule
        return None

    async def changed(self) -> None:
        """Wait until the rules change."""
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
    """The rules as `/faults` shows them."""
    return [{field.name: getattr(rule, field.name) for field in fields(Fault)} for rule in rules]


class Switches(Protocol):
    """The faults that a server can have."""

    context: ServerContext
    reader: Reader
    faults: Faults

    def cut_watches(self, *, user: str = "") -> None:
        """Break all watches, or those of one client."""

    def compact(self) -> None:
        """Forget the history."""


def respond(request: Request, switches: Switches) -> Answer:
    """The answer to a request to `/faults`. Raises `StatusError`."""
    match request.method, request.path.removeprefix(PATH).strip("/"):
        case "POST", "compact":
            switches.compact()
        case "POST", "cut-watches":
            switches.cut_watches(user=request.query.get("user", ""))
        case "PUT", "":
            try:
                _change(decoding.decode(request), switches)
            except BadInput as error:
                raise errors.bad_request(str(error)) from error
        case "DELETE", "":
            _change({"rules": [], "clockOffset": 0, "staleReads": None}, switches)
        case "GET", "":
            pass
        case _, "" | "compact" | "cut-watches":
            raise errors.method_not_allowed()
        case _:
            raise errors.no_resource()
    return answer(200, _shown(switches))


def _change(value: JsonValue, switches: Switches) -> None:
    if not isinstance(value, dict) or not value.keys() <= set(_FIELDS):
        raise BadInput(f"expected an object of {', '.join(_FIELDS)}; got {value!r}")
    # Everything is validated before anything is changed.
    rules = read(value.get("rules", document(switches.faults.rules)))
    offset = value.get("clockOffset", switches.context.clock_offset)
    if isinstance(offset, bool) or not isinstance(offset, int | float):
        raise BadInput(f"clockOffset: expected seconds; got {offset!r}")
    stale = value.get("staleReads", switches.reader.stale)
    newest = switches.context.store.version
    if stale is not None and (isinstance(stale, bool) or not isinstance(stale, int) or not 0 < stale <= newest):
        raise BadInput(f"staleReads: expected a resource version up to {newest}, or null; got {stale!r}")
    switches.faults.rules = rules
    switches.context.clock_offset = float(offset)
    switches.reader.stale = stale


def _shown(switches: Switches) -> JsonObject:
    return {
        "rules": document(switches.faults.rules),
        "clockOffset": switches.context.clock_offset,
        "staleReads": switches.reader.stale,
    }
