# SPDX-License-Identifier: Apache-2.0
"""The members of groups on this cluster: found, created while the group runs, and deleted.

A group is refused as a whole: its pods are deleted first, since the hub sends a refused group to another cluster at
once. While it runs, pods that the hub has anew are created, and those that it has no longer are deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial

from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import AssignmentPhase, Intent
from multikueue.core.keys import Key
from multikueue.dispatch.worker.assignment_state import AssignmentStep, ReportedStatus
from multikueue.jobs.framework.capabilities import RemoteGroups
from worker_agent.creation import Creation
from worker_agent.local.assignment_spec import AssignmentSpec
from worker_agent.local.obstacles import Obstacles
from worker_agent.local.provisioning import ProvisionedWork
from worker_agent.local.queueing.clones import Clones
from worker_agent.local.remote_group import RemoteGroup, remote_group

_log = logging.getLogger(__name__)


class GroupMembers:
    """The members of the groups of one mailbox; does nothing for a job of its own."""

    def __init__(self, *, obstacles: Obstacles, creation: Creation, clones: Clones) -> None:
        self._obstacles = obstacles
        self._creation = creation
        self._clones = clones

    def find(
        self, desired: AssignmentSpec, reported: ReportedStatus, *, halted: bool = False
    ) -> tuple[RemoteGroup | None, JsonObject | None]:
        """The job of the assignment on this cluster; of a group also its members. `halted`: it is stopped here."""
        if desired.jobs is None or not desired.members:
            return None, None if desired.jobs is None else desired.jobs.get(desired.job)
        wanted = desired.facts
        group = remote_group(
            desired.jobs,
            desired.manifest,
            desired.members,
            assignment=wanted.name,
            epoch=wanted.epoch,
            manager_uid=desired.manager_uid,
            reported=reported,
            stopping=halted or wanted.intent is not Intent.RUN or not wanted.may_run,
            marked=partial(self._creation.manifest, desired),
            refusal=self._obstacles.refusal(desired.named),
        )
        return group, group.job

    async def take_over(self, desired: AssignmentSpec) -> bool:
        """Take over the pods that a Kueue has sent for the Workload, all or none; whether there were any.

        None if one of them does other work than the pod of its name. A pod that the hub has no longer is taken over as
        well, so that it is deleted.
        """
        jobs = desired.jobs
        if jobs is None or not desired.members or not isinstance(jobs.integration, RemoteGroups):
            return False
        kind = jobs.integration
        manifests = {str(member["metadata"]["name"]): member for member in desired.members}
        found = [(key, jobs.get(key)) for key in sorted(jobs.sent_by_kueue(desired.clone.workload))]
        pods = [(key, pod, manifests.get(key.name, pod)) for key, pod in found if pod is not None]
        if not pods or not all(kind.is_same_member(pod, manifest) for _, pod, manifest in pods):
            return False
        _log.info("taking over pods of a group job=%s assignment=%s", desired.job, desired.facts.name)
        await self._clones.take_over(desired.clone)
        for key, pod, manifest in pods:
            marked = self._creation.manifest(desired, manifest)
            await jobs.adopt(key, str(pod["metadata"]["uid"]), marked, found=pod)
        return True

    async def take_back(self, desired: AssignmentSpec, group: RemoteGroup | None, reported: ReportedStatus) -> bool:
        """Delete the pods of a group that the cluster does not take whole; whether they are not gone yet.

        Also those in the place of a group that is to run: after a restore the hub may have other pods of their names.
        """
        starts = desired.facts.intent is Intent.RUN and desired.facts.may_run
        if group is not None and group.job is None and group.replaced and starts:
            await self._delete(desired, group.replaced, why="the hub has it no longer")
            return True
        same = reported.epoch == desired.facts.epoch
        runs = same and reported.phase in (
            AssignmentPhase.RUNNING,
            AssignmentPhase.FINISHED,
            AssignmentPhase.EVICTED,
        )
        if group is None or group.job is None or runs or self._obstacles.refusal(desired.named) is None:
            return False
        await self._delete(desired, group.present, why="its group is refused")
        return True

    async def follow(
        self,
        desired: AssignmentSpec,
        group: RemoteGroup | None,
        taken: AssignmentStep,
        *,
        queued: bool,
        provisioned: ProvisionedWork | None,
    ) -> None:
        """While the group runs: delete the pods that the hub has no longer, and create those that it has anew."""
        if group is None or desired.jobs is None or taken.action is not None:
            return
        runs = taken.status.phase is AssignmentPhase.RUNNING and taken.status.end is None
        if not runs or desired.facts.intent is not Intent.RUN or not desired.facts.may_run:
            return
        await self._delete(desired, group.replaced, why="the hub has it no longer")
        if group.missing and self._obstacles.refusal(desired.named) is None:
            await self._creation.create(desired, group.missing, queued=queued, provisioned=provisioned)

    async def _delete(self, desired: AssignmentSpec, pods: Iterable[tuple[Key, str]], *, why: str) -> None:
        assert desired.jobs is not None, "its pods were found"
        for key, uid in pods:
            _log.info("deleting pod: %s job=%s assignment=%s", why, key, desired.facts.name)
            await desired.jobs.delete(key, uid, ended=False)
