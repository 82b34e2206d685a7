# SPDX-License-Identifier: Apache-2.0
"""The removal of jobs whose assignment is gone, or cannot be read any more.

Promises that only jobs of the manager that owns the mailbox are removed; others are kept.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from multikueue.core.keys import Key
from multikueue.dispatch.worker.assignment_state import remove
from multikueue.kube.errors import NotFound
from worker_agent.hub.client import MailboxView
from worker_agent.local.jobs import RemoteJobs
from worker_agent.local.provisioning import WorkerProvisioning

_log = logging.getLogger(__name__)


class JobRemoval:
    """Removes jobs of the assignments of one mailbox on one cluster."""

    def __init__(
        self,
        *,
        mailbox: MailboxView,
        kinds: Mapping[tuple[str, str], RemoteJobs],
        provisioning: WorkerProvisioning | None = None,
    ) -> None:
        self._mailbox = mailbox
        self._kinds = kinds
        self._provisioning = provisioning
        self._kept: set[str] = set()
        """The uids of jobs that were not removed, since their mailbox belongs to another manager."""

    async def remove(self, name: str, *, unreadable: bool = False) -> bool:
        """Delete the jobs of an assignment that is gone, or that is there and `unreadable`.

        Returns whether some are still there and on their way out.
        """
        left = False
        for jobs in self._kinds.values():
            for key in jobs.of_assignment(name):
                left = await self._remove(jobs, key, name, unreadable=unreadable) or left
        return left

    async def mailbox_owner(self) -> str:
        """The uid of the manager that owns the mailbox; empty if there is none."""
        try:
            return await self._mailbox.owner()
        except NotFound:
            return ""

    async def _remove(self, jobs: RemoteJobs, key: Key, name: str, *, unreadable: bool) -> bool:
        job = jobs.get(key)
        if job is None or not jobs.known or not self._mailbox.informer.synced.is_set():
            return False
        manager_uid = jobs.manager_uid(job)
        facts = jobs.facts(job, assignment=name, manager_uid=manager_uid)
        if not facts.ours:
            return False
        if remove(facts) is None:
            return True
        owner = await self.mailbox_owner()
        if (self._mailbox.get(name) is not None) is not unreadable:
            return True  # it was created again meanwhile, or removed
        why = "cannot be read" if unreadable else "is gone"
        if not manager_uid or owner != manager_uid:
            if facts.uid not in self._kept:
                self._kept.add(facts.uid)
                _log.warning(
                    "job kept: its assignment %s, but the mailbox belongs to another manager"
                    " job=%s manager=%s mailbox_owner=%s",
                    why,
                    key,
                    manager_uid,
                    owner,
                )
            return False
        self._kept.discard(facts.uid)
        _log.info("deleting job: its assignment %s job=%s assignment=%s", why, key, name)
        await jobs.delete(key, facts.uid, ended=facts.end is not None)
        if self._provisioning is not None:
            await self._provisioning.release(name, job)
        return True
