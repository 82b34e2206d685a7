# SPDX-License-Identifier: Apache-2.0
"""Changes running jobs as their users do on the hub: only the fields that their kind declares as forwarded.

A change passes the dispatch policy of this cluster, as a new job does; one that does not is logged, and the job runs on
as it is. It is level-based: what the API server does not accept now is tried again, and a field that was changed here
gets the value of the hub again, unless the API server stores it in another form.
"""

from __future__ import annotations

import logging

import orjson

from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.dispatch.worker.assignment_state import AssignmentStep
from multikueue.jobs.framework.capabilities import ForwardingKind
from worker_agent.local.assignment_spec import AssignmentSpec
from worker_agent.local.obstacles import Obstacles

_log = logging.getLogger(__name__)


class FieldForwarding:
    """The changes of the jobs of one mailbox; does nothing for a kind without forwarded fields."""

    def __init__(self, *, obstacles: Obstacles) -> None:
        self._obstacles = obstacles
        self._settled: dict[str, tuple[str, str, str]] = {}
        """By assignment: uid of the job, digest and patch that were refused, or stored in another form."""

    async def follow(self, desired: AssignmentSpec, job: JsonObject | None, taken: AssignmentStep) -> None:
        """Change the job of the assignment while it runs. Raises what the API server answers."""
        name, jobs = desired.facts.name, desired.jobs
        if jobs is None or job is None or not isinstance(jobs.integration, ForwardingKind):
            return
        runs = taken.action is None and taken.status.phase is AssignmentPhase.RUNNING and taken.status.end is None
        wanted = desired.facts.intent is Intent.RUN and desired.facts.may_run
        if not (runs and wanted and jobs.integration.forwards()) or "deletionTimestamp" in job["metadata"]:
            return
        kind, uid = jobs.integration, job["metadata"]["uid"]
        patch = kind.forwarded_patch(job, desired.manifest)
        if patch is None:
            self._settled.pop(name, None)
            return
        this = (uid, kind.forwarded_digest(desired.manifest), orjson.dumps(patch).decode())
        if self._settled.get(name) == this:
            return
        obstacle = self._obstacles.of_change(desired, job, patch)
        if obstacle is not None:
            _log.warning("change of job is not forwarded job=%s error=%s", desired.named, obstacle.message)
            self._settled[name] = this
            return
        changed = await jobs.change(desired.job, uid, patch)
        if changed is None:
            return
        _log.info("job changed as on the hub job=%s assignment=%s", desired.named, name)
        left = kind.forwarded_patch(changed, desired.manifest)
        if left is not None:
            self._settled[name] = (uid, this[1], orjson.dumps(left).decode())

    def forget(self, name: str) -> None:
        """Drop what is known of an assignment that is gone."""
        self._settled.pop(name, None)
