# SPDX-License-Identifier: Apache-2.0
"""Looks at the pods of managed namespaces once, and reports those that run outside the quota of their owner.

Owns when that is: when a manager begins to lead, and when a namespace becomes managed. Pods are listed in pages and not
kept. What is found is looked at again before it is reported, since a controller may be about to stop it, and every few
minutes until it is gone. Nothing is stopped: what ran before the queues came may be work that users rely on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Final

import anyio
import orjson

from manager.context import ManagerContext
from manager.owners.owner_quota import workloads_of
from manager.owners.pod_review import RUNNING, PodReview, UncoveredPod
from multikueue.api.reasons import PodEvent
from multikueue.api.resource import NAMESPACES, PODS
from multikueue.core.backoff import Backoff
from multikueue.core.errors import BadInput
from multikueue.core.printable import printable
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.kube.cache.informer import Change
from multikueue.kube.errors import KubeError
from multikueue.kube.runtime.events import WARNING, Reference

_log = logging.getLogger(__name__)

CONFIRM_SECONDS: Final = 30.0
"""What was found counts if it is so after this pause."""
AGAIN_SECONDS: Final = 300.0
_AT_ONCE: Final = 20  # beyond so many namespaces, one list of all pods costs less
_PAUSES: Final = Backoff(base=5.0, factor=2.0, cap=600.0, jitter=0.2)
_EVENTS: Final = 20  # of one namespace, for each review


class RunningPodReview:
    """The review of pods that no webhook has seen."""

    def __init__(
        self,
        context: ManagerContext,
        registry: JobRegistry,
        *,
        manages_namespace: Callable[[str], bool],
    ) -> None:
        self._context = context
        self._registry = registry
        self._manages = manages_namespace
        self._failures = 0
        self._new: set[str] = set()
        self._known: set[str] = set()
        self._wake = anyio.Event()
        self._reported: dict[str, dict[str, str]] = {}
        """By namespace, why each pod is not covered, by its uid."""

    async def run(self) -> None:
        """Follow which namespaces are managed, and review, until cancelled."""
        self._context.caches.subscribe(NAMESPACES, self._namespace_changed)
        await self._context.supervisor.keep("running-pods", self._run)

    async def _run(self) -> None:
        try:
            while True:
                with anyio.move_on_after(AGAIN_SECONDS if self._reported else None):
                    await self._wake.wait()
                self._wake = anyio.Event()
                due = self._new | self._reported.keys()
                if due:
                    await self._review(due)
        finally:
            self._new |= self._reported.keys()  # if it is started again
            for namespace in list(self._reported):
                self._show(namespace, {})

    def _namespace_changed(self, change: Change) -> None:
        name = change.key.name
        if change.new is None or not self._manages(name):
            self._known.discard(name)
        elif name not in self._known:
            self._known.add(name)
            self._new.add(name)
            self._wake.set()

    async def _review(self, namespaces: set[str]) -> None:
        self._new -= namespaces
        try:
            first = await self._uncovered(namespaces)
            if first:
                await anyio.sleep(CONFIRM_SECONDS)
            second = await self._uncovered(first.keys()) if first else {}
        except KubeError as error:
            self._new |= namespaces
            self._failures += 1
            pause = _PAUSES.delay(self._failures, self._context.random)
            _log.warning("cannot review running pods retry_after=%.0f error=%s", pause, error)
            await anyio.sleep(pause)
            self._wake.set()
            return
        self._failures = 0
        for namespace in namespaces:
            before = {each.uid for each in first.get(namespace, ())}
            self._report(namespace, [each for each in second.get(namespace, ()) if each.uid in before])

    async def _uncovered(self, namespaces: Iterable[str]) -> dict[str, list[UncoveredPod]]:
        """The pods of these namespaces that are not covered. Raises `KubeError`."""
        wanted = frozenset(each for each in namespaces if self._manages(each))
        caches = self._context.caches
        review = PodReview(
            self._registry,
            caches,
            lambda resource, key: workloads_of(caches, resource, key),
            manage_unqueued=self._context.configuration.manage_jobs_without_queue_name,
        )
        for scope in sorted(wanted) if len(wanted) <= _AT_ONCE else [None]:
            token: str | None = None
            while True:
                page = await self._context.client.list_page(
                    PODS, namespace=scope, field_selector=RUNNING, continue_token=token
                )
                for raw in page.items:
                    _add(raw, review, wanted)
                token = page.continue_token
                if not token:
                    break
        found: dict[str, list[UncoveredPod]] = {}
        for each in review.uncovered(now=self._context.clock.now()):
            found.setdefault(each.key.namespace, []).append(each)
        return found

    def _report(self, namespace: str, found: list[UncoveredPod]) -> None:
        known = self._reported.get(namespace, {})
        new = [each for each in found if known.get(each.uid) != each.why]
        for each in new[:_EVENTS]:
            why = each.why
            about = Reference(PODS.api_version, PODS.kind, each.key.name, namespace, each.uid)
            message = (
                f"It runs outside quota: {why}. No webhook has seen it, and it is not stopped; delete it if its owner's"
                " controller did not create it"
            )
            self._context.recorder.event(about, WARNING, PodEvent.OUTSIDE_QUOTA, message)
        if new:
            _log.warning("pods run outside the quota of their owners namespace=%s count=%d", namespace, len(found))
        self._show(namespace, {each.uid: each.why for each in found})

    def _show(self, namespace: str, found: dict[str, str]) -> None:
        metrics = self._context.metrics
        if found:
            self._reported[namespace] = found
            metrics.uncovered_pods.labels(namespace, metrics.role).set(len(found))
        elif self._reported.pop(namespace, None) is not None:
            metrics.uncovered_pods.remove(namespace, metrics.role)


def _add(raw: bytes, review: PodReview, namespaces: frozenset[str]) -> None:
    """Add a pod of one of these namespaces; one that cannot be read is left out, with a line in the log."""
    try:
        pod = orjson.loads(raw)
        if pod["metadata"]["namespace"] in namespaces:
            review.add(pod)
    except (BadInput, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        _log.warning("cannot review a pod error=%s", printable(f"{type(error).__name__}: {error}"))
