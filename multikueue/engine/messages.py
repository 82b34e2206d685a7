# SPDX-License-Identifier: Apache-2.0
"""Texts that users and other programs read (`docs/spec/engine.md §9` and as noted).

Owns the texts of conditions and events; whoever writes them limits their length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from multikueue.api.constants import WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION, CheckState
from multikueue.api.featuregates import ELASTIC_JOBS
from multikueue.api.reasons import AdmittedReason, PreemptedReason, RequeuedReason
from multikueue.core.printable import excerpt
from multikueue.engine.cache.tree import QuotaNode
from multikueue.engine.flavorassigner.assignment import Assignment, AssignmentMode, Mode
from multikueue.engine.workloads import Workload

FAILED_CHECKS: Final = "The workload has failed admission checks"
NAMESPACE_MISMATCH: Final = "workload namespace doesn't match ClusterQueue selector"
ADMITTED: Final = "The workload is admitted"
OVERLAPPING: Final = "Workload has overlapping preemption targets with another workload"
DEFERRED: Final = (
    "Workload has overlapping preemption targets with another workload, but will fit after these preemptions complete"
)
NO_LONGER_FITS: Final = "Workload no longer fits after processing another workload"
_CLAIMS_PROBLEM: Final = re.compile(r"podSet\s[^:]*:\s(it\sclaims\sdevices,|resourceClaim)\s")
CLAIM_OF_NOTHING: Final = "it names neither a template nor a claim"
CLAIM_OF_CONTAINER_ONLY: Final = "a container names it, and the pod has no claim of that name"
_RESET: Final = "Reset to Pending after eviction. Previously: "
SLICES_OFF: Final = (
    f"annotation {WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION}: elastic jobs are not supported while the feature gate"
    f" {ELASTIC_JOBS} is off"
)
GATED: Final = "Workload requires preemption, but it's gated"
WAITING_FOR_PODS_READY: Final = "waiting for all admitted workloads to be in PodsReady condition"
PENDING_EVALUATION: Final = "Workload is pending evaluation in the scheduling queue"
BYPASSED: Final = "Bypassed scheduling evaluation because an equivalent workload recently failed"
DEACTIVATED: Final = "The workload is deactivated"
DELETING: Final = "The workload is being deleted"
CLUSTER_QUEUE_STOPPED: Final = "The ClusterQueue is stopped"
LOCAL_QUEUE_STOPPED: Final = "The LocalQueue is stopped"
NOT_ADMITTED: Final = {
    AdmittedReason.NO_RESERVATION: "The workload has no reservation",
    AdmittedReason.UNSATISFIED_ADMISSION_CHECKS: "The workload has not all checks ready",
    AdmittedReason.PENDING_DELAYED_TOPOLOGY_REQUESTS: "There are pending delayed topology requests",
}
REQUEUED: Final = {
    RequeuedReason.REACTIVATED: "The workload was reactivated",
    RequeuedReason.BACKOFF_FINISHED: "The workload backoff was finished",
    RequeuedReason.CLUSTER_QUEUE_RESTARTED: "The ClusterQueue was restarted after being stopped",
    RequeuedReason.LOCAL_QUEUE_RESTARTED: "The LocalQueue was restarted after being stopped",
}

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
    """The message of a workload that waits for its victims."""
    return f"{message}. Pending the preemption of {count} workload(s)"


def flavors_considered(assignment: Assignment) -> str:
    """The part of a reservation's event about flavors other than those that simply fit (§9.4)."""
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
    """The mode of a flavor as events name it."""
    return _MODES[mode]


def assignment_mode_text(mode: AssignmentMode) -> str:
    """The mode of a workload."""
    return {
        AssignmentMode.NO_FIT: "NoFit",
        AssignmentMode.PREEMPT: "Preempt",
        AssignmentMode.DEFERRED: "DeferredFit",
        AssignmentMode.FIT: "Fit",
    }[mode]


def preempted(
    preemptor: Workload, reason: PreemptedReason, *, preemptor_node: QuotaNode, victim_node: QuotaNode
) -> str:
    """The message of a victim's conditions (§4.7)."""
    return (
        f"Preempted to accommodate a workload (UID: {preemptor.uid or 'UNKNOWN'}, JobUID:"
        f" {preemptor.job_uid or 'UNKNOWN'}) due to {_DUE_TO[reason]}; preemptor path: {preemptor_node.path()};"
        f" preemptee path: {victim_node.path()}"
    )


def slice_replaced(*, uid: str, job_uid: str) -> str:
    """The message of Finished of a slice whose quota a newer slice has taken over (§3.11)."""
    return (
        f"Replaced to accommodate a workload (UID: {uid or 'UNKNOWN'}, JobUID: {job_uid or 'UNKNOWN'}) due to workload"
        " slice aggregation"
    )


def no_replacement(nodes: Iterable[str]) -> str:
    """The text of an eviction after a node has failed."""
    return f"Workload was evicted as there was no replacement for unhealthy node(s): {', '.join(nodes)}"


def several_nodes_failed(nodes: Iterable[str]) -> str:
    """The text of an eviction after a second node has failed before the first was replaced."""
    names = ", ".join(sorted(nodes))
    return f"Workload eviction triggered due to multiple TAS assigned node failures, including: {names}"


def quota_reserved(cluster_queue: str) -> str:
    """The message of QuotaReserved=True."""
    return f"Quota reserved in ClusterQueue {cluster_queue}"


def previously(message: str) -> str:
    """The message of a condition that a reservation set to False."""
    return f"Previously: {message}"


def reset_check(state: str) -> str:
    """The message of an admission check after an eviction."""
    return f"{_RESET}{state}"


def state_before_reset(message: str) -> CheckState | None:
    """The state in a message of `reset_check`; None for any other message."""
    state = message.removeprefix(_RESET)
    return CheckState(state) if state != message and state in set(CheckState) else None


def devices_off(pod_set: str) -> str:
    """The message for a pod set that claims devices while nothing counts them."""
    return (
        f"podSet {pod_set}: it claims devices, which would not count in the quota: the feature gate"
        " KueueDRAIntegration is off"
    )


def devices_unmapped(pod_set: str) -> str:
    """The message for a pod set that claims devices where no class of devices has a resource."""
    return (
        f"podSet {pod_set}: it claims devices, which would not count in the quota:"
        " resources.deviceClassMappings of the manager's Configuration is empty"
    )


def says_claims_problem(message: str) -> bool:
    """Whether a message is one of the three of claims that cannot be counted; others begin with a pod set, too."""
    return _CLAIMS_PROBLEM.match(message) is not None


def claim_problem(pod_set: str, claim: str, problem: str) -> str:
    """The message for a claim of a pod set whose devices cannot be counted."""
    return f"podSet {pod_set}: resourceClaim {excerpt(claim)}: {problem}"


def claim_shared(claim: str) -> str:
    """Why a claim that exists is not counted."""
    return f"ResourceClaim {excerpt(claim)} is named directly; only claims that are made from templates are counted"


def claim_template_missing(template: str) -> str:
    """Why a claim is not counted whose template does not exist, or cannot be read."""
    return f"ResourceClaimTemplate {excerpt(template)} not found"


def device_request_problem(template: str, request: str, problem: str) -> str:
    """Why a request of a claim template is not counted."""
    return f"ResourceClaimTemplate {excerpt(template)}: request {excerpt(request)}: {problem}"


def devices_grown(device_class: str, *, count: int, before: int, known: bool) -> str:
    """How a template that was replaced differs from the one that was counted; one that is not known had nothing."""
    was = f"{before} before" if known else "its contents at the admission are not known"
    return f"it claims {count} of DeviceClass {excerpt(device_class)}, {was}"


def claims_grown(template: str, problem: str) -> str:
    """The message of an eviction for a claim template that was made anew since the admission."""
    return f"ResourceClaimTemplate {excerpt(template)} was replaced since the workload was admitted: {problem}"


def device_class_unmapped(name: str) -> str:
    """Why devices of a class are not counted."""
    return f"DeviceClass {excerpt(name)} is not in resources.deviceClassMappings of the manager's Configuration"


def device_sources_unsupported(resource: str) -> str:
    """Why devices are not counted whose amount comes from counters or capacities."""
    return f"the mapping of resource {excerpt(resource)} has sources, which are not supported"


def effective_priorities(preemptor: tuple[int, int], preemptee: tuple[int, int]) -> str:
    """The text of preemption events about both priorities, each as effective, base and boost (§4.7)."""
    return (
        f"preemptor effective priority: {_priority(*preemptor)}; preemptee effective priority: {_priority(*preemptee)}"
    )


def _priority(effective: int, base: int) -> str:
    return f"{effective} (base: {base}, boost: {effective - base})"


def resources_invalid(problems: Sequence[str]) -> str:
    """The message for requests above their own limits."""
    return f"resources validation failed: {_aggregate(problems)}"


def out_of_range(problems: Sequence[str]) -> str:
    """The message for requests that violate a limit range."""
    return f"resources didn't satisfy LimitRange constraints: {_aggregate(problems)}"


def namespace_missing(namespace: str) -> str:
    """The message for a workload whose namespace does not exist."""
    return f'workload namespace "{namespace}" does not exist: Namespace "{namespace}" not found'


def _aggregate(problems: Sequence[str]) -> str:
    """Several errors as Kubernetes prints them."""
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
