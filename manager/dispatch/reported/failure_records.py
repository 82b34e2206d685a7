# SPDX-License-Identifier: Apache-2.0
"""Records on the management cluster why a remote job failed (ADR 0016).

Owns the ConfigMap with exit codes and last lines beside the user's job, and the events about the job and its Workload.
Promises one write for a failure: the ConfigMap is only ever created, and its name is that of this one job. A ConfigMap
that the namespace does not allow is left out, and the events have the exit codes all the same.
"""

from __future__ import annotations

import logging
from typing import Final

from manager.context import ManagerContext
from manager.dispatch.gather import Gathered
from multikueue.api.constants import FAILED_JOB_LABEL
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadEvent
from multikueue.api.resource import CONFIG_MAPS, WORKLOADS
from multikueue.core.conditions import MAX_EVENT_MESSAGE, truncate_message
from multikueue.core.keys import Key
from multikueue.core.printable import printable
from multikueue.dispatch.hub.facts import Observation
from multikueue.dispatch.protocol.job_problems import SUMMARY, JobFailure, log_key, record_name
from multikueue.kube.errors import AlreadyExists, BadRequest, Forbidden, Invalid, NotFound
from multikueue.kube.runtime.events import WARNING, Reference

_log = logging.getLogger(__name__)

_REMEMBERED: Final = 4096


class FailureRecords:
    """The failures that were recorded by this process."""

    def __init__(self, context: ManagerContext) -> None:
        self._context = context
        self._recorded: dict[str, None] = {}

    async def record(self, gathered: Gathered, observation: Observation) -> None:
        """Record the failure unless that was done; a server that cannot answer is asked again by the next plan.

        Raises what the API server answers, except that the ConfigMap exists or is not allowed.
        """
        workload, failure = gathered.workload, observation.failure
        if workload is None or failure is None or gathered.job is None or gathered.integration is None:
            return
        owners: list[JsonObject] = workload["metadata"].get("ownerReferences") or []
        owner = next((each for each in owners if each.get("controller")), None)
        uid = str(workload["metadata"]["uid"])
        if uid in self._recorded or owner is None:
            return
        body = record(failure, job=gathered.job, owner=owner, cluster=observation.cluster)
        name: str = body["metadata"]["name"]
        try:
            await self._context.client.create(CONFIG_MAPS, body, namespace=gathered.job.namespace)
        except AlreadyExists:
            # By an earlier process, which recorded the events next: if it was killed between, there are none, but
            # never two. Or by a user, whose ConfigMap is left alone.
            self._remember(uid)
            return
        except (Forbidden, Invalid, BadRequest, NotFound) as error:
            _log.warning("last lines of a failed job not stored job=%s error=%s", gathered.job, error.message)
            name = ""
        self._remember(uid)
        message = event_message(failure, cluster=observation.cluster, config_map=name)
        job = Reference(
            str(owner["apiVersion"]), str(owner["kind"]), gathered.job.name, gathered.job.namespace, str(owner["uid"])
        )
        about = Reference.of(workload, api_version=WORKLOADS.api_version, kind=WORKLOADS.kind)
        for each in (job, about):
            self._context.recorder.event(each, WARNING, WorkloadEvent.REMOTE_JOB_FAILED, message)

    def _remember(self, uid: str) -> None:
        self._recorded[uid] = None
        while len(self._recorded) > _REMEMBERED:
            del self._recorded[next(iter(self._recorded))]


def record(failure: JobFailure, *, job: Key, owner: JsonObject, cluster: str) -> JsonObject:
    """The ConfigMap of a failure; `owner` is the controller's owner reference of the Workload, its job."""
    lines = (f"{owner['kind']} {job} failed on worker cluster {cluster}", *failure.summary())
    problems = (
        f"no lines of {each.pod}, {each.container}: {each.problem}" for each in failure.containers if each.problem
    )
    data = {log_key(each): f"{each.log}\n" for each in failure.containers if each.log}
    return {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": CONFIG_MAPS.kind,
        "metadata": {
            "name": record_name(job, str(owner["uid"])),
            "namespace": job.namespace,
            "labels": {FAILED_JOB_LABEL: job.name[:63].rstrip(".-_")},
            "ownerReferences": [
                {
                    "apiVersion": owner["apiVersion"],
                    "kind": owner["kind"],
                    "name": owner["name"],
                    "uid": owner["uid"],
                }
            ],
        },
        "data": {SUMMARY: "".join(f"{line}\n" for line in (*lines, *problems)), **data},
        "immutable": True,
    }


def event_message(failure: JobFailure, *, cluster: str, config_map: str) -> str:
    """The exit codes, as many as fit an event, and where the last lines are; without a ConfigMap nothing about them."""
    where = f"; last lines: mkctl logs, or kubectl get configmap {config_map} -o yaml" if config_map else ""
    codes = printable("; ".join(failure.summary()))
    return truncate_message(f'Failed on worker cluster "{cluster}": {codes}', MAX_EVENT_MESSAGE - len(where)) + where
