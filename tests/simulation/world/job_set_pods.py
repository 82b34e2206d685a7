# SPDX-License-Identifier: Apache-2.0
"""What runs on a worker of JobSets: their controller, that of their Jobs, and the nodes as one, seen from true time."""

from __future__ import annotations

from typing import Any, Final

from devcluster.apiserver.storage.entry import StoredChange
from devcluster.operators.definitions import JOB_SETS
from multikueue.core.conditions import is_true_in
from tests.simulation.world.pods import START_SECONDS, Copy, Pods, State

COLLECTION: Final = JOB_SETS.qualified
_MOST_RESTARTS: Final = 2
_RESTARTED: Final = 0.2
"""How often a pod fails, and with it all Jobs are made anew."""
_REASONS: Final = {
    ("Completed", "True"): "AllJobsCompleted",
    ("Suspended", "True"): "SuspendedJobs",
    ("Suspended", "False"): "ResumeJobs",
}

Object = dict[str, Any]


class JobSetPods(Pods):
    """The JobSets of one cluster, each with Jobs of one pod."""

    collection = COLLECTION
    path = JOB_SETS.base_path

    def _concerns(self, collection: str, event: StoredChange) -> bool:
        return collection == COLLECTION

    def _count(self, spec: Object) -> int:
        return sum(each["replicas"] for each in spec["replicatedJobs"])

    def _catch_up(self, copy: Copy) -> None:
        job = self._job(copy)
        if job is not None and not job["spec"].get("suspend") and is_true_in(copy.status, "Suspended"):
            del copy.status["conditions"]  # it was resumed before a status said that it stopped
        super()._catch_up(copy)

    def _read(self, copy: Copy) -> None:
        super()._read(copy)
        copy.restarts = int(copy.status.get("restarts", 0))

    def _complete(self, copy: Copy) -> None:
        if copy.restarts < _MOST_RESTARTS and self._random.random() < _RESTARTED:
            copy.released = max(copy.released, copy.succeeded)
            copy.restarts, copy.succeeded = copy.restarts + 1, 0
            self._move(copy, State.STARTING, self._random.uniform(0.05, START_SECONDS), self._start)
            self._tell("restarts", copy)
            self._write(copy, self._counts(copy, succeeded=0))
            return
        super()._complete(copy)

    def _running(self, copy: Copy) -> Object:
        return self._counts(copy, succeeded=copy.succeeded, ready=copy.left, active=copy.left)

    def _suspended(self, copy: Copy) -> Object:
        return self._counts(copy, succeeded=copy.succeeded, suspended=copy.left)

    def _done(self, copy: Copy) -> Object:
        completed = {"conditions": [self._condition("Completed", "True")], "terminalState": "Completed"}
        return {**self._counts(copy, succeeded=copy.count), **completed}

    def _counts(self, copy: Copy, **counts: int) -> Object:
        whole = {"ready": 0, "active": 0, "suspended": 0, "failed": 0, **counts}
        return {"restarts": copy.restarts, "replicatedJobsStatus": [{"name": "main", **whole}]}

    def _succeeded_in(self, status: Object) -> int:
        return sum(each["succeeded"] for each in status.get("replicatedJobsStatus") or ())

    def _condition(self, kind: str, status: str) -> Object:
        moved = {"lastTransitionTime": self._now(), "reason": _REASONS[kind, status], "message": ""}
        return {"type": kind, "status": status, **moved}

    def _has_ended(self, job: Object) -> bool:
        return is_true_in(job.get("status") or {}, "Completed")
