# SPDX-License-Identifier: Apache-2.0
"""The objects that the pods of remote jobs need on this cluster: which are missing, and which the hub sends.

Joins the look before a job is created (ADR 0020) with what is written once it exists (ADR 0021).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from random import Random

from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.dispatch.sending.sent_copies import CopyMarks, Holder, owner_reference
from multikueue.dispatch.sending.sent_objects import SentReference
from multikueue.dispatch.worker.assignment_state import Obstacle, ReportedStatus
from multikueue.dispatch.worker.dependencies import Dependency
from multikueue.kube.rest.client import KubeClient
from worker_agent.hub.client import MailboxView
from worker_agent.local.assignment_spec import AssignmentSpec
from worker_agent.local.dependencies.dependency_checks import DependencyChecks
from worker_agent.local.dependencies.sent_objects import SentObjects
from worker_agent.local.groups.remote_group import RemoteGroup
from worker_agent.local.jobs import RemoteJobKey, RemoteJobs
from worker_agent.local.rights import Rights


class JobObjects:
    """What the pods of the jobs of one cluster need."""

    def __init__(
        self,
        worker: KubeClient,
        mailbox: MailboxView,
        jobs: Sequence[RemoteJobs],
        *,
        rights: Rights,
        marks: CopyMarks,
        clock: Clock,
        random: Random,
    ) -> None:
        self._kinds = {(each.integration.resource.group, each.integration.resource.kind): each for each in jobs}
        self._sent = SentObjects(
            worker,
            mailbox,
            marks=marks,
            may_send=rights.may_send,
            is_job_kind=lambda owner: _kind_of(owner) in self._kinds,
            is_remote_job=self._is_remote_job,
            clock=clock,
            random=random,
        )
        self._checks = DependencyChecks(
            worker,
            may_get=partial(rights.has, "get"),
            is_foreign=lambda metadata: self._sent.holder(metadata, "", manager_uid="") is Holder.FOREIGN,
            clock=clock,
            random=random,
        )

    def report(self) -> JsonObject:
        """The kinds that are looked for and that may be sent, in a ClusterReport."""
        return {"dependencyKinds": self._checks.kinds(), "sentKinds": self._sent.kinds()}

    async def look(
        self, job: RemoteJobKey, needed: Iterable[Dependency], *, sent: tuple[SentReference, ...] = ()
    ) -> None:
        """Look for what the pods of the job need before it is created. Raises `KubeError`."""
        await self._checks.look(job, needed, sent=sent)

    def obstacle(self, job: RemoteJobKey) -> Obstacle | None:
        """What the job lacked when it was last looked for, or what is in the way of what is sent; None if nothing."""
        return self._checks.obstacle(job)

    def retry_after(self, job: RemoteJobKey) -> float | None:
        """The seconds until it is looked for again; None if nothing is missing."""
        return self._checks.retry_after(job)

    async def bring(
        self, desired: AssignmentSpec, job: JsonObject | None, group: RemoteGroup | None, status: ReportedStatus
    ) -> ReportedStatus:
        """Bring what is sent with the job up to date while it runs; `status` with why its pods cannot start."""
        running = status.phase is AssignmentPhase.RUNNING
        if job is None or desired.jobs is None or not running or status.job_uid != job["metadata"]["uid"]:
            self._sent.forget(desired.named)
            return status
        resource = desired.jobs.integration.resource
        owners = ((desired.job, status.job_uid),) if group is None else group.present
        await self._sent.bring(
            desired,
            [
                owner_reference(api_version=resource.api_version, kind=resource.kind, name=key.name, uid=uid)
                for key, uid in owners
            ],
        )
        problem = self._sent.problem(desired.named)
        started = desired.jobs.integration.pods_started(job)
        return status if problem is None or started else replace(status, start_problem=problem)

    def bring_after(self, job: RemoteJobKey) -> float | None:
        """The seconds until what is sent with the job is looked at again; None if nothing is."""
        return self._sent.retry_after(job)

    def forget(self, job: RemoteJobKey) -> None:
        """Drop what is known of the job, whose assignment is gone."""
        self._checks.forget(job)
        self._sent.forget(job)

    def _is_remote_job(self, owner: Mapping[str, object], namespace: str, manager_uid: str) -> bool:
        jobs = self._kinds.get(_kind_of(owner))
        job = None if jobs is None else jobs.get(Key(namespace, str(owner.get("name"))))
        if jobs is None or job is None or job["metadata"]["uid"] != owner.get("uid"):
            return False
        return bool(jobs.assignment_of(job)) and jobs.manager_uid(job) == manager_uid


def _kind_of(owner: Mapping[str, object]) -> tuple[str, str]:
    group, _, _ = str(owner.get("apiVersion", "")).rpartition("/")
    return group, str(owner.get("kind", ""))
