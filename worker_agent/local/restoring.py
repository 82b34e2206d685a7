# SPDX-License-Identifier: Apache-2.0
"""Restores the assignments of an in-memory mailbox from the remote jobs on the worker.

Each remote job is annotated with its Workload, epoch and manager. A job of another manager or agent, or without these
annotations, restores nothing. A restored assignment has the status Running, so that no second job is started for it, or
Finished: a failed job is kept for a while after its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from multikueue.api.constants import CLUSTER_LABEL, ORIGIN_LABEL
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import AssignmentPhase, Intent, assignment_name
from multikueue.api.resource import REMOTE_ASSIGNMENTS
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time
from multikueue.dispatch.protocol.epochs import marked_epoch
from multikueue.dispatch.worker.assignment_state import RemoteJobFacts
from multikueue.jobs.framework.capabilities import GroupedKind, RuntimeKind
from multikueue.jobs.framework.traits import Hold
from multikueue.jobs.kinds.remote_pods import MEMBERS
from multikueue.kube.runtime.quarantine import Quarantine
from worker_agent.hub.in_memory_mailbox import InMemoryMailbox
from worker_agent.local.jobs import RemoteJobs, workload_name
from worker_agent.local.queueing.queues import Queues

_MEMBER_METADATA: Final = ("name", "namespace", "labels", "annotations")


def restore_assignments(
    mailbox: InMemoryMailbox, kinds: Iterable[RemoteJobs], queues: Queues, *, origin: str, quarantine: Quarantine
) -> None:
    """Restore the assignment of each remote job, and one without an epoch for each that Kueue has sent.

    So the hub knows that those are there, and sends its assignment to take them over.
    """
    for jobs in kinds:
        for workload in jobs.workloads_of_kueue():
            sent = sorted(jobs.sent_by_kueue(workload))
            with quarantine.guard("restore", jobs.integration.resource, sent[0]):
                found = _of_kueue(mailbox, jobs, sent, workload=workload, origin=origin)
                if found is not None:
                    mailbox.restore(found)
        for name in jobs.assignments():
            for key in jobs.of_assignment(name):
                # Users of the worker may write any annotation on a job: one that cannot be read restores nothing.
                with quarantine.guard("restore", jobs.integration.resource, key):
                    job = jobs.get(key)
                    obj = None if job is None else _assignment(mailbox, jobs, job, name=name, origin=origin)
                    if obj is not None and job is not None:
                        obj = _grouped(obj, jobs, job, keys=jobs.of_assignment(name))
                        mailbox.restore(_queued(obj, queues.clones.of_assignment(name)))


def _assignment(
    mailbox: InMemoryMailbox, jobs: RemoteJobs, job: JsonObject, *, name: str, origin: str
) -> JsonObject | None:
    metadata: JsonObject = job["metadata"]
    metadata_values: dict[str, str] = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    workload = Key(metadata["namespace"], workload_name(metadata.get("annotations") or {}))
    manager = jobs.manager_uid(job)
    facts = jobs.facts(job, assignment=name, manager_uid=manager)
    if manager != mailbox.manager_uid or not facts.ours or not facts.epoch or assignment_name(workload) != name:
        return None
    # A pod is stopped by deletion: one that is still there was not stopped.
    stopped = facts.suspended and jobs.integration.traits.hold is Hold.SUSPEND
    intent = Intent.EVICT if stopped else Intent.RUN
    marked = metadata_values.get(ORIGIN_LABEL, origin)
    spec = _spec(mailbox, jobs, job, workload=workload, origin=marked, intent=intent, epoch=facts.epoch)
    return {**_head(mailbox, name), "spec": spec, "status": _status(facts)}


def _head(mailbox: InMemoryMailbox, name: str) -> JsonObject:
    metadata = {"name": name, "namespace": mailbox.namespace, "annotations": {CLUSTER_LABEL: mailbox.cluster}}
    return {"apiVersion": REMOTE_ASSIGNMENTS.api_version, "kind": REMOTE_ASSIGNMENTS.kind, "metadata": metadata}


def _spec(
    mailbox: InMemoryMailbox,
    jobs: RemoteJobs,
    job: JsonObject,
    *,
    workload: Key,
    origin: str,
    intent: Intent,
    epoch: int,
) -> JsonObject:
    kind, metadata = jobs.integration, job["metadata"]
    # The hub knows which pods its runtime describes, and sends the assignment whole.
    described: JsonObject = {"workloadSpec": {"podSets": []}} if isinstance(kind, RuntimeKind) else {}
    return {
        "workload": {
            "namespace": workload.namespace,
            "name": workload.name,
            "uid": mailbox.workload_uid(workload),
        },
        "origin": origin,
        "managerUID": mailbox.manager_uid,
        "epoch": epoch,
        "intent": str(intent),
        **described,
        "job": {
            "apiVersion": kind.resource.api_version,
            "kind": kind.resource.kind,
            "name": metadata["name"],
            "manifest": {**_unnamed(job), "metadata": {"namespace": metadata["namespace"]}},
        },
    }


def _of_kueue(
    mailbox: InMemoryMailbox, jobs: RemoteJobs, keys: Sequence[Key], *, workload: Key, origin: str
) -> JsonObject | None:
    """The assignment of a job, or of the pods of a group, that has none yet: of epoch 0, older than any."""
    job = jobs.get(keys[0])
    if job is None:
        return None
    spec = _spec(mailbox, jobs, job, workload=workload, origin=origin, intent=Intent.RUN, epoch=0)
    status = {"epoch": 0, "phase": str(AssignmentPhase.RUNNING), "jobUID": job["metadata"]["uid"]}
    obj = {**_head(mailbox, assignment_name(workload)), "spec": spec, "status": status}
    return _grouped(obj, jobs, job, keys=keys)


def _grouped(obj: JsonObject, jobs: RemoteJobs, job: JsonObject, *, keys: Iterable[Key]) -> JsonObject:
    """The assignment of a group with all of its members here; the hub sends it whole when it sees this one."""
    kind = jobs.integration
    group = kind.group_of(job) if isinstance(kind, GroupedKind) else ""
    if not group:
        return obj
    found = map(jobs.get, sorted(keys))
    epoch = marked_epoch(job["metadata"].get("annotations") or {})
    head = {"apiVersion": kind.resource.api_version, "kind": kind.resource.kind}
    members = [
        {**head, "metadata": {key: each["metadata"].get(key) for key in _MEMBER_METADATA}, "spec": each["spec"]}
        for each in found
        if each is not None and marked_epoch(each["metadata"].get("annotations") or {}) == epoch
    ]
    metadata = {"namespace": job["metadata"]["namespace"], "name": group}
    reference = {**obj["spec"]["job"], "name": group, "manifest": {**head, "metadata": metadata, MEMBERS: members}}
    # The end of one pod is not that of the group.
    status = {"epoch": epoch, "phase": str(AssignmentPhase.RUNNING)}
    return {**obj, "spec": {**obj["spec"], "job": reference}, "status": status}


def _unnamed(job: JsonObject) -> JsonObject:
    """What the job's pod sets are read from: some kinds have fields beside their spec."""
    return {name: value for name, value in job.items() if name not in ("apiVersion", "kind", "metadata", "status")}


def _status(facts: RemoteJobFacts) -> JsonObject:
    status = {"epoch": facts.epoch, "phase": str(AssignmentPhase.RUNNING), "jobUID": facts.uid}
    end = facts.end
    if end is None:
        return status
    finished = {"reason": end.reason, "message": end.message}
    if end.time is not None:
        finished["time"] = format_time(end.time)
    return {**status, "phase": str(AssignmentPhase.FINISHED), "jobStatus": facts.status, "finished": finished}


def _queued(obj: JsonObject, clone: JsonObject | None) -> JsonObject:
    """With the spec of its clone in the queues of the worker: there a suspended job waits and was not stopped."""
    if clone is None:
        return obj
    spec: JsonObject = clone["spec"]
    intent = Intent.EVICT if spec.get("active") is False else Intent.RUN
    queued = {"queueName": spec.get("queueName", ""), "workloadSpec": spec, "intent": str(intent)}
    return {**obj, "spec": {**obj["spec"], **queued}}
