# SPDX-License-Identifier: Apache-2.0
"""A Job, its Workload, and what is decided about them."""

from __future__ import annotations

from typing import Any

from manager.controllers import job_decision
from manager.controllers.job_facts import ManagedJobFacts
from manager.controllers.job_steps import (
    Step,
)
from manager.workload.status import Status
from multikueue.jobs.framework.pod_templates import pod_set_infos
from multikueue.jobs.framework.protocol import PodSetInfo
from multikueue.jobs.framework.workloads import Priority, workload_for
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from tests.unit.manager.builders import NOW, Object

FLAVOR = {"spec": {"nodeLabels": {"zone": "a"}}}
FINALIZER = "kueue.x-k8s.io/resource-in-use"


def job(*, suspend: bool = True, parallelism: int = 1, queue: str = "lq", status: Object | None = None) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "j",
            "namespace": "team",
            "uid": "uid-j",
            "resourceVersion": "7",
            "labels": {"kueue.x-k8s.io/queue-name": queue},
        },
        "spec": {
            "suspend": suspend,
            "parallelism": parallelism,
            "completions": parallelism,
            "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}},
        },
        "status": status or {},
    }


def workload(of: Object, value: Status, **metadata: Any) -> Object:
    made = workload_for(of, BATCH_JOB, priority=Priority())
    made["metadata"] |= {"uid": "uid-w", "resourceVersion": "1"} | metadata
    return made | {"status": value.wire()}


def infos(of: Object) -> tuple[PodSetInfo, ...]:
    return pod_set_infos(of, {"default": FLAVOR})


def started(of: Object, of_workload: Object, **status: Any) -> Object:
    """The job after its start, as admission changed it."""
    write = BATCH_JOB.start(of, infos(of_workload))
    spec = merged(of["spec"], write.body["spec"])
    return of | {"spec": spec, "status": status}


def merged(old: Object, patch: Object) -> Object:
    result = dict(old)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = merged(result.get(name) or {}, value)
        else:
            result[name] = value
    return result


def decide(of: Object, *workloads: Object, **changes: Any) -> tuple[Step, ...]:
    known = ManagedJobFacts(job=of, integration=BATCH_JOB, workloads=workloads, infos=infos, **changes)
    return job_decision.decide(known, now=NOW)


def kinds(steps: tuple[Step, ...]) -> list[str]:
    return [type(step).__name__ for step in steps]
