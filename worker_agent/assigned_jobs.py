# SPDX-License-Identifier: Apache-2.0
"""Which job is of which assignment, in both directions.

Several assignments may name one job: a newer one waits until the job of the former is gone.
"""

from __future__ import annotations

from multikueue.core.grouped_keys import GroupedKeys
from worker_agent.local.jobs import RemoteJobKey


class AssignedJobs:
    """The jobs of the assignments of one mailbox."""

    def __init__(self) -> None:
        self._jobs: GroupedKeys[str, RemoteJobKey] = GroupedKeys()

    def job_of(self, name: str) -> RemoteJobKey | None:
        """The job of an assignment; None if the assignment is not known."""
        return self._jobs.group_of(name)

    def assignments_of(self, job: RemoteJobKey) -> list[str]:
        """The assignments of one job."""
        return list(self._jobs.of(job))

    def in_namespace(self, namespace: str) -> list[str]:
        """The assignments whose jobs are in that namespace."""
        return [name for name, job in self._jobs.items() if job.job.namespace == namespace]

    def set(self, name: str, job: RemoteJobKey) -> None:
        """Note the job of an assignment, instead of the one that it had."""
        self._jobs.put(name, job)

    def forget(self, name: str) -> None:
        """Note that the assignment is gone."""
        self._jobs.put(name, None)
