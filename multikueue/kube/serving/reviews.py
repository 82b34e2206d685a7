# SPDX-License-Identifier: Apache-2.0
"""Who a bearer token belongs to, and what a user may do, as the API server answers.

A TokenReview authenticates, a SubjectAccessReview authorizes. Answers are cached for a short time, and a limited number
of them. An API server that does not answer is `Unreviewed`, and never a right.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import anyio
import orjson

from multikueue.api.objects import JsonObject
from multikueue.api.resource import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS, Resource
from multikueue.core.clock import Clock
from multikueue.core.errors import MultikueueError
from multikueue.core.printable import excerpt
from multikueue.kube.errors import KubeError
from multikueue.kube.rest.client import KubeClient

ALLOWED_SECONDS: Final = 60.0
"""How long an allowed answer is cached: a revoked token or right can be used for that time."""
REFUSED_SECONDS: Final = 10.0
"""How long a denied answer is cached: a user who was just allowed waits for that time."""
_ANSWERS_KEPT: Final = 256
_REVIEWS_AT_ONCE: Final = 4
_TIMEOUT_SECONDS: Final = 5.0

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Unreviewed(MultikueueError):
    """The API server did not answer a review."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewedUser:
    """A user, as an API server authenticated it."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def of_info(cls, info: Mapping[str, Any]) -> ReviewedUser:
        """The `user` of a TokenReview."""
        extra = info.get("extra") or {}
        return cls(
            name=str(info.get("username") or ""),
            uid=str(info.get("uid") or ""),
            groups=tuple(info.get("groups") or ()),
            extra=tuple((name, tuple(values)) for name, values in extra.items()),
        )

    def subject(self) -> JsonObject:
        """The user in the spec of a SubjectAccessReview."""
        named: JsonObject = {"uid": self.uid, "groups": list(self.groups)}
        named["extra"] = {name: list(values) for name, values in self.extra}
        return {"user": self.name, **{name: value for name, value in named.items() if value}}


class UserReviews:
    """UserReviews of one API server, cached."""

    def __init__(self, client: KubeClient, *, clock: Clock) -> None:
        self._client = client
        self._users: _Answers[bytes, ReviewedUser | None] = _Answers(clock)
        self._rights: _Answers[tuple[ReviewedUser, bytes], bool] = _Answers(clock)
        self._reviews = anyio.CapacityLimiter(_REVIEWS_AT_ONCE)

    async def user_of(self, token: str) -> ReviewedUser | None:
        """The user of a bearer token; None if the token is not valid. Raises `Unreviewed`."""
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        return await self._users.get(digest, lambda: self._limited(lambda: self._authenticate(token)))

    async def allows(self, user: ReviewedUser, attributes: JsonObject) -> bool:
        """Whether a user may do it; `attributes` is part of a SubjectAccessReview's spec. Raises `Unreviewed`."""
        key = user, orjson.dumps(attributes, option=orjson.OPT_SORT_KEYS)
        return await self._rights.get(key, lambda: self._limited(lambda: self._authorize(user, attributes)))

    async def _authenticate(self, token: str) -> ReviewedUser | None:
        status = await self._ask(TOKEN_REVIEWS, {"token": token})
        user = status.get("user")
        return ReviewedUser.of_info(user) if status.get("authenticated") is True and isinstance(user, dict) else None

    async def _authorize(self, user: ReviewedUser, attributes: JsonObject) -> bool:
        status = await self._ask(SUBJECT_ACCESS_REVIEWS, {**user.subject(), **attributes})
        return status.get("allowed") is True

    async def _limited(self, review: Callable[[], Awaitable[V]]) -> V:
        try:
            with anyio.fail_after(_TIMEOUT_SECONDS):
                async with self._reviews:
                    return await review()
        except (KubeError, TimeoutError) as error:
            reason = str(error) or f"no answer within {_TIMEOUT_SECONDS:.0f} s"
            raise Unreviewed(f"cannot authenticate the request: {excerpt(reason, 400)}") from error

    async def _ask(self, resource: Resource, spec: JsonObject) -> dict[str, Any]:
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "spec": spec}
        answer = orjson.loads(await self._client.create(resource, body))
        status: dict[str, Any] = answer.get("status") or {}
        return status


class _Answers(Generic[K, V]):
    """The answers to one kind of review."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[K, tuple[float, V]] = OrderedDict()
        """With the time at which each expires."""

    async def get(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        """The cached answer, or what `ask` finds; an answer that is false or None is kept for a shorter time."""
        kept = self._kept.get(key)
        if kept is not None and self._clock.monotonic() < kept[0]:
            return kept[1]
        answer = await ask()
        self._kept.pop(key, None)
        self._kept[key] = (self._clock.monotonic() + (ALLOWED_SECONDS if answer else REFUSED_SECONDS), answer)
        if len(self._kept) > _ANSWERS_KEPT:
            self._kept.popitem(last=False)
        return answer
