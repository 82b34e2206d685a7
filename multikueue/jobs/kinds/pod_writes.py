# SPDX-License-Identifier: Apache-2.0
"""What is written to the pods of a job: they are started, stopped, deleted, and let go of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from multikueue.api.constants import POD_FINALIZER, SCHEDULING_GATES
from multikueue.api.objects import JsonObject
from multikueue.api.reasons import STOP_REASON_NOT_ADMITTED, PodCondition
from multikueue.core.merge_patch import merge_patch
from multikueue.jobs.framework.pod_templates import injected
from multikueue.jobs.framework.protocol import JobWrite, PodSetInfo
from multikueue.jobs.kinds.pod_group import is_held_back


def started_pod(pod: JsonObject, info: PodSetInfo) -> JobWrite:
    """The patch that injects into a gated pod and removes its gates. Raises `InjectionConflict`.

    Kueue gates each pod for topologies as well: one that it has made, or sent from its hub, has both gates.
    """
    before = {"metadata": pod["metadata"], "spec": pod["spec"]}
    after = injected(before, info)
    # The gate that a topology removes, once the pod has its domain, cannot be added now.
    kept = [gate for gate in info.scheduling_gates if gate in pod["spec"]["schedulingGates"]]
    own = (gate for gate in after["spec"]["schedulingGates"] if gate.get("name") not in SCHEDULING_GATES)
    gates = [*own, *kept]
    spec = {key: value for key, value in after["spec"].items() if key != "schedulingGates"}
    after["spec"] = {**spec, **({"schedulingGates": gates} if gates else {})}
    return JobWrite(body=merge_patch(before, after), target=pod)


def stopped_pod(pod: JsonObject) -> tuple[JobWrite, JobWrite]:
    """The writes that mark a pod as stopped by us, and delete it."""
    return _marked(pod), JobWrite(delete=True, target=pod)


def _marked(pod: JsonObject) -> JobWrite:
    entry = {
        "type": PodCondition.TERMINATION_TARGET,
        "status": "True",
        "reason": STOP_REASON_NOT_ADMITTED,
        "message": "Its Workload is not admitted any more",
    }
    old = (pod.get("status") or {}).get("conditions") or ()
    others = [each for each in old if each.get("type") != PodCondition.TERMINATION_TARGET]
    return JobWrite(body={"status": {"conditions": [*others, entry]}}, subresource="status", target=pod)


def together(writes: Iterable[JobWrite | None]) -> JobWrite | None:
    """One write of all; None if there are none."""
    due = [write for write in writes if write is not None]
    if not due:
        return None
    first, *others = due
    return replace(first, also=tuple(others))


def released(pod: JsonObject) -> JobWrite:
    """The write that removes our finalizer, which keeps an ended pod until another one has its place."""
    left = [name for name in pod["metadata"].get("finalizers") or () if name != POD_FINALIZER]
    return JobWrite(body={"metadata": {"finalizers": left or None}}, target=pod)


def deleted(pod: JsonObject) -> JobWrite:
    """The write that deletes a pod, and lets go of it first."""
    delete = JobWrite(delete=True, target=pod)
    if not is_held_back(pod):
        return delete
    kept = released(pod)
    return JobWrite(body=kept.body, target=pod, also=(delete,))
