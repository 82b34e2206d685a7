# SPDX-License-Identifier: Apache-2.0
"""Assignments read back from the jobs that were made for them.

Owns what of a hosted mailbox survives the manager: each job on the worker carries its workload, its epoch and the
manager that had it made. Promises that a job of another manager, of another agent or without marks brings nothing
back, and that what is brought back says what runs, so that nothing is started for it a second time.
"""

from __future__ import annotations

from collections.abc import Iterable

from multikueue.api.constants import CLUSTER_LABEL, ORIGIN_LABEL, PREBUILT_WORKLOAD_ANNOTATION
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import Intent, Phase, assignment_name
from multikueue.api.resource import REMOTE_ASSIGNMENTS
from multikueue.core.keys import Key
from worker_agent.hosting import HostedMailbox
from worker_agent.jobs import Jobs
from worker_agent.queues import Queues


def restore_assignments(mailbox: HostedMailbox, kinds: Iterable[Jobs], queues: Queues, *, origin: str) -> None:
    """Put back what the jobs on the worker say was assigned."""
    for jobs in kinds:
        for name in jobs.assignments():
            for key in jobs.of_assignment(name):
                job = jobs.get(key)
                obj = None if job is None else _assignment(mailbox, jobs, job, name=name, origin=origin)
                if obj is not None:
                    mailbox.restore(_queued(obj, queues.clone_of(name)))


def _assignment(mailbox: HostedMailbox, jobs: Jobs, job: JsonObject, *, name: str, origin: str) -> JsonObject | None:
    metadata: JsonObject = job["metadata"]
    marks: dict[str, str] = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    workload = Key(metadata["namespace"], marks.get(PREBUILT_WORKLOAD_ANNOTATION, ""))
    manager = jobs.manager_uid(job)
    facts = jobs.facts(job, assignment=name, manager_uid=manager)
    if manager != mailbox.manager_uid or not facts.ours or not facts.epoch or assignment_name(workload) != name:
        return None
    resource = jobs.integration.resource
    return {
        "apiVersion": REMOTE_ASSIGNMENTS.api_version,
        "kind": REMOTE_ASSIGNMENTS.kind,
        "metadata": {
            "name": name,
            "namespace": mailbox.namespace,
            "annotations": {CLUSTER_LABEL: mailbox.cluster},
        },
        "spec": {
            "workload": {
                "namespace": workload.namespace,
                "name": workload.name,
                "uid": mailbox.workload_uid(workload),
            },
            "origin": marks.get(ORIGIN_LABEL, origin),
            "managerUID": manager,
            "epoch": facts.epoch,
            "intent": str(Intent.EVICT if facts.suspended else Intent.RUN),
            "job": {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "name": metadata["name"],
                "manifest": {"metadata": {"namespace": metadata["namespace"]}, "spec": job.get("spec") or {}},
            },
        },
        "status": {"epoch": facts.epoch, "phase": str(Phase.RUNNING), "jobUID": facts.uid},
    }


def _queued(obj: JsonObject, clone: JsonObject | None) -> JsonObject:
    """With the clone that asks the worker's own queues for it: there a suspended job waits, and was not stopped."""
    if clone is None:
        return obj
    spec: JsonObject = clone["spec"]
    intent = Intent.EVICT if spec.get("active") is False else Intent.RUN
    asked = {"queueName": spec.get("queueName", ""), "workloadSpec": spec, "intent": str(intent)}
    return {**obj, "spec": {**obj["spec"], **asked}}
