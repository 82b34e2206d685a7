# SPDX-License-Identifier: Apache-2.0
"""Which Workload is a job's, and whether it is still the one that the job needs.

Owns the comparison of a job with its Workloads (`docs/spec/kueue-api.md §4.2`, rule 4), and which job may own one. What
is done about a difference is `job_decision`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from manager.controllers.job_facts import ManagedJobFacts
from manager.workload.status import Status
from multikueue.api.constants import PREBUILT_WORKLOAD_LABEL, CheckState
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadCondition
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt
from multikueue.jobs.framework.pod_set_differences import summary
from multikueue.jobs.framework.protocol import InjectionConflict
from multikueue.jobs.framework.slices import was_replaced

_HINT: Final = f"name another Workload in {PREBUILT_WORKLOAD_LABEL}, or remove it"


def workload_of(facts: ManagedJobFacts) -> tuple[JsonObject | None, list[JsonObject], bool]:
    """The Workload that belongs to the job, those that do not, and whether it is known to be in sync."""
    if facts.prebuilt:
        # What it has of its own is from before it was given that one; what has finished holds no quota.
        named = next((each for each in facts.workloads if each["metadata"]["name"] == facts.prebuilt), None)
        return named, [each for each in facts.workloads if each is not named and not is_finished(each)], False
    # Former slices, of a job that was elastic before the feature was switched off, are not of its end.
    living = [workload for workload in facts.workloads if not is_deleting(workload) and not was_replaced(workload)]
    for workload in living:
        finished = is_finished(workload)
        if finished or in_sync(facts, workload, Status.of(workload)):
            return workload, [other for other in facts.workloads if other is not workload], not finished
    # None matches: the oldest is updated, or awaited while it is being deleted.
    chosen = living[0] if living else (facts.workloads[0] if facts.workloads else None)
    return chosen, [other for other in living if other is not chosen], False


def in_sync(facts: ManagedJobFacts, workload: JsonObject, status: Status) -> bool:
    """Whether the Workload is what the job needs, also with what admission added to the job. Raises `BadInput`."""
    if facts.prebuilt:
        return updates_taken_back(facts, workload, status) or not differences(facts, workload, status)
    queue: str = workload["spec"].get("queueName") or ""
    if status.admission is None and queue != facts.integration.queue_name(facts.job):
        return False
    if status.admission is not None:
        workload = facts.sized(workload)
    try:
        if facts.integration.matches(facts.job, workload):
            return True
    except BadInput:
        if status.admission is None:
            raise
        return False  # it cannot be queued as it is now; first it releases what it holds
    if status.admission is None:
        return False
    # It was started, or is being stopped, with what admission added.
    try:
        return facts.integration.matches(facts.job, workload, facts.infos(workload))
    except InjectionConflict:  # checks changed their updates since; what was injected is unknown
        return True


def differences(facts: ManagedJobFacts, workload: JsonObject, status: Status) -> tuple[str, ...]:
    """The fields in which a Workload created by another client differs from the job; empty when it matches."""
    job, integration = facts.job, facts.integration
    queue, wanted = workload["spec"].get("queueName") or "", integration.queue_name(job)
    if status.admission is None:
        kind = integration.resource.kind
        named = f"queueName: {kind} has {wanted or 'none'}, Workload has {queue or 'none'}"
        other = () if queue == wanted else (named,)
        return (*other, *integration.differences(job, workload))
    try:
        if not integration.differences(job, workload):
            return ()
        # It was started, or is being stopped, with what admission added.
        return integration.differences(job, workload, facts.infos(workload))
    except BadInput as error:
        return (str(error),)  # it cannot be queued as it is now
    except InjectionConflict:  # checks changed their updates since; what was injected is unknown
        return ()


def refusal(facts: ManagedJobFacts, workload: JsonObject, status: Status) -> str:
    """Why the Workload cannot be the job's; empty when the job owns it or may become its owner.

    A Workload has one owner, so that the quota that is reserved for it is used once.
    """
    if owns(facts, workload):
        return ""
    job, metadata = facts.job["metadata"], workload["metadata"]
    named = f"Workload {metadata['namespace']}/{metadata['name']}"
    other = _controller(workload)
    if other is not None and other.get("uid") not in facts.uids:
        return (
            f"{named} belongs to {excerpt(other.get('kind'))} {excerpt(other.get('name'))}, and a Workload has one"
            f" owner: {_HINT}"
        )
    if not facts.prebuilt:
        return ""
    if is_finished(workload):
        return f"{named} is finished and cannot be used by {job['name']}: {_HINT}"
    if is_deleting(workload):
        return f"{named} is being deleted and cannot be used by {job['name']}: {_HINT}"
    found = differences(facts, workload, status)
    if found:
        return f"{named} differs from {job['name']} in its pods or its queue: {summary(found)}: {_HINT}"
    return ""


def owns(facts: ManagedJobFacts, workload: JsonObject) -> bool:
    """Whether the job is an owner of the Workload, and no other is its controller."""
    controller = _controller(workload)
    if controller is not None:
        return controller.get("uid") in facts.uids
    return not facts.uids.isdisjoint(owner_uids(workload))


def owner_uids(workload: JsonObject) -> frozenset[str]:
    """The uids of all owners."""
    return frozenset(owner.get("uid", "") for owner in workload["metadata"].get("ownerReferences") or ())


def _controller(workload: JsonObject) -> JsonObject | None:
    owners: Sequence[JsonObject] = workload["metadata"].get("ownerReferences") or ()
    return next((owner for owner in owners if owner.get("controller")), None)


def updates_taken_back(facts: ManagedJobFacts, workload: JsonObject, status: Status) -> bool:
    """Whether the job may still have what checks added to it, although the Workload does not list it any more.

    An eviction clears the updates of checks before the job has stopped, and a check may clear them with its verdict,
    before the eviction. The job is compared once it has stopped, with its template restored.
    """
    if status.admission is None:
        return False
    if status.is_true(WorkloadCondition.EVICTED):
        stop = facts.integration.stop(facts.job, facts.sized(workload)["spec"].get("podSets") or ())
        return stop is not None or facts.integration.is_active(facts.job)
    return any(check.state in (CheckState.RETRY, CheckState.REJECTED) for check in status.checks)


def is_finished(workload: JsonObject) -> bool:
    """Whether it says so."""
    return Status.of(workload).is_true(WorkloadCondition.FINISHED)


def is_deleting(workload: JsonObject) -> bool:
    """Whether it has been asked to go."""
    return "deletionTimestamp" in workload["metadata"]
