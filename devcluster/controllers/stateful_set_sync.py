# SPDX-License-Identifier: Apache-2.0
"""Plans the next step of a StatefulSet: the pods to create and delete, and its status.

Pure: StatefulSet, pods, revisions and the time in, `StatefulSetPlan` out. With the policy OrderedReady a plan has one
change of a pod at most, and none while a pod is not available. With Parallel only updates wait for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from devcluster.controllers import pod_facts, stateful_pods
from devcluster.controllers.app_pods import available_at, is_available
from devcluster.controllers.set_revisions import collisions_of
from multikueue.api.objects import JsonObject


@dataclass(slots=True, kw_only=True)
class StatefulSetPlan:
    """What to do, in this order."""

    relabel: list[JsonObject] = field(default_factory=list)
    """Pods without the labels that name them."""
    create: list[tuple[int, JsonObject]] = field(default_factory=list)
    """Ordinals of new pods with their revisions."""
    replace: list[JsonObject] = field(default_factory=list)
    """Pods that ended, which are deleted and created again."""
    condemned: list[JsonObject] = field(default_factory=list)
    """Pods in excess to delete."""
    update: list[JsonObject] = field(default_factory=list)
    """The pod of an earlier revision to delete."""
    status: JsonObject = field(default_factory=dict)
    after: float | None = None
    """Seconds until the next reconcile without an event; None for never."""


def plan(
    stateful_set: JsonObject,
    pods: Sequence[JsonObject],
    *,
    current: JsonObject,
    update: JsonObject,
    now: datetime,
) -> StatefulSetPlan:
    """The plan; `current` and `update` are the revisions between which the StatefulSet moves."""
    return _Sync(stateful_set, pods, current=current, update=update, now=now).plan()


class _Sync:
    """One reconcile of one StatefulSet."""

    def __init__(
        self,
        stateful_set: JsonObject,
        pods: Sequence[JsonObject],
        *,
        current: JsonObject,
        update: JsonObject,
        now: datetime,
    ) -> None:
        self.set = stateful_set
        self.spec: JsonObject = stateful_set["spec"]
        self.current, self.update = current, update
        self.now = now
        self.seconds: int = self.spec.get("minReadySeconds", 0)
        self.ordered = self.spec.get("podManagementPolicy") != "Parallel"
        start = stateful_pods.first_ordinal(stateful_set)
        self.ordinals = range(start, start + self.spec.get("replicas", 1))
        by_ordinal = {stateful_pods.ordinal_of(stateful_set, pod): pod for pod in pods}
        self.pods = list(pods)
        self.replicas = {ordinal: by_ordinal.get(ordinal) for ordinal in self.ordinals}
        excess = {ordinal: pod for ordinal, pod in by_ordinal.items() if ordinal not in self.replicas}
        self.excess = [pod for _, pod in sorted(excess.items(), key=lambda entry: entry[0] or 0, reverse=True)]
        self.plans = StatefulSetPlan()

    def plan(self) -> StatefulSetPlan:
        if "deletionTimestamp" not in self.set["metadata"] and self._fill() and self._shrink():
            self._update()
        self.plans.status = self._status()
        times = [at for pod in self.pods if (at := available_at(pod, seconds=self.seconds)) is not None]
        later = [at for at in times if at > self.now]
        self.plans.after = (min(later) - self.now).total_seconds() if later else None
        return self.plans

    def _fill(self) -> bool:
        """Create missing pods and replace ended ones; whether pods in excess are next."""
        for ordinal, pod in self.replicas.items():
            if pod is None:
                self.plans.create.append((ordinal, self._revision_at(ordinal)))
            elif pod_facts.ended(pod):
                if not pod_facts.deleting(pod):
                    self.plans.replace.append(pod)
            elif not pod_facts.deleting(pod) and self._is_available(pod):
                wanted = stateful_pods.identity(pod["metadata"]["name"], ordinal)
                if not wanted.items() <= (pod["metadata"].get("labels") or {}).items():
                    self.plans.relabel.append(pod)
                continue
            if self.ordered:
                return False
        return True

    def _shrink(self) -> bool:
        """Delete pods in excess, the highest ordinal first; whether an update is next."""
        unhealthy = next((pod for pod in self.excess if not self._is_healthy(pod)), None)
        for pod in self.excess:
            if not pod_facts.deleting(pod):
                if self.ordered and pod is not unhealthy and not self._is_available(pod):
                    return False
                self.plans.condemned.append(pod)
            if self.ordered:
                return False
        return True

    def _update(self) -> None:
        """Delete the last pod of an earlier revision, once all pods after it are available."""
        strategy = self.spec.get("updateStrategy") or {}
        if strategy.get("type") == "OnDelete":
            return
        partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
        for ordinal in reversed(self.ordinals[partition:]):
            pod = self.replicas[ordinal]
            if pod is None:
                return
            if stateful_pods.revision_of(pod) != self._name and not pod_facts.deleting(pod):
                self.plans.update.append(pod)
                return
            if pod_facts.deleting(pod) or not self._is_available(pod):
                return

    @property
    def _name(self) -> str:
        return str(self.update["metadata"]["name"])

    def _revision_at(self, ordinal: int) -> JsonObject:
        strategy = self.spec.get("updateStrategy") or {}
        partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
        kept = strategy.get("type") == "RollingUpdate" and ordinal < self.ordinals.start + partition
        return self.current if kept else self.update

    def _is_available(self, pod: JsonObject) -> bool:
        return stateful_pods.is_running(pod) and is_available(pod, seconds=self.seconds, now=self.now)

    def _is_healthy(self, pod: JsonObject) -> bool:
        return stateful_pods.is_running(pod) and not pod_facts.deleting(pod)

    def _status(self) -> JsonObject:
        current, update = self.current["metadata"]["name"], self._name
        removed = {pod_facts.uid(pod) for pod in (*self.plans.condemned, *self.plans.update, *self.plans.replace)}
        revisions = [
            stateful_pods.revision_of(pod)
            for pod in self.pods
            if not pod_facts.deleting(pod) and pod_facts.uid(pod) not in removed
        ]
        revisions += [revision["metadata"]["name"] for _, revision in self.plans.create]
        replicas = len(self.pods) + len(self.plans.create)
        ready = sum(map(stateful_pods.is_running, self.pods))
        updated, is_current = revisions.count(update), revisions.count(current)
        strategy = (self.spec.get("updateStrategy") or {}).get("type", "RollingUpdate")
        if strategy == "RollingUpdate" and updated == replicas == ready:
            current, is_current = update, updated
        counts = {
            "observedGeneration": self.set["metadata"].get("generation", 0),
            "readyReplicas": ready,
            "currentReplicas": is_current,
            "updatedReplicas": updated,
        }
        old = self.set.get("status") or {}
        return {
            "replicas": replicas,
            "availableReplicas": sum(map(self._is_available, self.pods)),
            **{name: value for name, value in counts.items() if value},
            "currentRevision": current,
            "updateRevision": update,
            "collisionCount": collisions_of(self.set),
            **({"conditions": old["conditions"]} if "conditions" in old else {}),
        }
