# SPDX-License-Identifier: Apache-2.0
"""Plays the JobSet controller: child Jobs per replicated job, suspension, success and failure policy, status.

Not played: startup order, DNS, `failurePolicy` rules, exclusive placement. A restart deletes all child Jobs.
"""

from __future__ import annotations

import copy
from typing import Final

import orjson

from devcluster.operators.definitions import JOB_SETS
from devcluster.operators.operator import Operator
from multikueue.api.objects import JsonObject
from multikueue.api.resource import JOBS
from multikueue.core.clock import Clock
from multikueue.core.conditions import is_true_in
from multikueue.kube.errors import AlreadyExists, NotFound
from multikueue.kube.rest.client import KubeClient

CONTROLLER: Final = "jobset.sigs.k8s.io/jobset-controller"
NAME_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB_LABEL: Final = "jobset.sigs.k8s.io/replicatedjob-name"
INDEX_LABEL: Final = "jobset.sigs.k8s.io/job-index"
ATTEMPT_LABEL: Final = "jobset.sigs.k8s.io/restart-attempt"
_DIRECTIVES: Final = ("nodeSelector", "tolerations", "schedulingGates")
"""Fields of a pod that may change while its Job is suspended."""


class JobSetOperator(Operator):
    """The controller of JobSets on one cluster."""

    def __init__(self, client: KubeClient, *, clock: Clock | None = None) -> None:
        super().__init__(client, JOB_SETS, children=JOBS, clock=clock)

    def is_managed(self, obj: JsonObject) -> bool:
        """Whether `managedBy` is absent or names this controller."""
        return obj["spec"].get("managedBy") in (None, CONTROLLER)

    async def reconcile(self, obj: JsonObject, children: list[JsonObject]) -> JsonObject:
        """Create, suspend and resume child Jobs, and count them."""
        status = copy.deepcopy(obj.get("status") or {})
        conditions: list[JsonObject] = status.get("conditions") or []
        restarts: int = status.get("restarts", 0)
        suspended = bool(obj["spec"].get("suspend"))
        current = [job for job in children if _attempt(job) == restarts and "deletionTimestamp" not in job["metadata"]]
        status["replicatedJobsStatus"] = [
            _counts(each, [job for job in current if _group(job) == each["name"]])
            for each in obj["spec"].get("replicatedJobs") or ()
        ]
        if any(is_true_in(status, final) for final in ("Completed", "Failed")):
            await self._clean(current)
            return status
        failed = any(is_true_in(job.get("status"), "Failed") for job in current)
        if failed:
            if restarts < (obj["spec"].get("failurePolicy") or {}).get("maxRestarts", 0):
                status["restarts"] = restarts + 1
            else:
                conditions = self.condition(conditions, "Failed", "True", "FailedJobs")
                status["terminalState"] = "Failed"
        elif _has_succeeded(obj["spec"], current):
            conditions = self.condition(conditions, "Completed", "True", "AllJobsCompleted")
            status["terminalState"] = "Completed"
        else:
            await self._delete([job for job in children if job not in current])
            await self._create(obj, current, restarts=restarts)
            for job in current:
                await self._follow(obj, job, suspended=suspended)
            if suspended:
                conditions = self.condition(conditions, "Suspended", "True", "SuspendedJobs")
            elif is_true_in(status, "Suspended"):
                conditions = self.condition(conditions, "Suspended", "False", "ResumeJobs")
        status["restarts"] = status.get("restarts", 0)
        return {**status, **({"conditions": conditions} if conditions else {})}

    async def _create(self, obj: JsonObject, current: list[JsonObject], *, restarts: int) -> None:
        known = {job["metadata"]["name"] for job in current}
        for each in obj["spec"].get("replicatedJobs") or ():
            for index in range(each.get("replicas", 1)):
                job = self._job(obj, each, index, restarts=restarts)
                if job["metadata"]["name"] in known:
                    continue
                try:
                    stored = await self.client.create(JOBS, job, namespace=obj["metadata"]["namespace"])
                except AlreadyExists:
                    continue  # that of the attempt before, which is being deleted
                self.children.put(orjson.loads(stored))

    def _job(self, obj: JsonObject, each: JsonObject, index: int, *, restarts: int) -> JsonObject:
        template = copy.deepcopy(each["template"])
        name = obj["metadata"]["name"]
        labels = {
            NAME_LABEL: name,
            REPLICATED_JOB_LABEL: each["name"],
            INDEX_LABEL: str(index),
            ATTEMPT_LABEL: str(restarts),
        }
        metadata = template.get("metadata") or {}
        pods = template["spec"]["template"].setdefault("metadata", {})
        pods["labels"] = {**(pods.get("labels") or {}), **labels}
        return {
            "apiVersion": JOBS.api_version,
            "kind": JOBS.kind,
            "metadata": {
                "name": f"{name}-{each['name']}-{index}",
                "labels": {**(metadata.get("labels") or {}), **labels},
                "annotations": metadata.get("annotations") or {},
                "ownerReferences": [self.reference(obj)],
            },
            "spec": {**template["spec"], "suspend": bool(obj["spec"].get("suspend"))},
        }

    async def _follow(self, obj: JsonObject, job: JsonObject, *, suspended: bool) -> None:
        """Suspend or resume a child Job; a resumed one gets the node selectors that the JobSet has now."""
        if bool(job["spec"].get("suspend")) == suspended or _is_over(job):
            return
        metadata = job["metadata"]
        body: JsonObject = {"spec": {"suspend": suspended}}
        if not suspended:
            if (job.get("status") or {}).get("startTime"):
                await self._patch(job, {"status": {"startTime": None}}, subresource="status")
            template = next(
                each["template"]["spec"]["template"]
                for each in obj["spec"]["replicatedJobs"]
                if each["name"] == _group(job)
            )
            spec = {name: template["spec"].get(name) for name in _DIRECTIVES}
            pods = template.get("metadata") or {}
            own = {"labels": pods.get("labels") or {}, "annotations": pods.get("annotations") or {}}
            body["spec"]["template"] = {"metadata": own, "spec": spec}
        body["metadata"] = {"uid": metadata["uid"]}
        await self._patch(job, body)

    async def _patch(self, job: JsonObject, body: JsonObject, *, subresource: str | None = None) -> None:
        metadata = job["metadata"]
        try:
            stored = await self.client.patch(
                JOBS, metadata["name"], body, namespace=metadata["namespace"], subresource=subresource
            )
        except NotFound:
            return
        self.children.put(orjson.loads(stored))

    async def _clean(self, jobs: list[JsonObject]) -> None:
        """Delete the child Jobs that still run when the JobSet has ended."""
        await self._delete([job for job in jobs if not _is_over(job)])

    async def _delete(self, jobs: list[JsonObject]) -> None:
        for job in jobs:
            metadata = job["metadata"]
            if "deletionTimestamp" in metadata:
                continue
            try:
                await self.client.delete(
                    JOBS,
                    metadata["name"],
                    namespace=metadata["namespace"],
                    uid=metadata["uid"],
                    propagation="Foreground",
                )
            except NotFound:
                continue
            self.children.mark_deleted(metadata["uid"])


def _group(job: JsonObject) -> str:
    return str(job["metadata"]["labels"].get(REPLICATED_JOB_LABEL, ""))


def _attempt(job: JsonObject) -> int:
    return int((job["metadata"].get("labels") or {}).get(ATTEMPT_LABEL, "-1"))


def _is_over(job: JsonObject) -> bool:
    return any(is_true_in(job.get("status"), final) for final in ("Complete", "Failed"))


def _counts(each: JsonObject, jobs: list[JsonObject]) -> JsonObject:
    counts = dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
    for job in jobs:
        status, spec = job.get("status") or {}, job["spec"]
        wanted = min(spec.get("parallelism", 1), spec.get("completions") or spec.get("parallelism", 1))
        counts["succeeded"] += is_true_in(status, "Complete")
        counts["failed"] += is_true_in(status, "Failed")
        counts["suspended"] += bool(spec.get("suspend"))
        counts["active"] += bool(status.get("active"))
        counts["ready"] += not _is_over(job) and status.get("ready", 0) + status.get("succeeded", 0) >= wanted
    return {"name": each["name"], **counts}


def _has_succeeded(spec: JsonObject, jobs: list[JsonObject]) -> bool:
    policy = spec.get("successPolicy") or {}
    targets = policy.get("targetReplicatedJobs") or [each["name"] for each in spec.get("replicatedJobs") or ()]
    wanted = sum(each.get("replicas", 1) for each in spec.get("replicatedJobs") or () if each["name"] in targets)
    done = sum(_group(job) in targets and is_true_in(job.get("status"), "Complete") for job in jobs)
    return done > 0 if policy.get("operator") == "Any" else bool(wanted) and done >= wanted
