# SPDX-License-Identifier: Apache-2.0
"""The objects that the pods of remote jobs need on this cluster: which are missing, and which the hub sends.

Joins the look before a job is created (ADR 0020) with what is written once it exists (ADR 0021).

Owns the requests, what was found for each job, and when it is looked for again. Only names are asked for: an answer has
the metadata of an object, never its content. A kind that the agent may not get is not checked. What the hub sends need
not be there, but no object of others may have its name. A failure of the API server is raised, since nothing is known
then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.api.resource import Resource
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.sending.sent_copies import CopyMarks, Holder, metadata_in, owner_reference
from multikueue.dispatch.sending.sent_objects import SentReference
from multikueue.dispatch.worker.assignment_state import (
    DEPENDENCY_CONFLICT,
    DEPENDENCY_MISSING,
    Obstacle,
    ReportedStatus,
)
from multikueue.dispatch.worker.dependencies import DEPENDENCY_KINDS, Dependency, conflict_message, missing_message
from multikueue.kube.errors import Forbidden, NotFound
from multikueue.kube.rest.client import KubeClient
from worker_agent.hub.client import MailboxView
from worker_agent.local.assignment_spec import AssignmentSpec
from worker_agent.local.dependencies.sent_objects import SentObjects
from worker_agent.local.jobs import RemoteJobKey, RemoteJobs
from worker_agent.local.remote_group import RemoteGroup
from worker_agent.local.rights import Rights

FOUND_SECONDS: Final = 10.0  # from the reservation to the grant it is not asked again
_UNSEEN: Final[JsonObject] = {}
_AGAIN: Final = Backoff(base=1.0, factor=2.0, cap=30.0, jitter=0.2)


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


@dataclass(frozen=True, slots=True)
class _Finding:
    asked: tuple[Dependency, ...]
    sent: tuple[SentReference, ...]
    missing: tuple[Dependency, ...]
    foreign: tuple[Dependency, ...]
    until: float
    attempts: int

    @property
    def is_obstacle(self) -> bool:
        return bool(self.missing or self.foreign)


class DependencyChecks:
    """What the jobs of one cluster lack."""

    def __init__(
        self,
        client: KubeClient,
        *,
        may_get: Callable[[Resource], bool],
        is_foreign: Callable[[JsonObject], bool] = lambda metadata: True,
        clock: Clock,
        random: Random,
    ) -> None:
        """`is_foreign` is whether the object with that metadata is none that this agent has sent."""
        self._client = client
        self._may_get = may_get
        self._is_foreign = is_foreign
        self._clock = clock
        self._random = random
        self._findings: dict[RemoteJobKey, _Finding] = {}

    def kinds(self) -> list[str]:
        """The kinds that are looked for, for a ClusterReport."""
        return [kind for kind, resource in DEPENDENCY_KINDS.items() if self._may_get(resource)]

    async def look(
        self, job: RemoteJobKey, needed: Iterable[Dependency], *, sent: tuple[SentReference, ...] = ()
    ) -> None:
        """Look for the objects that the pods of the job need, unless that was done a short time ago.

        Raises `KubeError` if the API server does not answer; what was found before is kept.
        """
        required = dict.fromkeys(needed)
        # An object of others that an optional reference names is used as it is.
        coming = dict.fromkeys(each.needed for each in sent if each.version and not each.optional)
        named = {**required, **coming}
        asked = tuple(each for each in named if self._may_get(DEPENDENCY_KINDS[each.kind]))
        before = self._findings.get(job)
        if not asked:
            self._findings.pop(job, None)
            return
        now = self._clock.monotonic()
        if before is not None and (before.asked, before.sent) == (asked, sent) and now < before.until:
            return
        missing, foreign = [], []
        for each in asked:
            metadata = await self._metadata(each, job.job)
            if metadata is None and each in required and each not in coming:
                missing.append(each)
            elif metadata is not None and metadata is not _UNSEEN and each in coming and self._is_foreign(metadata):
                foreign.append(each)
        failed = bool(missing or foreign)
        attempts = before.attempts + 1 if failed and before is not None and before.is_obstacle else 1
        pause = _AGAIN.delay(attempts, self._random) if failed else FOUND_SECONDS
        until = self._clock.monotonic() + pause
        self._findings[job] = _Finding(asked, sent, tuple(missing), tuple(foreign), until, attempts)

    def obstacle(self, job: RemoteJobKey) -> Obstacle | None:
        """What the job lacked when it was last looked for; None if nothing."""
        finding = self._findings.get(job)
        if finding is None or not finding.is_obstacle:
            return None
        namespace = job.job.namespace
        if finding.foreign:
            return Obstacle(DEPENDENCY_CONFLICT, conflict_message(namespace, finding.foreign))
        not_sent = {each.needed: each.problem for each in finding.sent if each.problem}
        return Obstacle(DEPENDENCY_MISSING, missing_message(namespace, finding.missing, not_sent=not_sent))

    def retry_after(self, job: RemoteJobKey) -> float | None:
        """The seconds until it is looked for again; None if nothing is missing."""
        finding = self._findings.get(job)
        if finding is None or not finding.is_obstacle:
            return None
        return max(0.1, finding.until - self._clock.monotonic())

    def forget(self, job: RemoteJobKey) -> None:
        """Drop what was found for the job, whose assignment is gone."""
        self._findings.pop(job, None)

    async def _metadata(self, each: Dependency, job: Key) -> JsonObject | None:
        """The metadata of the object; None if there is none, `_UNSEEN` if it may not be read."""
        if not each.is_possible:
            return None
        resource = DEPENDENCY_KINDS[each.kind]
        try:
            answer = await self._client.get(resource, each.name, namespace=job.namespace, metadata_only=True)
        except NotFound:
            return None
        except Forbidden:
            return _UNSEEN  # the rights note it themselves
        try:
            return metadata_in(answer)
        except BadInput:
            return {}  # it exists, and is not known to be ours
