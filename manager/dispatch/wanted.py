# SPDX-License-Identifier: Apache-2.0
"""What an admitted workload wants of the nodes of a worker cluster.

Owns the way from a Workload and its flavors to demands, and a memory of them: they are asked for at every look at the
workload and change only with its spec and its admission.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container
from typing import Final

import orjson

from manager.views import View
from multikueue.api.meta import JsonObject
from multikueue.core.keys import Key
from multikueue.federation.demands import demands
from multikueue.federation.ledger import Demand
from multikueue.integrations.admission_infos import pod_set_infos
from multikueue.integrations.protocol import InjectionConflict, PodSetInfo

_SPARE: Final = 64  # demands that nobody wants any more are looked for when there are that many of them, or more


class Wanted:
    """The demands of workloads."""

    def __init__(self, flavors: View) -> None:
        self._flavors = flavors
        self._known: dict[str, tuple[int, bytes, tuple[Demand, ...]]] = {}
        self._shared: dict[str, tuple[Demand, ...]] = {}
        """Each demand once, by its text: a thousand jobs of one kind want the same."""

    def by(self, workload: JsonObject) -> tuple[Demand, ...]:
        """What the workload wants; nothing while it holds no quota."""
        admission: JsonObject = (workload.get("status") or {}).get("admission") or {}
        if not admission:
            return ()
        uid, generation = str(workload["metadata"]["uid"]), int(workload["metadata"].get("generation") or 0)
        admitted = hashlib.blake2b(orjson.dumps(admission), digest_size=16).digest()
        known = self._known.get(uid)
        if known is not None and known[:2] == (generation, admitted):
            return known[2]
        wanted = self._read(workload, admission)
        wanted = self._shared.setdefault(repr(wanted), wanted)
        self._known[uid] = (generation, admitted, wanted)
        return wanted

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
        in_use = {id(wanted) for _, _, wanted in self._known.values()}
        self._shared = {text: wanted for text, wanted in self._shared.items() if id(wanted) in in_use}

    def _read(self, workload: JsonObject, admission: JsonObject) -> tuple[Demand, ...]:
        assigned: list[JsonObject] = admission.get("podSetAssignments") or []
        names = {str(name) for pod_set in assigned for name in (pod_set.get("flavors") or {}).values()}
        found = {name: self._flavors.object(Key("", name)) for name in names}
        try:
            infos = pod_set_infos(workload, {name: flavor for name, flavor in found.items() if flavor is not None})
        except InjectionConflict:
            return ()  # it can start nowhere, which is told when it is tried
        pod_sets = {str(pod_set["name"]): pod_set for pod_set in workload["spec"].get("podSets") or ()}
        return demands(_injected(pod_sets[info.name], info) for info in infos if info.name in pod_sets)


def _injected(pod_set: JsonObject, info: PodSetInfo) -> JsonObject:
    spec: JsonObject = (pod_set.get("template") or {}).get("spec") or {}
    spec = {
        **spec,
        "nodeSelector": {**(spec.get("nodeSelector") or {}), **info.node_selector},
        "tolerations": [*(spec.get("tolerations") or ()), *info.tolerations],
    }
    return {"count": info.count, "template": {"spec": spec}}
