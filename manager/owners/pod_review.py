# SPDX-License-Identifier: Apache-2.0
"""Pods that run in the name of an owner whose quota does not cover them.

Who wrote an owner reference is not known of a pod that was created while the webhook was not installed, or before its
namespace was managed. So what is known is judged: whether the queued owner exists and is admitted here, and whether
all pods below it fit into its Workload, the oldest first. Pods that the manager has gated are not: their own reconcile
compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from manager.cache.ancestors import Ancestry, ancestry
from manager.cache.queue_targets import Views
from manager.owners.amounts import ZERO, Amounts, above, held_by
from manager.owners.owner_quota import coverage
from multikueue.api.constants import ADMISSION_SCHEDULING_GATE, MANAGED_LABEL
from multikueue.api.meta import JsonObject
from multikueue.api.objects import controller_of
from multikueue.api.resource import PODS, Resource
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.printable import excerpt
from multikueue.core.quantity import Quantity
from multikueue.engine.decode.pods import Shapes
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.jobs.kinds.oversized_pods import requests_of

RUNNING: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""The field selector of pods that may be judged."""
_ENDED: Final = frozenset({"Succeeded", "Failed"})
WorkloadsOf = Callable[[Resource, Key], Iterable[JsonObject]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UncoveredPod:
    """A pod, and why the quota of its owner does not cover it."""

    key: Key
    uid: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pod:
    key: Key
    uid: str
    created: str
    requests: Amounts


class PodReview:
    """Takes pods one by one, and keeps of each what the judgement needs."""

    def __init__(
        self, registry: JobRegistry, views: Views, workloads_of: WorkloadsOf, *, manage_unqueued: bool
    ) -> None:
        self._registry = registry
        self._views = views
        self._workloads_of = workloads_of
        self._manage_unqueued = manage_unqueued
        self._shapes = Shapes(limit=256)
        self._found: list[UncoveredPod] = []
        self._below: dict[tuple[Resource, Key], list[_Pod]] = {}

    def add(self, pod: JsonObject) -> None:
        """Take in a pod of a managed namespace."""
        owner = controller_of(pod)
        if owner is None or not _runs_unreviewed(pod):
            return
        version, kind = str(owner.get("apiVersion") or ""), str(owner.get("kind") or "")
        direct = self._registry.for_kind(version, kind)
        if direct is None or direct.traits.needs_managed_label:
            return  # of owners that are pods, such as drivers of Spark, not all are known
        found = ancestry(pod, self._registry, self._views, kind=PODS, manage_unqueued=self._manage_unqueued)
        metadata = pod["metadata"]
        key, uid = Key(metadata["namespace"], metadata["name"]), str(metadata.get("uid") or "")
        if found.missing is not None:
            self._report(key, uid, f"the owner {excerpt(found.missing.name)} above it does not exist")
        elif found.integration is not None and found.key is not None:
            try:
                requests = requests_of(pod, self._shapes)
            except BadInput as error:
                self._report(key, uid, f"{_name(found)} may have less quota: {error}")
                return
            one = _Pod(key=key, uid=uid, created=str(metadata.get("creationTimestamp") or ""), requests=requests)
            self._below.setdefault((found.integration.resource, found.key), []).append(one)

    def uncovered(self, *, now: datetime) -> list[UncoveredPod]:
        """The pods that are not covered, by name."""
        found = list(self._found)
        for (resource, key), pods in self._below.items():
            covering = coverage(self._workloads_of(resource, key), now=now)
            name = f"{resource.kind} {key.name}, its owner,"
            if not covering.workloads:
                found += [UncoveredPod(key=each.key, uid=each.uid, why=f"{name} {covering.lack}") for each in pods]
                continue
            held = held_by(covering.workloads)
            served: dict[str, Quantity] = {}
            for each in sorted(pods, key=lambda one: (one.created, one.key)):
                wanted = {resource: served.get(resource, ZERO) + n for resource, n in each.requests.items()}
                more = above(wanted, held)
                if not more:
                    served |= wanted
                    continue
                amounts = ", ".join(f"{each} {wanted[each]} instead of {held.get(each, ZERO)}" for each in more)
                why = f"{name} has less quota than its pods request: {amounts}"
                found.append(UncoveredPod(key=each.key, uid=each.uid, why=why))
        return sorted(found, key=lambda one: one.key)

    def _report(self, key: Key, uid: str, why: str) -> None:
        self._found.append(UncoveredPod(key=key, uid=uid, why=why))


def _runs_unreviewed(pod: JsonObject) -> bool:
    metadata = pod["metadata"]
    if "deletionTimestamp" in metadata or MANAGED_LABEL in (metadata.get("labels") or {}):
        return False
    if str((pod.get("status") or {}).get("phase") or "") in _ENDED:
        return False
    gates = (pod.get("spec") or {}).get("schedulingGates") or ()
    return all(gate.get("name") != ADMISSION_SCHEDULING_GATE for gate in gates)


def _name(found: Ancestry) -> str:
    assert found.integration is not None
    assert found.key is not None
    return f"{found.integration.resource.kind} {found.key.name}, its owner,"
