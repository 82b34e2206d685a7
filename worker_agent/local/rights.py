# SPDX-License-Identifier: Apache-2.0
"""The rights of the agent on its cluster, and informers that run only while it has them.

Owns the state of each right in `dispatch.protocol.worker_rights`: the answers of reviews, requested at the start, every
few minutes and after a request was refused, and the refused requests. A review is one request for the rules of the
agent, and a SelfSubjectAccessReview for each right that they do not grant. A right without an answer counts as granted.
Promises that a refused request counts for a while whatever the review answers, and that a failed review removes no
right.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from random import Random
from typing import Final

import anyio

from multikueue.api.meta import JsonObject
from multikueue.api.resource import PROVISIONING_REQUESTS, WORKLOADS, Resource
from multikueue.core.clock import Clock
from multikueue.dispatch.protocol.granted_rules import RULES_REVIEW, GrantedRules
from multikueue.dispatch.protocol.worker_rights import (
    PROVISIONING_USE,
    QUEUE_USE,
    SENDING_RIGHTS,
    WorkerRight,
    job_rights,
    missing_wire,
    of_one_kind,
    rights_of,
)
from multikueue.dispatch.worker.dependencies import SENDABLE_KINDS
from multikueue.kube.cache.informer import Informer
from multikueue.kube.errors import Forbidden, KubeError, MethodNotAllowed, NotFound
from multikueue.kube.rest.client import KubeClient
from worker_agent.reconnect import RECONNECT

_log = logging.getLogger(__name__)
_REVIEWS: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_RULES: Final = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
_ANSWER_SECONDS: Final = 30.0
_RULES_SECONDS: Final = 10.0  # so that each right can be reviewed in the rest of that time
_GAP_SECONDS: Final = 5.0  # the least time between two reviews that refused requests trigger
_URGENT_SECONDS: Final = 15.0  # between two reviews while no Job can be dispatched to the cluster
_READS: Final = frozenset({"get", "list", "watch"})


class Rights:
    """The rights of one agent."""

    def __init__(
        self,
        client: KubeClient,
        kinds: Iterable[Resource],
        *,
        seconds: float,
        clock: Clock,
        random: Random,
        on_change: Callable[[], None],
    ) -> None:
        """Rights are reviewed every `seconds`; `on_change` is called when the missing rights change."""
        kinds = tuple(kinds)
        self.table = rights_of(kinds)
        self._required = {
            kind.qualified: tuple(right.name for right in job_rights(kind) if right.required) for kind in kinds
        }
        self.changed = anyio.Event()
        """Set, and replaced by a new one, when the missing rights change."""
        self._client = client
        self._seconds = seconds
        self._clock = clock
        self._random = random
        self._on_change = on_change
        self._reviewed = tuple({right.name: right for right in (*SENDING_RIGHTS, *self.table)}.values())
        self._known = {right.name: right for right in self._reviewed}
        self._allowed: dict[str, bool] = {}
        self._refused: dict[str, float] = {}
        self._queueing = True
        self._provisioning = True
        self._reported: tuple[WorkerRight, ...] = ()
        self._sendable: tuple[bool, ...] = (False,) * len(SENDABLE_KINDS)
        self._review_requested = anyio.Event()
        client.follow_refusals(self._on_forbidden)

    def has(self, verb: str, resource: Resource, subresource: str = "") -> bool:
        """Whether the agent has this right, as far as is known."""
        return self._has(f"{verb} {resource.qualified}" + (f"/{subresource}" if subresource else ""))

    def may_follow(self, resource: Resource) -> bool:
        """Whether all objects of the resource can be listed and watched."""
        return self.has("list", resource) and self.has("watch", resource)

    def may_run(self, kind: Resource) -> bool:
        """Whether the agent has all rights without which jobs of the kind cannot run here."""
        return all(map(self._has, self._required.get(kind.qualified, ())))

    @property
    def may_use_queues(self) -> bool:
        """Whether new work can use the LocalQueues of this cluster."""
        return all(map(self._has, QUEUE_USE))

    @property
    def may_provision(self) -> bool:
        """Whether capacity can be provisioned on this cluster."""
        return all(map(self._has, PROVISIONING_USE))

    def may_send(self, resource: Resource) -> bool:
        """Whether objects of the kind may be written that the hub sends; a right without an answer does not count."""
        names = [right.name for right in SENDING_RIGHTS if right.resource == resource.qualified]
        return bool(names) and all(self._allowed.get(name, False) and self._has(name) for name in names)

    def missing(self) -> tuple[WorkerRight, ...]:
        """The missing rights, in the order of the table; those for what the cluster does not have are left out."""
        found = (right for right in self.table if not self._has(right.name) and self._is_used(right))
        if any(all(map(self._has, names)) for names in self._required.values()):
            return tuple(map(of_one_kind, found))
        return tuple(found)

    def _is_used(self, right: WorkerRight) -> bool:
        return (self._queueing or not right.queueing) and (self._provisioning or not right.provisioning)

    def missing_required(self) -> tuple[WorkerRight, ...]:
        """The missing rights without which no Job can be dispatched to this cluster."""
        return tuple(right for right in self.missing() if right.required)

    def report(self) -> JsonObject:
        """The missing rights in a ClusterReport."""
        missing = self.missing()
        return {"missingRights": missing_wire(missing)} if missing else {}

    def review_soon(self) -> None:
        """Review soon and drop what refused requests showed: the credentials have changed."""
        self._refused.clear()
        self._review_requested.set()

    async def run(self) -> None:
        """Review until cancelled."""
        attempt = 0
        while True:
            self._review_requested = anyio.Event()
            began = self._clock.monotonic()
            try:
                with anyio.fail_after(_ANSWER_SECONDS):
                    await self._review()
            except (KubeError, TimeoutError) as error:
                _log.debug("rights not reviewed error=%s", str(error) or "no answer in time")
                attempt += 1
                pause = RECONNECT.delay(attempt, self._random)
            else:
                attempt = 0
                pause = min(self._seconds, _URGENT_SECONDS) if self.missing_required() else self._seconds
            self._notify()
            await self._wait(pause)
            # A server that refuses many requests is not asked for a review after each of them.
            gap = began + min(_GAP_SECONDS, self._seconds) - self._clock.monotonic()
            await anyio.sleep(max(0.0, gap))

    async def _wait(self, pause: float) -> None:
        """Wait for the next review; notifies when a refused request no longer counts."""
        end = self._clock.monotonic() + pause
        while (left := end - self._clock.monotonic()) > 0 and not self._review_requested.is_set():
            now = self._clock.monotonic()
            soonest = min((until - now for until in self._refused.values() if until > now), default=left)
            with anyio.move_on_after(min(left, soonest)):
                await self._review_requested.wait()
            self._notify()

    async def _review(self) -> None:
        """Review all rights once. Raises `KubeError` if the server does not answer."""
        self._queueing = await self._is_served(WORKLOADS)
        self._provisioning = await self._is_served(PROVISIONING_REQUESTS)
        rules = await self._granted_rules()
        found: dict[str, bool] = {}
        for right in self._reviewed:
            if not self._is_used(right):
                continue
            if rules.grant(right):
                found[right.name] = True
                continue
            try:
                found[right.name] = await self._ask(right)
            except (Forbidden, NotFound, MethodNotAllowed) as error:
                if self._allowed:
                    _log.warning("cannot review rights; only refused requests show missing ones error=%s", error)
                self._allowed = {}
                return
        for name, allowed in found.items():
            if allowed and self._allowed.get(name) is False:
                self._refused.pop(name, None)  # it was granted meanwhile
        self._allowed = found

    async def _is_served(self, resource: Resource) -> bool:
        try:
            await self._client.request("GET", resource.base_path)
        except NotFound:
            return False
        except Forbidden:
            return True
        return True

    async def _granted_rules(self) -> GrantedRules:
        """The agent's rules; none if they cannot be had, and then each right is reviewed."""
        try:
            response = await self._client.request("POST", _RULES, body=RULES_REVIEW, timeout=_RULES_SECONDS)
            return GrantedRules.of(response.json())
        except (KubeError, ValueError) as error:
            _log.debug("rules not listed error=%s", error)
            return GrantedRules()

    async def _ask(self, right: WorkerRight) -> bool:
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": right.review,
        }
        response = await self._client.request("POST", _REVIEWS, body=body)
        try:
            answer = response.json()
        except ValueError as error:
            raise KubeError(f"review of the right {right.name}: the answer is not JSON") from error
        status = answer.get("status") if isinstance(answer, dict) else None
        allowed = status.get("allowed") if isinstance(status, dict) else None
        if not isinstance(allowed, bool):
            raise KubeError(f"review of the right {right.name}: the answer has no status.allowed")
        return allowed

    def _has(self, name: str) -> bool:
        return self._allowed.get(name, True) and self._refused.get(name, 0.0) <= self._clock.monotonic()

    def _on_forbidden(self, verb: str, resource: Resource, subresource: str, error: Forbidden) -> None:
        name = f"{verb} {resource.qualified}" + (f"/{subresource}" if subresource else "")
        if name not in self._known:
            return
        # Webhooks and ResourceQuotas answer 403 as well, which is not about rights.
        if verb not in _READS and f"cannot {verb} resource" not in error.message:
            return
        if self._has(name):
            self._review_requested.set()
        # A little longer than the review interval, so that one review which answers otherwise does not override it.
        self._refused[name] = self._clock.monotonic() + 1.5 * self._seconds
        self._notify()

    def _notify(self) -> None:
        missing, sendable = self.missing(), tuple(map(self.may_send, SENDABLE_KINDS.values()))
        if (missing, sendable) == (self._reported, self._sendable):
            return
        self._sendable = sendable
        for right in missing:
            if right not in self._reported:
                _log.warning("right missing on the worker cluster right=%s needed_for=%s", right.name, right.gives)
        for right in self._reported:
            if right not in missing:
                _log.info("right granted on the worker cluster right=%s", right.name)
        self._reported = missing
        changed, self.changed = self.changed, anyio.Event()
        changed.set()
        self._on_change()


class PermittedInformer:
    """One informer and its rights."""

    def __init__(self, informer: Informer, rights: Rights, *, changed: Callable[[], None]) -> None:
        """`changed` is called when the informer becomes usable or unusable."""
        self.informer = informer
        self.decided = anyio.Event()
        """Set after the first list, or when the agent turned out not to have the rights."""
        self._rights = rights
        self._changed = changed

    @property
    def usable(self) -> bool:
        """Whether the store has the current objects."""
        return self.informer.synced.is_set() and self.is_permitted()

    def is_permitted(self) -> bool:
        """Whether the agent may list and watch the resource, as far as is known."""
        return self._rights.may_follow(self.informer.resource)

    async def run(self) -> None:
        """Follow while permitted, until cancelled."""
        while True:
            while not self.is_permitted():
                self.decided.set()
                await self._rights.changed.wait()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.informer.run, name=f"informer-{self.informer.resource.plural}")
                tasks.start_soon(self._on_sync, name=f"synced-{self.informer.resource.plural}")
                while self.is_permitted():
                    await self._rights.changed.wait()
                tasks.cancel_scope.cancel()
            was_read = self.informer.synced.is_set()
            self.informer.forget()
            if was_read:
                self._changed()

    async def _on_sync(self) -> None:
        await self.informer.synced.wait()
        self.decided.set()
        self._changed()
