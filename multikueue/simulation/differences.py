# SPDX-License-Identifier: Apache-2.0
"""The effect of changed manifests on the same workloads.

Compares the ends of two runs, workload by workload. A workload is `Reserved` with its flavors, or `Pending`; one that
is missing on a side is `Absent`.
"""

from __future__ import annotations

from multikueue.api.objects import JsonObject
from multikueue.api.resource import WORKLOADS
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.simulation.job_kinds import SimulatedKinds
from multikueue.simulation.manifests import Manifest
from multikueue.simulation.simulated_cluster import SimulatedCluster


def with_workloads_of(manifests: list[Manifest], others: list[Manifest], *, kinds: SimulatedKinds) -> list[Manifest]:
    """The queues, flavors and classes of `others` with the workloads and jobs of `manifests`.

    Kinds that `others` do not contain are taken from `manifests`, so that a changed ClusterQueue alone can be compared.
    Raises `BadInput` if there is nothing to compare with.
    """
    kept = [each for each in others if each.kind != WORKLOADS.kind and kinds.integration(each.group, each.kind) is None]
    if not kept:
        raise BadInput("--diff: the other manifests contain no queue, flavor or class")
    held = {(manifest.group, manifest.kind) for manifest in kept}
    return kept + [manifest for manifest in manifests if (manifest.group, manifest.kind) not in held]


def compare(before: SimulatedCluster, after: SimulatedCluster) -> JsonObject:
    """Each workload whose state differs, and the number of the others."""
    changes = []
    same = 0
    for key in sorted(before.workloads.keys() | after.workloads.keys()):
        was, becomes = _state_of(before, key), _state_of(after, key)
        if was == becomes:
            same += 1
        else:
            changes.append({"workload": str(key), "before": was, "after": becomes})
    return {"changes": changes, "unchanged": same}


def _state_of(cluster: SimulatedCluster, key: Key) -> str:
    value = cluster.workloads.get(key)
    if value is None:
        return "Absent"
    if value.finished:
        return "Finished"
    if value.admission is None or not value.reserved:
        return "Pending"
    flavors = sorted({flavor for pod_set in value.admission.pod_sets for flavor in pod_set.flavors.values()})
    counts = "+".join(str(pod_set.count) for pod_set in value.admission.pod_sets)
    return f"Reserved in {value.admission.cluster_queue} on {'+'.join(flavors) or 'no flavor'} x{counts}"
