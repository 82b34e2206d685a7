# SPDX-License-Identifier: Apache-2.0
"""Plans the next step of a Deployment: its ReplicaSets and its status.

Pure: Deployment, ReplicaSets, pods and the time in, `DeploymentPlan` out. A plan is executed in the order of its
fields; the next plan starts from the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from devcluster.controllers import app_conditions, deployment_status, pod_facts, revision_sets, rollout_sizes
from devcluster.controllers.revision_sets import REVISION, RevisionSet
from devcluster.controllers.rollout_sizes import RolloutLimits
from multikueue.api.objects import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentPlan:
    """What to do, in this order."""

    create: RevisionSet | None = None
    change: tuple[RevisionSet, ...] = ()
    delete: tuple[RevisionSet, ...] = ()
    status: JsonObject
    revision: str | None = None
    """The Deployment's own annotation of its revision; None to keep it."""
    after: float | None = None
    """Seconds until the next reconcile without an event; None for never."""


def plan(
    deployment: JsonObject,
    sets: Sequence[JsonObject],
    *,
    pods: Mapping[str, Sequence[JsonObject]],
    now: datetime,
) -> DeploymentPlan:
    """The plan; `pods` are those of each ReplicaSet by its uid, needed for the strategy Recreate only."""
    return _Sync(deployment, [RevisionSet.of(each) for each in sets], pods=pods, now=now).plan()


class _Sync:
    """One reconcile of one Deployment."""

    def __init__(
        self,
        deployment: JsonObject,
        sets: list[RevisionSet],
        *,
        pods: Mapping[str, Sequence[JsonObject]],
        now: datetime,
    ) -> None:
        self.deployment = deployment
        self.spec: JsonObject = deployment["spec"]
        self.limits = RolloutLimits.of(deployment)
        self.recreate = (self.spec.get("strategy") or {}).get("type") == "Recreate"
        self.pods = pods
        self.now = now
        self.current = revision_sets.current_of(deployment, sets)
        self.old = [each for each in sets if each is not self.current]
        self.conditions: list[JsonObject] = list((deployment.get("status") or {}).get("conditions") or ())
        self.revision: str | None = None
        self.deleted: list[RevisionSet] = []

    @property
    def sets(self) -> list[RevisionSet]:
        """All ReplicaSets; the current one is last."""
        return [*self.old, *([self.current] if self.current is not None else [])]

    def plan(self) -> DeploymentPlan:
        if "deletionTimestamp" in self.deployment["metadata"]:
            return self._planned(self._status(), None)
        self.conditions = deployment_status.pause_condition(self.deployment, self.conditions, now=self.now)
        if self.spec.get("paused") or rollout_sizes.is_scaled(self.sets, limits=self.limits):
            return self._scale()
        if self.recreate:
            self._recreate()
        else:
            self._roll()
        status, after = deployment_status.with_progress(
            self.deployment, self._status(), self.current, self.sets, limits=self.limits, now=self.now
        )
        return self._planned(status, after)

    def _scale(self) -> DeploymentPlan:
        """A paused Deployment is only scaled, and so is one whose size has changed."""
        self._adopt_current()
        before = (self.deployment.get("status") or {}).get("replicas", 0)
        rollout_sizes.rescale(
            self.current, self.old, limits=self.limits, recreate=self.recreate, replicas_before=before
        )
        if self.spec.get("paused"):
            self._clean_up()
        return self._planned(self._status(), None)

    def _roll(self) -> None:
        current = self._ensure_current()
        if rollout_sizes.grow_current(current, self.old, limits=self.limits, recreate=False):
            return
        if rollout_sizes.shrink_old(current, self.old, limits=self.limits):
            return
        self._finish()

    def _recreate(self) -> None:
        self._adopt_current()
        if rollout_sizes.empty(self.old, limits=self.limits) or self._old_pods_run():
            return
        current = self._ensure_current()
        rollout_sizes.grow_current(current, self.old, limits=self.limits, recreate=True)
        self._finish()

    def _finish(self) -> None:
        if deployment_status.is_complete(self.deployment, limits=self.limits):
            self._clean_up()

    def _clean_up(self) -> None:
        limit = self.spec.get("revisionHistoryLimit")
        if limit is not None:
            self.deleted = revision_sets.outdated(self.old, limit=limit)

    def _adopt_current(self) -> None:
        """Give the current ReplicaSet, if there is one, its revision and annotations."""
        if self.current is None:
            return
        revision_sets.annotate(self.deployment, self.current, old=self.old)
        self.revision = self.current.annotations[REVISION]
        if app_conditions.find(self.conditions, deployment_status.PROGRESSING) is None:
            self._progress("FoundNewReplicaSet", f'Found new replica set "{self.current.name}"')

    def _ensure_current(self) -> RevisionSet:
        """The current ReplicaSet, which is planned if there is none."""
        if self.current is not None:
            self._adopt_current()
            return self.current
        made = self.current = revision_sets.replica_set_of(self.deployment)
        revision_sets.annotate(self.deployment, made, old=self.old)
        size = rollout_sizes.first_size(made, self.sets, limits=self.limits, recreate=self.recreate)
        rollout_sizes.resize(made, size, limits=self.limits)
        self.revision = made.annotations[REVISION]
        self._progress("NewReplicaSetCreated", f'Created new replica set "{made.name}"')
        return made

    def _progress(self, reason: str, message: str) -> None:
        if deployment_status.deadline_of(self.deployment) is not None:
            self.conditions = deployment_status.progressing(self.conditions, "True", reason, message, now=self.now)

    def _old_pods_run(self) -> bool:
        """Whether pods of an earlier template have not ended, also those that are being deleted."""
        if sum(each.count("replicas") for each in self.old):
            return True
        found = [pod for each in self.old for pod in self.pods.get(each.value["metadata"]["uid"], ())]
        return any(not pod_facts.ended(pod) for pod in found)

    def _status(self) -> JsonObject:
        return deployment_status.counts_of(
            self.deployment,
            self.current,
            self.sets,
            conditions=self.conditions,
            limits=self.limits,
            now=self.now,
        )

    def _planned(self, status: JsonObject, after: float | None) -> DeploymentPlan:
        annotations = self.deployment["metadata"].get("annotations") or {}
        changed = [each for each in self.sets if not each.is_new and each.patch() is not None]
        return DeploymentPlan(
            create=self.current if self.current is not None and self.current.is_new else None,
            change=tuple(each for each in changed if each not in self.deleted),
            delete=tuple(self.deleted),
            status=status,
            revision=self.revision if self.revision != annotations.get(REVISION) else None,
            after=after,
        )
