# SPDX-License-Identifier: Apache-2.0
"""Events about work that bypasses the queues of its namespace: a Job without a queue label, a Pod with one.

Such work runs at once and uses no quota, which is seldom intended where a LocalQueue exists. One event an object, for
new objects only, and few per namespace: a tenant who creates thousands of them causes no more events than one who
creates ten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from random import Random
from typing import Final

from manager.cache.views import View
from multikueue.api.constants import ORIGIN_LABEL, QUEUE_NAME_LABEL
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import JobEvent, PodEvent
from multikueue.api.resource import PODS
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.core.timestamps import parse_time
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.limiter import Limiter
from multikueue.kube.runtime.events import WARNING, EventRecorder, Reference
from multikueue.kube.runtime.quarantine import Quarantine

NEW_SECONDS: Final = 300.0
"""Older objects are ignored: a manager that starts reports nothing about existing work."""
NAMESPACE_BURST: Final = 10
_NAMESPACE_QPS: Final = 1 / 60
_BURST: Final = 100
_QPS: Final = 1.0
_KEPT: Final = 16384
_NAMED_QUEUES: Final = 3
_SYSTEM_PREFIX: Final = "kube-"


class QueueHints:
    """Reports once for each object that it is not queued. Never fails and never waits."""

    def __init__(
        self,
        recorder: EventRecorder,
        local_queues: View,
        *,
        manages_namespace: Callable[[str], bool],
        namespace: str,
        frameworks: Iterable[str],
        clock: Clock,
    ) -> None:
        """`namespace` is the manager's, which is ignored, as system namespaces are."""
        self._recorder = recorder
        self._local_queues = local_queues
        self._manages_namespace = manages_namespace
        self._own = namespace
        self._frameworks = ", ".join(sorted(frameworks)) or "none"
        self._clock = clock
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._limits: OrderedDict[str, Limiter] = OrderedDict()
        self._all = Limiter(qps=_QPS, burst=_BURST, clock=clock)

    def job(self, job: JsonObject, *, finished: bool) -> None:
        """A Job without a queue label; for the Jobs of a CronJob one event, about the CronJob."""
        owner = _controller(job)
        if ORIGIN_LABEL in (job["metadata"].get("labels") or {}):
            return  # a remote job that a hub dispatched here
        if finished or (owner is not None and owner.get("kind") != "CronJob"):
            return
        about = Reference.of(job)
        if owner is not None:
            about = Reference(
                str(owner.get("apiVersion")),
                "CronJob",
                str(owner.get("name")),
                about.namespace,
                str(owner.get("uid") or ""),
            )
        queues = self._queues_for(job, uid=about.uid)
        if queues:
            where = "its jobTemplate" if owner is not None else f"the {job['kind']}; delete it and create it again"
            message = (
                f"It is not queued and uses no quota: the label {QUEUE_NAME_LABEL} is missing. LocalQueues of namespace"
                f" {about.namespace}: {queues}. Put the label {QUEUE_NAME_LABEL}: NAME on {where}"
            )
            self._recorder.event(about, WARNING, JobEvent.QUEUE_NAME_MISSING, message)

    def pod(self, pod: JsonObject) -> None:
        """A Pod with a queue label and no controller, unless Pods are a managed kind."""
        if _controller(pod) is not None:
            return
        queues = self._queues_for(pod, uid=pod["metadata"].get("uid", ""))
        if queues:
            message = (
                f"It is not queued and uses no quota: the label {QUEUE_NAME_LABEL} has no effect on a Pod here, since"
                f" the kinds that this manager queues are {self._frameworks} (integrations.frameworks). Create a Job"
                " with the label instead"
            )
            about = Reference.of(pod, api_version=PODS.api_version, kind=PODS.kind)
            self._recorder.event(about, WARNING, PodEvent.QUEUE_NAME_IGNORED, message)

    def _queues_for(self, obj: JsonObject, *, uid: str) -> str:
        """The LocalQueues that the object could name; empty when nothing is to be reported, or the limit is reached."""
        metadata = obj["metadata"]
        namespace = metadata["namespace"]
        if not uid or "deletionTimestamp" in metadata or namespace == self._own or namespace.startswith(_SYSTEM_PREFIX):
            return ""
        if not self._is_new(metadata) or not self._manages_namespace(namespace) or uid in self._seen:
            return ""
        if not self._limit(namespace).take():
            return ""
        names = sorted(row.key.name for row in self._local_queues.rows() if row.key.namespace == namespace)
        if not names or not self._all.take():
            return ""
        self._seen[uid] = None
        while len(self._seen) > _KEPT:
            self._seen.popitem(last=False)
        more = len(names) - _NAMED_QUEUES
        return ", ".join(names[:_NAMED_QUEUES]) + (f" and {more} more" if more > 0 else "")

    def _is_new(self, metadata: JsonObject) -> bool:
        try:
            created = parse_time(metadata["creationTimestamp"])
        except (BadInput, KeyError):
            return False
        return (self._clock.now() - created).total_seconds() <= NEW_SECONDS

    def _limit(self, namespace: str) -> Limiter:
        found = self._limits.get(namespace)
        if found is None:
            found = self._limits[namespace] = Limiter(qps=_NAMESPACE_QPS, burst=NAMESPACE_BURST, clock=self._clock)
            while len(self._limits) > _KEPT:
                self._limits.popitem(last=False)
        return found


class LabelledPods:
    """Watches the metadata of Pods that have a queue label, and passes each new one to `hints`.

    Separate from the shared caches: a manager that may not list Pods works without these hints.
    """

    def __init__(
        self, client: KubeClient, hints: QueueHints, *, clock: Clock, random: Random, quarantine: Quarantine
    ) -> None:
        self._hints = hints
        self._informer = Informer(
            client,
            PODS,
            label_selector=QUEUE_NAME_LABEL,
            metadata_only=True,
            clock=clock,
            random=random,
            quarantine=quarantine,
        )

    async def run(self) -> None:
        """Follow until cancelled."""
        self._informer.add_handler(self._changed)
        await self._informer.run()

    def _changed(self, change: Change) -> None:
        if change.new is not None and change.old is None:
            self._hints.pod(change.new.object())


def _controller(obj: JsonObject) -> JsonObject | None:
    owners: list[JsonObject] = obj["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)
