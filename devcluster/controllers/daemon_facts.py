# SPDX-License-Identifier: Apache-2.0
"""The facts that the plans of a DaemonSet are made from: its pods by node, and the nodes that are eligible. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from devcluster.controllers import daemon_pods, pod_facts
from devcluster.controllers.app_pods import is_available
from devcluster.controllers.daemon_nodes import Eligibility, NodeRules
from devcluster.controllers.daemon_revisions import hash_of
from multikueue.api.objects import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonFacts:
    """One DaemonSet, its pods by node, and which nodes are eligible."""

    daemon_set: JsonObject
    revision: str
    """The hash of the current revision."""
    pods: Mapping[str, Sequence[JsonObject]]
    """Without pods that ended and are being deleted; those of a node are ordered, the oldest first."""
    nodes: Mapping[str, Eligibility]
    now: datetime

    @property
    def seconds(self) -> int:
        """`minReadySeconds`."""
        return int(self.daemon_set["spec"].get("minReadySeconds", 0))

    def available(self, pod: JsonObject) -> bool:
        """Whether a pod has been ready for long enough."""
        return is_available(pod, seconds=self.seconds, now=self.now)

    def updated(self, pod: JsonObject) -> bool:
        """Whether a pod has the current template."""
        return daemon_pods.is_updated(self.daemon_set, pod, revision=self.revision)

    def has_hash(self, pod: JsonObject) -> bool:
        """Whether a pod names the current revision."""
        return hash_of(pod) == self.revision


def facts_of(
    daemon_set: JsonObject,
    pods: Iterable[JsonObject],
    nodes: Iterable[JsonObject],
    *,
    revision: str,
    now: datetime,
) -> DaemonFacts:
    """The facts; pods without a node are left out."""
    by_node: dict[str, list[JsonObject]] = {}
    for pod in daemon_pods.oldest_first(pods):
        node = daemon_pods.node_of(pod)
        if node is not None and not (pod_facts.ended(pod) and pod_facts.deleting(pod)):
            by_node.setdefault(node, []).append(pod)
    rules = NodeRules(daemon_set)
    eligible = {node["metadata"]["name"]: rules.of(node) for node in nodes}
    return DaemonFacts(daemon_set=daemon_set, revision=revision, pods=by_node, nodes=eligible, now=now)
