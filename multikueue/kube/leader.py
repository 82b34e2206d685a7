# SPDX-License-Identifier: Apache-2.0
"""Leader election on a Lease.

Owns who may act. Promises that at most one holder's work runs at a time, as long as clocks run at about the same rate:
the holder stops its work when it could not renew for `renew_seconds` by its own monotonic clock, which is before
anybody may take the lease (`lease_seconds` after they saw it change, by their own monotonic clock). Wall clocks are
written for people and never compared, so that a clock that jumps or is hours off changes nothing. The lease also gives
a server away that was restored from a backup (`Lineage`): whoever competes looks at it all the time.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import anyio

from multikueue.api.resource import LEASES
from multikueue.core.clock import Clock, SystemClock
from multikueue.core.timestamps import format_micro_time
from multikueue.kube import errors
from multikueue.kube.client import KubeClient

logger = logging.getLogger(__name__)

_JITTER: Final = 0.2


@dataclass(frozen=True, slots=True)
class _Seen:
    """The lease as last observed: what it said, and when by our own monotonic clock."""

    record: tuple[object, ...]
    at: float


class Lineage:
    """The newest version of the lease that was seen; to be kept from one elector to the next."""

    def __init__(self, *, put_back: Callable[[], None] = lambda: None) -> None:
        """`put_back` hears that the server shows an older one, another or none, as after a restore from a backup."""
        self._put_back = put_back
        self._uid = ""
        self._version = 0

    def look(self, lease: dict[str, Any]) -> None:
        """Take in the lease as the server has it now; an empty one is gone."""
        metadata = lease.get("metadata") or {}
        uid, version = str(metadata.get("uid") or ""), int(metadata.get("resourceVersion") or 0)
        # Nobody removes a lease in ordinary life, and to begin anew does no harm where somebody has.
        if self._version and (uid != self._uid or version < self._version):
            self._put_back()
        self._uid, self._version = uid, version


class LeaderElector:
    """Competes for one Lease; `identity` must differ between processes."""

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        name: str,
        identity: str,
        lease_seconds: float = 15.0,
        renew_seconds: float = 10.0,
        retry_seconds: float = 2.0,
        clock: Clock | None = None,
        random: Random | None = None,
        lineage: Lineage | None = None,
    ) -> None:
        if not retry_seconds < renew_seconds < lease_seconds:
            raise ValueError(
                f"leader election needs retry < renew < lease, got {retry_seconds}, {renew_seconds}, {lease_seconds}"
            )
        self.leading = False
        self.holder = ""
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._retry_seconds = retry_seconds
        self._clock = clock or SystemClock()
        self._random = random or Random()
        self._lineage = lineage or Lineage()
        self._seen: _Seen | None = None

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, run `lead` while it is ours, and return when `lead` returns or the lease is lost.

        `lead` is cancelled on loss, and has ended when this returns. Cancelling gives the lease back.
        """
        renewed = await self._acquire()
        self.leading = True
        logger.info("%s leads: it holds lease %s/%s", self._identity, self._namespace, self._name)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._keep, tasks.cancel_scope, renewed)
                await lead()
                tasks.cancel_scope.cancel()
        finally:
            self.leading = False
            with anyio.CancelScope(shield=True), anyio.move_on_after(self._retry_seconds):
                await self._release()

    async def _acquire(self) -> float:
        """Wait until the lease is ours; the moment from which its term counts."""
        told = ""
        while True:
            began = self._clock.monotonic()
            with anyio.move_on_after(self._renew_seconds):
                # The server took the write at some moment after `began`; an answer that comes late is worth nothing.
                if await self._try() and self._clock.monotonic() - began < self._renew_seconds:
                    return began
            if self.holder != told:
                told = self.holder
                logger.info("%s waits: lease %s/%s is held by %s", self._identity, self._namespace, self._name, told)
            await self._pause()

    async def _keep(self, scope: anyio.CancelScope, renewed: float) -> None:
        """Renew until that fails for too long; then cancel the work."""
        while True:
            await self._pause(at_most=renewed + self._renew_seconds - self._clock.monotonic())
            left = renewed + self._renew_seconds - self._clock.monotonic()
            ours = False
            began = self._clock.monotonic()
            if left > 0:
                # A request that hangs must not outlive our right to lead.
                with anyio.move_on_after(left):
                    ours = await self._try()
            if ours:
                renewed = began  # the server took it at some moment after this
            elif self.holder not in ("", self._identity):
                logger.error("%s lost lease %s/%s to %s", self._identity, self._namespace, self._name, self.holder)
                scope.cancel()
                return
            elif self._clock.monotonic() - renewed >= self._renew_seconds:
                logger.error(
                    "%s could not renew lease %s/%s for %.0f s and stops leading",
                    self._identity,
                    self._namespace,
                    self._name,
                    self._renew_seconds,
                )
                scope.cancel()
                return

    async def _try(self) -> bool:
        """One look and, where it may, one write; True when the lease is ours for another term."""
        try:
            return await self._try_once()
        except (errors.Conflict, errors.AlreadyExists):
            return False  # somebody else was faster; the next look says who
        except errors.KubeError as error:
            logger.warning("%s: lease %s/%s: %s", self._identity, self._namespace, self._name, error)
            return False

    async def _try_once(self) -> bool:
        try:
            lease = await self._client.get_object(LEASES, self._name, namespace=self._namespace)
        except errors.NotFound:
            self._lineage.look({})
            await self._client.create(LEASES, self._body({}), namespace=self._namespace)
            self.holder = self._identity
            return True
        self._lineage.look(lease)
        spec: dict[str, Any] = lease.get("spec") or {}
        self.holder = spec.get("holderIdentity") or ""
        record = (self.holder, spec.get("renewTime"), spec.get("leaseTransitions"), spec.get("acquireTime"))
        now = self._clock.monotonic()
        if self._seen is None or self._seen.record != record:
            self._seen = _Seen(record, now)
        # The holder's own term counts: it knows how long it will go on without a renewal.
        term = max(float(spec.get("leaseDurationSeconds") or 0), self._lease_seconds)
        if self.holder not in ("", self._identity) and now - self._seen.at < term:
            return False
        if self.leading and self.holder != self._identity:
            return False  # lost while we could not look; never take it back without stopping the work first
        # What others wrote on the lease, labels and fields alike, stays.
        lease["spec"] = spec | self._body(spec)["spec"]
        await self._client.replace(LEASES, self._name, lease, namespace=self._namespace)
        self.holder = self._identity
        return True

    async def _release(self) -> None:
        try:
            lease = await self._client.get_object(LEASES, self._name, namespace=self._namespace)
            if (lease.get("spec") or {}).get("holderIdentity") != self._identity:
                return
            lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
            await self._client.replace(LEASES, self._name, lease, namespace=self._namespace)
        except errors.KubeError as error:
            logger.info("lease %s/%s is left to run out: %s", self._namespace, self._name, error)

    def _body(self, spec: dict[str, Any]) -> dict[str, Any]:
        now = format_micro_time(self._clock.now())
        mine = spec.get("holderIdentity") == self._identity
        transitions = int(spec.get("leaseTransitions") or 0)
        return {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._identity,
                # Rounded up: the API knows whole seconds, and a shorter term would be a broken promise.
                "leaseDurationSeconds": max(1, int(-(-self._lease_seconds // 1))),
                "acquireTime": spec.get("acquireTime") if mine and spec.get("acquireTime") else now,
                "renewTime": now,
                "leaseTransitions": transitions if mine or not spec else transitions + 1,
            },
        }

    async def _pause(self, at_most: float = float("inf")) -> None:
        seconds = self._retry_seconds * (1.0 + _JITTER * self._random.random())
        await anyio.sleep(max(0.0, min(seconds, at_most)))
