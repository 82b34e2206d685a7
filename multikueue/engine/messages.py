# SPDX-License-Identifier: Apache-2.0
"""The words that users and other programs read (`docs/spec/engine.md §9` and where it says so).

Owns the texts of conditions and events; lengths are cut by who writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from multikueue.api.reasons import PreemptedReason
from multikueue.engine.assignment import Assignment, AssignmentMode, Mode
from multikueue.engine.tree import Node
from multikueue.engine.workloads import Workload

FAILED_CHECKS: Final = "The workload has failed admission checks"
NAMESPACE_MISMATCH: Final = "workload namespace doesn't match ClusterQueue selector"
NO_RESERVATION: Final = "The workload has no reservation"
ADMITTED: Final = "The workload is admitted"
UNSATISFIED_CHECKS: Final = "The workload has not all checks ready"
OVERLAPPING: Final = "Workload has overlapping preemption targets with another workload"
DEFERRED: Final = (
    "Workload has overlapping preemption targets with another workload, but will fit after these preemptions complete"
)
NO_LONGER_FITS: Final = "Workload no longer fits after processing another workload"
GATED: Final = "Workload requires preemption, but it's gated"
WAITING_FOR_PODS_READY: Final = "waiting for all admitted workloads to be in PodsReady condition"
PENDING_EVALUATION: Final = "Workload is pending evaluation in the scheduling queue"
BYPASSED: Final = "Bypassed scheduling evaluation because an equivalent workload recently failed"
DEACTIVATED: Final = "The workload is deactivated"
CLUSTER_QUEUE_STOPPED: Final = "The ClusterQueue is stopped"
LOCAL_QUEUE_STOPPED: Final = "The LocalQueue is stopped"
REACTIVATED: Final = "The workload was reactivated"
BACKOFF_FINISHED: Final = "The workload backoff was finished"
CLUSTER_QUEUE_RESTARTED: Final = "The ClusterQueue was restarted after being stopped"
LOCAL_QUEUE_RESTARTED: Final = "The LocalQueue was restarted after being stopped"

_DUE_TO: Final = {
    PreemptedReason.IN_CLUSTER_QUEUE: "prioritization in the ClusterQueue",
    PreemptedReason.IN_COHORT_RECLAMATION: "reclamation within the cohort",
    PreemptedReason.IN_COHORT_FAIR_SHARING: "Fair Sharing within the cohort",
    PreemptedReason.IN_COHORT_RECLAIM_WHILE_BORROWING: "reclamation within the cohort while borrowing",
}
_MODES: Final = {
    Mode.NO_FIT: "NoFit",
    Mode.NO_CANDIDATES: "preemptionMode=NoCandidates",
    Mode.PREEMPT: "preemptionMode=Preempt",
    Mode.RECLAIM: "preemptionMode=Reclaim",
    Mode.FIT: "Fit",
}


def pending(assignment: Assignment) -> str:
    """Why no flavors were found, pod set by pod set (§9.1)."""
    parts = []
    for pod_set in assignment.pod_sets:
        if pod_set.error:
            return f"failed to assign flavors to pod set {pod_set.name}: {pod_set.error}"
        if pod_set.reasons:
            parts.append(f"couldn't assign flavors to pod set {pod_set.name}: {', '.join(sorted(pod_set.reasons))}")
    return "; ".join(parts)


def pending_preemption(message: str, count: int) -> str:
    """The message of a workload whose victims are told to go."""
    return f"{message}. Pending the preemption of {count} workload(s)"


def failed_preemption(message: str, count: int) -> str:
    """The message of a workload whose victims could not be told."""
    return f"{message}. Preempting {count} workload(s) failed, will retry."


def flavors_considered(assignment: Assignment) -> str:
    """What the event of a reservation says of flavors other than those that simply fit (§9.4)."""
    parts = []
    for pod_set in assignment.pod_sets:
        shown = []
        for attempt in sorted(pod_set.attempts, key=lambda attempt: attempt.flavor):
            if attempt.mode is Mode.FIT and attempt.level == 0:
                continue
            borrow = f";borrow={attempt.level}" if attempt.level else ""
            reasons = "".join(f";{reason}" for reason in attempt.reasons)
            shown.append(f"{attempt.flavor}({_MODES[attempt.mode]}{borrow}{reasons})")
        if shown:
            parts.append(f"{pod_set.name}: {', '.join(shown)}")
    return " | ".join(parts)


def mode_text(mode: Mode) -> str:
    """How a flavor would be had, as events name it."""
    return _MODES[mode]


def assignment_mode_text(mode: AssignmentMode) -> str:
    """How a workload would be had."""
    return {
        AssignmentMode.NO_FIT: "NoFit",
        AssignmentMode.PREEMPT: "Preempt",
        AssignmentMode.DEFERRED: "DeferredFit",
        AssignmentMode.FIT: "Fit",
    }[mode]


def preempted(preemptor: Workload, reason: PreemptedReason, *, preemptor_node: Node, victim_node: Node) -> str:
    """The message of a victim's conditions (§4.7)."""
    return (
        f"Preempted to accommodate a workload (UID: {preemptor.uid or 'UNKNOWN'}, JobUID:"
        f" {preemptor.job_uid or 'UNKNOWN'}) due to {_DUE_TO[reason]}; preemptor path: {preemptor_node.path()};"
        f" preemptee path: {victim_node.path()}"
    )


def quota_reserved(cluster_queue: str) -> str:
    """The message of QuotaReserved=True."""
    return f"Quota reserved in ClusterQueue {cluster_queue}"


def previously(message: str) -> str:
    """The message of a condition that a reservation turned False."""
    return f"Previously: {message}"


def reset_check(state: str) -> str:
    """The message of an admission check after an eviction."""
    return f"Reset to Pending after eviction. Previously: {state}"


def resources_invalid(problems: Sequence[str]) -> str:
    """Requests above their own limits."""
    return f"resources validation failed: {_aggregate(problems)}"


def out_of_range(problems: Sequence[str]) -> str:
    """Requests that break a limit range."""
    return f"resources didn't satisfy LimitRange constraints: {_aggregate(problems)}"


def namespace_missing(namespace: str) -> str:
    """A workload of a namespace that is not there."""
    return f'workload namespace "{namespace}" does not exist: Namespace "{namespace}" not found'


def _aggregate(problems: Sequence[str]) -> str:
    """Several errors as Kubernetes prints them."""
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
