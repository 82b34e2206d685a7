# SPDX-License-Identifier: Apache-2.0
"""Decides which nodes a DaemonSet's pods run on: by name, node selector, required node affinity and taints. Pure.

The resources of a node do not count: its pod waits until they are free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from devcluster.controllers import daemon_pods
from devcluster.controllers.pod_info import PodInfo, pod_info_of
from multikueue.api.objects import JsonObject
from multikueue.core.taints import Taint, tolerates

_STOPS: Final = "NoExecute"
_PREFERRED: Final = "PreferNoSchedule"


@dataclass(frozen=True, slots=True)
class Eligibility:
    """Whether a node gets a pod, and whether one that it has stays."""

    runs: bool
    stays: bool


NOT_ELIGIBLE: Final = Eligibility(runs=False, stays=False)


class NodeRules:
    """What one DaemonSet asks of a node."""

    def __init__(self, daemon_set: JsonObject) -> None:
        self._spec = daemon_pods.spec_of(daemon_set)
        self._info: PodInfo = pod_info_of({"spec": self._spec})

    def of(self, node: JsonObject) -> Eligibility:
        """What holds for a node; a pod stays in spite of a taint that only keeps new ones away."""
        name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
        if self._spec.get("nodeName", "") not in ("", name):
            return NOT_ELIGIBLE
        fields = {"metadata.name": name}
        terms = self._info.terms
        if terms is not None and not any(term.matches(labels, fields) for term in terms):
            return NOT_ELIGIBLE
        if not self._info.selector.matches(labels):
            return NOT_ELIGIBLE
        refused = [taint for taint in _taints(node) if not tolerates(self._info.tolerations, taint)]
        effects = {taint.effect for taint in refused if taint.effect != _PREFERRED}
        return Eligibility(runs=not effects, stays=_STOPS not in effects)


def _taints(node: JsonObject) -> list[Taint]:
    taints = (node.get("spec") or {}).get("taints") or ()
    return [Taint(entry["key"], entry.get("value") or "", entry["effect"]) for entry in taints]


def differ(old: JsonObject, new: JsonObject) -> bool:
    """Whether a change of a node can matter to a DaemonSet."""
    return old["metadata"].get("labels") != new["metadata"].get("labels") or _taints(old) != _taints(new)
