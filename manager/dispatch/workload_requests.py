# SPDX-License-Identifier: Apache-2.0
"""The requests of an admitted workload to the nodes of a worker cluster.

Computes demands from a Workload and its flavors and keeps them: they are needed at every plan of the workload and
change only with its spec and its admission.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container
from dataclasses import replace
from typing import Final

import orjson

from manager.cache.views import View
from multikueue.api.meta import JsonObject
from multikueue.core.keys import Key
from multikueue.dispatch.worker.demands import amounts, demands
from multikueue.dispatch.worker.dependencies import dependencies
from multikueue.dispatch.worker.ledger import PODS, AskedPlacement, Demand
from multikueue.jobs.framework.pod_templates import pod_set_infos
from multikueue.jobs.framework.protocol import InjectionConflict, PodSetInfo

_SPARE: Final = 64  # how many unused demands are kept before they are removed


class WorkloadRequests:
    """The demands of workloads."""

    def __init__(self, flavors: View) -> None:
        self._flavors = flavors
        self._known: dict[str, tuple[int, bytes, tuple[Demand, ...]]] = {}
        self._shared: dict[str, tuple[Demand, ...]] = {}
        """Each demand once, by its text: a thousand jobs of one kind share it."""

    def by(self, workload: JsonObject) -> tuple[Demand, ...]:
        """The demands of the workload; none while it holds no quota."""
        admission: JsonObject = (workload.get("status") or {}).get("admission") or {}
        if not admission:
            return ()
        uid, generation = str(workload["metadata"]["uid"]), int(workload["metadata"].get("generation") or 0)
        admitted = hashlib.blake2b(orjson.dumps(admission), digest_size=16).digest()
        known = self._known.get(uid)
        if known is not None and known[:2] == (generation, admitted):
            return known[2]
        requested = self._read(workload, admission)
        requested = self._shared.setdefault(repr(requested), requested)
        self._known[uid] = (generation, admitted, requested)
        return requested

    def dependency_kinds(self, workload: JsonObject) -> frozenset[str]:
        """The kinds of the objects without which its pods do not start."""
        return frozenset(each.kind for each in dependencies(workload["spec"].get("podSets") or ()))

    def __len__(self) -> int:
        return len(self._known)

    def forget(self, uid: str) -> None:
        """The workload is gone."""
        self._known.pop(uid, None)
        if len(self._shared) > 2 * len(self._known) + _SPARE:
            self._forget_shared()

    def keep(self, uids: Container[str]) -> None:
        """Forget all workloads but these."""
        self._known = {uid: known for uid, known in self._known.items() if uid in uids}
        self._forget_shared()

    def _forget_shared(self) -> None:
        in_use = {id(requested) for _, _, requested in self._known.values()}
        self._shared = {text: requested for text, requested in self._shared.items() if id(requested) in in_use}

    def _read(self, workload: JsonObject, admission: JsonObject) -> tuple[Demand, ...]:
        assigned: list[JsonObject] = admission.get("podSetAssignments") or []
        names = {str(name) for pod_set in assigned for name in (pod_set.get("flavors") or {}).values()}
        found = {name: self._flavors.object(Key("", name)) for name in names}
        try:
            infos = pod_set_infos(workload, {name: flavor for name, flavor in found.items() if flavor is not None})
        except InjectionConflict:
            return ()  # it can start nowhere, which is reported when it is dispatched
        pod_sets = {str(pod_set["name"]): pod_set for pod_set in workload["spec"].get("podSets") or ()}
        sent = [info for info in infos if info.name in pod_sets]
        wanted = demands(_injected(pod_sets[info.name], info) for info in sent)
        asked = demands(pod_sets[info.name] for info in sent)
        usage = {str(each["name"]): each.get("resourceUsage") or {} for each in assigned}
        return tuple(
            _with_quota(_asked(demand, own), usage.get(info.name, {}))
            for demand, own, info in zip(wanted, asked, sent, strict=True)
        )


def _asked(demand: Demand, own: Demand) -> Demand:
    """The demand with what the job has itself, if flavors add to it, and whether its pods request a topology."""
    demand = replace(demand, topology=own.topology) if own.topology else demand
    if (demand.node_selector, demand.tolerations) == (own.node_selector, own.tolerations):
        return demand
    return replace(demand, asked=AskedPlacement(node_selector=own.node_selector, tolerations=own.tolerations))


def _with_quota(demand: Demand, usage: JsonObject) -> Demand:
    """The demand with what quota was reserved for and its pods do not request: of each pod."""
    other = {name: amount for name, amount in usage.items() if name not in demand.requests and name != PODS}
    if not other or not demand.count:
        return demand
    return replace(demand, quota={name: total // demand.count for name, total in amounts(other).items()})


def _injected(pod_set: JsonObject, info: PodSetInfo) -> JsonObject:
    spec: JsonObject = (pod_set.get("template") or {}).get("spec") or {}
    spec = {
        **spec,
        "nodeSelector": {**(spec.get("nodeSelector") or {}), **info.node_selector},
        "tolerations": [*(spec.get("tolerations") or ()), *info.tolerations],
    }
    return {"count": info.count, "template": {"spec": spec}}
