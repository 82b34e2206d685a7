# SPDX-License-Identifier: Apache-2.0
"""What a change of manifests would do to the same workloads.

Owns the comparison of the ends of two runs, workload by workload. A workload stands as `Reserved` with its flavors, or
as `Pending`; what the manifests of one side do not hold is `Absent`.
"""

from __future__ import annotations

from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.simulation.manifests import Manifest
from multikueue.simulation.world import World

_CARRIED = frozenset({"Workload", "Job"})


def with_workloads_of(manifests: list[Manifest], others: list[Manifest]) -> list[Manifest]:
    """The queues, flavors and classes of `others` with the workloads of `manifests`.

    Kinds of which `others` hold nothing are those of `manifests`, so that one may compare with a changed ClusterQueue
    alone. Raises `BadInput` when there is nothing to compare with.
    """
    kept = [manifest for manifest in others if manifest.kind not in _CARRIED]
    if not kept:
        raise BadInput("--diff: the other manifests hold no queue, flavor or class")
    held = {(manifest.group, manifest.kind) for manifest in kept}
    return kept + [manifest for manifest in manifests if (manifest.group, manifest.kind) not in held]


def compare(before: World, after: World) -> JsonObject:
    """Each workload that stands otherwise, and how many do not."""
    changes = []
    same = 0
    for key in sorted(before.workloads.keys() | after.workloads.keys()):
        was, becomes = _standing(before, key), _standing(after, key)
        if was == becomes:
            same += 1
        else:
            changes.append({"workload": str(key), "before": was, "after": becomes})
    return {"changes": changes, "unchanged": same}


def _standing(world: World, key: Key) -> str:
    value = world.workloads.get(key)
    if value is None:
        return "Absent"
    if value.finished:
        return "Finished"
    if value.admission is None or not value.reserved:
        return "Pending"
    flavors = sorted({flavor for pod_set in value.admission.pod_sets for flavor in pod_set.flavors.values()})
    counts = "+".join(str(pod_set.count) for pod_set in value.admission.pod_sets)
    return f"Reserved in {value.admission.cluster_queue} on {'+'.join(flavors) or 'no flavor'} x{counts}"
