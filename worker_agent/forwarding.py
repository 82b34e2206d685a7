# SPDX-License-Identifier: Apache-2.0
"""Changes running jobs as their users do on the hub: only the fields that their kind declares as forwarded.

A change passes the dispatch policy of this cluster, as a new job does; one that does not is reported to the hub for as
long as it is wanted there, and the job runs on as it is. It is level-based: what the API server does not accept now is
tried again, and a field that was changed here gets the value of the hub again, unless the API server stores it in
another form.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import orjson

from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.dispatch.protocol.job_problems import StartProblem, start_problem_from
from multikueue.dispatch.worker.assignment_state import AssignmentStep, ReportedStatus
from multikueue.jobs.framework.capabilities import ForwardingKind
from worker_agent.local.assignment_spec import AssignmentSpec
from worker_agent.local.obstacles import Obstacles

_log = logging.getLogger(__name__)


class FieldForwarding:
    """The changes of the jobs of one mailbox; does nothing for a kind without forwarded fields."""

    def __init__(self, *, obstacles: Obstacles) -> None:
        self._obstacles = obstacles
        self._settled: dict[str, tuple[str, str, str]] = {}
        """By assignment: uid of the job, digest and patch of what the API server stored in another form."""
        self._logged: dict[str, StartProblem] = {}

    def complete(
        self, desired: AssignmentSpec, job: JsonObject | None, taken: AssignmentStep, status: ReportedStatus
    ) -> ReportedStatus:
        """`status` with why a change of the job is not made; without, if none is refused. Raises `BadInput`."""
        name, patch = desired.facts.name, self._patch(desired, job, taken)
        obstacle = None if patch is None or job is None else self._obstacles.of_change(desired, job, patch)
        if obstacle is None:
            self._logged.pop(name, None)
            return status if status.refused_change is None else replace(status, refused_change=None)
        refused = start_problem_from(obstacle.reason, obstacle.message)
        if self._logged.get(name) != refused:
            _log.warning("change of job is not forwarded job=%s error=%s", desired.named, obstacle.message)
            self._logged[name] = refused
        return replace(status, refused_change=refused)

    async def follow(
        self, desired: AssignmentSpec, job: JsonObject | None, taken: AssignmentStep, status: ReportedStatus
    ) -> None:
        """Make a change that `complete` has not refused, while the job runs. Raises what the API server answers."""
        name, jobs, patch = desired.facts.name, desired.jobs, self._patch(desired, job, taken)
        if patch is None or job is None or jobs is None or not isinstance(jobs.integration, ForwardingKind):
            self._settled.pop(name, None)
            return
        kind, uid = jobs.integration, job["metadata"]["uid"]
        this = (uid, kind.forwarded_digest(desired.manifest), orjson.dumps(patch).decode())
        if status.refused_change is not None or self._settled.get(name) == this:
            return
        changed = await jobs.change(desired.job, uid, patch)
        if changed is None:
            return
        _log.info("job changed as on the hub job=%s assignment=%s", desired.named, name)
        left = kind.forwarded_patch(changed, desired.manifest)
        if left is not None:
            self._settled[name] = (uid, this[1], orjson.dumps(left).decode())

    def _patch(self, desired: AssignmentSpec, job: JsonObject | None, taken: AssignmentStep) -> JsonObject | None:
        """What is to be changed of the job; None if nothing is, or if it does not run."""
        jobs = desired.jobs
        if jobs is None or job is None or not isinstance(jobs.integration, ForwardingKind):
            return None
        runs = taken.action is None and taken.status.phase is AssignmentPhase.RUNNING and taken.status.end is None
        wanted = desired.facts.intent is Intent.RUN and desired.facts.may_run
        if not (runs and wanted) or "deletionTimestamp" in job["metadata"]:
            return None
        return jobs.integration.forwarded_patch(job, desired.manifest)

    def forget(self, name: str) -> None:
        """Drop what is known of an assignment that is gone."""
        self._settled.pop(name, None)
        self._logged.pop(name, None)
