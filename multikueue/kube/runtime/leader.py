# SPDX-License-Identifier: Apache-2.0
"""Leader election on a Lease.

Promises that at most one holder leads at a time if clocks run at about the same rate: the holder stops when it could
not renew for `renew_seconds` by its monotonic clock, which is before another process may take the lease
(`lease_seconds` after it saw the lease change, by its monotonic clock). Wall clock times are written for people and
never compared, so that a clock that jumps or is wrong has no effect. Since every candidate reads the lease all the
time, it also shows that the server was restored from a backup (`LeaseRestoreDetector`).
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
from multikueue.kube.rest.client import KubeClient

logger = logging.getLogger(__name__)

_JITTER: Final = 0.2


@dataclass(frozen=True, slots=True)
class _Seen:
    """The lease as last observed: its contents, and the time by the monotonic clock."""

    record: tuple[object, ...]
    at: float


class LeaseRestoreDetector:
    """Detects a restored server by the version of the lease; kept from one elector to the next."""

    def __init__(self, *, restored: Callable[[], None] = lambda: None) -> None:
        """`restored` is called if the lease is older, another one, or gone, as after a restore from a backup."""
        self._restored = restored
        self._uid = ""
        self._version = 0

    def check(self, lease: dict[str, Any]) -> None:
        """Compare the lease on the server with the last one; an empty one is gone."""
        metadata = lease.get("metadata") or {}
        uid, version = str(metadata.get("uid") or ""), int(metadata.get("resourceVersion") or 0)
        # A lease is not deleted in normal operation, and a restart does no harm if it was.
        if self._version and (uid != self._uid or version < self._version):
            self._restored()
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
        restore_detector: LeaseRestoreDetector | None = None,
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
        self._restore_detector = restore_detector or LeaseRestoreDetector()
        self._seen: _Seen | None = None

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lease, run `lead` while holding it, and return when `lead` returns or the lease is lost.

        `lead` is cancelled when the lease is lost, and has ended when this returns. Cancelling releases the lease.
        """
        renewed = await self._acquire()
        self.leading = True
        logger.info("leading identity=%s lease=%s/%s", self._identity, self._namespace, self._name)
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
        """Wait for the lease; the time from which its term counts."""
        logged = ""
        while True:
            began = self._clock.monotonic()
            with anyio.move_on_after(self._renew_seconds):
                # The server stored the write at some time after `began`; a late answer is too old to lead.
                if await self._try() and self._clock.monotonic() - began < self._renew_seconds:
                    return began
            if self.holder != logged:
                logged = self.holder
                logger.info(
                    "waiting for the lease identity=%s lease=%s/%s holder=%s",
                    self._identity,
                    self._namespace,
                    self._name,
                    self.holder,
                )
            await self._pause()

    async def _keep(self, scope: anyio.CancelScope, renewed: float) -> None:
        """Renew until that fails for too long; then cancel `scope`."""
        while True:
            await self._pause(at_most=renewed + self._renew_seconds - self._clock.monotonic())
            left = renewed + self._renew_seconds - self._clock.monotonic()
            ours = False
            began = self._clock.monotonic()
            if left > 0:
                # A request that hangs must not last longer than the term.
                with anyio.move_on_after(left):
                    ours = await self._try()
            if ours:
                renewed = began  # the server stored the write after this
            elif self.holder not in ("", self._identity):
                logger.error(
                    "lease lost identity=%s lease=%s/%s holder=%s",
                    self._identity,
                    self._namespace,
                    self._name,
                    self.holder,
                )
                scope.cancel()
                return
            elif self._clock.monotonic() - renewed >= self._renew_seconds:
                logger.error(
                    "cannot renew the lease; not leading any more identity=%s lease=%s/%s seconds=%.0f",
                    self._identity,
                    self._namespace,
                    self._name,
                    self._renew_seconds,
                )
                scope.cancel()
                return

    async def _try(self) -> bool:
        """Read the lease and renew or take it if possible; whether it is held for another term."""
        try:
            return await self._try_once()
        except (errors.Conflict, errors.AlreadyExists):
            return False  # another candidate was faster; the next read shows which
        except errors.KubeError as error:
            logger.warning(
                "cannot renew the lease identity=%s lease=%s/%s error=%s",
                self._identity,
                self._namespace,
                self._name,
                error,
            )
            return False

    async def _try_once(self) -> bool:
        try:
            lease = await self._client.get_object(LEASES, self._name, namespace=self._namespace)
        except errors.NotFound:
            self._restore_detector.check({})
            await self._client.create(LEASES, self._body({}), namespace=self._namespace)
            self.holder = self._identity
            return True
        self._restore_detector.check(lease)
        spec: dict[str, Any] = lease.get("spec") or {}
        self.holder = spec.get("holderIdentity") or ""
        record = (self.holder, spec.get("renewTime"), spec.get("leaseTransitions"), spec.get("acquireTime"))
        now = self._clock.monotonic()
        if self._seen is None or self._seen.record != record:
            self._seen = _Seen(record, now)
        # The term in the lease counts: the holder leads for that long without a renewal.
        term = max(float(spec.get("leaseDurationSeconds") or 0), self._lease_seconds)
        if self.holder not in ("", self._identity) and now - self._seen.at < term:
            return False
        if self.leading and self.holder != self._identity:
            return False  # lost meanwhile; it is not taken again before the work has stopped
        # Labels and fields of other writers are kept.
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
            logger.info("lease not released; it will expire lease=%s/%s error=%s", self._namespace, self._name, error)

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
                # Rounded up: the API has whole seconds, and the term must not be shorter than the holder's.
                "leaseDurationSeconds": max(1, int(-(-self._lease_seconds // 1))),
                "acquireTime": spec.get("acquireTime") if mine and spec.get("acquireTime") else now,
                "renewTime": now,
                "leaseTransitions": transitions if mine or not spec else transitions + 1,
            },
        }

    async def _pause(self, at_most: float = float("inf")) -> None:
        seconds = self._retry_seconds * (1.0 + _JITTER * self._random.random())
        await anyio.sleep(max(0.0, min(seconds, at_most)))
