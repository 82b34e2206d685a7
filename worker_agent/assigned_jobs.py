# SPDX-License-Identifier: Apache-2.0
"""Which job is of which assignment, in both directions.

Several assignments may name one job: a newer one waits until the job of the former is gone.
"""

from __future__ import annotations

from worker_agent.local.jobs import RemoteJobKey


class AssignedJobs:
    """The jobs of the assignments of one mailbox."""

    def __init__(self) -> None:
        self._jobs: dict[str, RemoteJobKey] = {}
        self._assignments: dict[RemoteJobKey, set[str]] = {}

    def job_of(self, name: str) -> RemoteJobKey | None:
        """The job of an assignment; None if the assignment is not known."""
        return self._jobs.get(name)

    def assignments_of(self, job: RemoteJobKey) -> list[str]:
        """The assignments of one job."""
        return list(self._assignments.get(job, ()))

    def in_namespace(self, namespace: str) -> list[str]:
        """The assignments whose jobs are in that namespace."""
        return [name for name, job in self._jobs.items() if job.job.namespace == namespace]

    def set(self, name: str, job: RemoteJobKey) -> None:
        """Note the job of an assignment, instead of the one that it had."""
        self.forget(name)
        self._jobs[name] = job
        self._assignments.setdefault(job, set()).add(name)

    def forget(self, name: str) -> None:
        """Note that the assignment is gone."""
        before = self._jobs.pop(name, None)
        if before is not None:
            self._assignments[before].discard(name)
            if not self._assignments[before]:
                del self._assignments[before]
