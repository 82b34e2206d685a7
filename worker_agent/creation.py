# SPDX-License-Identifier: Apache-2.0
"""Creates the remote job of an assignment, or the missing pods of its group.

Every manifest passes the boundary of this cluster. What the API server refuses is recorded as an obstacle, which the
assignment then reports; the name of an object that another creator made is never used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from multikueue.api.meta import JsonObject
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.phases import ENDED
from multikueue.dispatch.worker.assignment_state import NAME_CONFLICT, Obstacle, RemoteJobFacts, ReportedStatus
from multikueue.jobs.framework.protocol import InjectionConflict
from multikueue.kube.errors import AlreadyExists, BadRequest, Forbidden, Invalid, NotFound
from worker_agent.local.assignment_spec import AssignmentSpec
from worker_agent.local.boundary import Boundary
from worker_agent.local.obstacles import CREATE_REJECTED, Obstacles, missing_kind, missing_namespace
from worker_agent.local.provisioning import ProvisionedWork, consuming
from worker_agent.local.queueing.queues import Queues

_log = logging.getLogger(__name__)


class Creation:
    """Creates remote jobs on one cluster."""

    def __init__(
        self,
        *,
        boundary: Boundary,
        queues: Queues,
        obstacles: Obstacles,
        facts: Callable[[AssignmentSpec, JsonObject], RemoteJobFacts],
    ) -> None:
        """`facts` are those of an object that has the name already."""
        self._boundary = boundary
        self._queues = queues
        self._obstacles = obstacles
        self._facts = facts

    async def create(
        self,
        desired: AssignmentSpec,
        members: Sequence[JsonObject],
        *,
        queued: bool,
        provisioned: ProvisionedWork | None = None,
    ) -> None:
        """Create the job, or these members of its group; the first that is refused ends it."""
        manifests = members if desired.members else (desired.manifest,)
        for manifest in manifests:
            if not await self._create(desired, manifest, queued=queued, provisioned=provisioned):
                return

    def manifest(self, desired: AssignmentSpec, manifest: JsonObject) -> JsonObject:
        """The manifest with the metadata of this assignment only."""
        return self._boundary.manifest(
            manifest,
            workload=desired.clone.workload,
            assignment=desired.facts.name,
            epoch=desired.facts.epoch,
            manager_uid=desired.manager_uid,
        )

    async def restore_marks(self, desired: AssignmentSpec, job: JsonObject | None, reported: ReportedStatus) -> bool:
        """Give the job its label and annotations again if a user of this cluster took them away; whether it is there.

        Without them it is not seen, or taken for another one, and would be reported as gone while it runs. The server
        is asked for a job that is not seen. Not for the pods of a group, whose uids are not reported.
        """
        jobs, same = desired.jobs, reported.epoch == desired.facts.epoch
        if jobs is None or desired.members or not reported.job_uid or not same or reported.phase in ENDED:
            return False
        found = await jobs.read(desired.job) if job is None else job
        if found is None or found["metadata"]["uid"] != reported.job_uid:
            return False
        facts, marks = self._facts(desired, found), (jobs.assignment_of(found), jobs.manager_uid(found))
        if facts.ours and facts.epoch == desired.facts.epoch:
            return job is None  # it is in the cache now
        if marks[0] not in ("", desired.facts.name) or marks[1] not in ("", desired.manager_uid):
            return False  # another assignment has taken it over
        _log.warning("labels or annotations were taken away from a job; restoring them job=%s", desired.job)
        await jobs.adopt(desired.job, reported.job_uid, self.manifest(desired, desired.manifest), found=found)
        return True

    async def _create(
        self, desired: AssignmentSpec, body: JsonObject, *, queued: bool, provisioned: ProvisionedWork | None
    ) -> bool:
        assert desired.jobs is not None
        plain, queues, integration = self.manifest(desired, body), self._queues, desired.jobs.integration
        try:
            updates = () if provisioned is None else provisioned.updates
            plain = consuming(plain, integration, updates, described=desired.with_pod_sets(plain))
        except InjectionConflict as error:
            self._obstacles.add_refusal(desired.named, Obstacle(CREATE_REJECTED, str(error)))
            return False
        manifest = queues.manifest(plain, desired.clone, integration=integration) if queued else queues.unqueued(plain)
        key = Key(desired.job.namespace, str(manifest["metadata"]["name"]))
        if queued:
            # The manifest combines the job and the Workload: both may be allowed, and the result not.
            forbidden = self._obstacles.of_manifest(desired, manifest, job=key)
            if forbidden is not None:
                self._obstacles.add_refusal(desired.named, forbidden)
                return False
        try:
            await desired.jobs.create(manifest)
        except AlreadyExists:
            found = await desired.jobs.read(key)
            if found is None:
                return False
            facts = self._facts(desired, found)
            if not (facts.ours or facts.adoptable or facts.former):
                message = f'{found.get("kind", "a job")} "{key}" is there already and is not of this assignment'
                self._obstacles.add_refusal(desired.named, Obstacle(NAME_CONFLICT, message))
                return False
        except NotFound as error:
            # The kind may have been removed a moment ago.
            of_namespace = error.details.kind == "namespaces"
            missing = missing_namespace(desired.job) if of_namespace else missing_kind(integration.resource)
            self._obstacles.add_refusal(desired.named, missing)
            return False
        except (Invalid, Forbidden, BadRequest) as error:
            self._obstacles.add_refusal(desired.named, Obstacle(CREATE_REJECTED, error.message))
            return False
        else:
            _log.info("job created job=%s assignment=%s epoch=%d", key, desired.facts.name, desired.facts.epoch)
        return True
