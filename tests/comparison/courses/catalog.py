# SPDX-License-Identifier: Apache-2.0
"""The courses by name, each with the configuration of the manager."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from devcluster.provisioner.definition import definition
from multikueue.api.resource import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, POD_TEMPLATES, PROVISIONING_REQUESTS
from tests.comparison.courses import administration, devices, jobs, kinds, pods, provisioning, quota, topology
from tests.comparison.courses.course import Course


def _ready(timeout: str, *, blocks: bool = False) -> dict[str, Any]:
    strategy = {"backoffBaseSeconds": 1, "backoffLimitCount": 2, "backoffMaxSeconds": 2}
    waiting = {"timeout": timeout, "recoveryTimeout": timeout, "blockAdmission": blocks}
    return {"waitForPodsReady": {**waiting, "requeuingStrategy": strategy}}


MEASURED: Final = _ready("5m") | {"metrics": {"enableClusterQueueResources": True}}
COURSES: Final[Mapping[str, Course]] = {
    "lifecycle": Course(jobs.lifecycle),
    "late": Course(jobs.late, _ready("3s")),
    "recovers": Course(jobs.recovers, _ready("3s")),
    "waits": Course(jobs.waits, _ready("5m", blocks=True)),
    "retry": Course(jobs.retry),
    "retry-ready": Course(jobs.retry, _ready("5m")),
    "rejected": Course(jobs.rejected, _ready("5m")),
    "held": Course(jobs.held(CLUSTER_QUEUES)),
    "held-local": Course(jobs.held(LOCAL_QUEUES)),
    "deactivated": Course(jobs.deactivated, _ready("5m")),
    "too-long": Course(jobs.too_long),
    "preempted": Course(jobs.preempted, _ready("5m")),
    "smaller": Course(jobs.smaller),
    "changed": Course(jobs.changed),
    "deleted": Course(jobs.deleted),
    "pods": Course(pods.single, pods.PODS_TOO),
    "pod-groups": Course(pods.grouped, pods.PODS_TOO),
    "flavors": Course(quota.flavors),
    "partial": Course(quota.partial_admission),
    "cohorts": Course(quota.cohorts),
    "borrowing": Course(quota.borrowing),
    "fair": Course(quota.fair, quota.FAIR),
    "resized": Course(quota.resized),
    "missing": Course(administration.missing),
    "unqueued": Course(administration.unqueued),
    "alone": Course(administration.alone),
    "prebuilt": Course(administration.prebuilt),
    "retained": Course(administration.retained, administration.RETENTION),
    "unmanaged": Course(administration.unmanaged, administration.UNMANAGED),
    "kinds": Course(kinds.kinds, every_kind=True),
    "serving": Course(kinds.serving, every_kind=True),
    "devices": Course(devices.devices, devices.CONFIGURATION, devices.KUEUE_GATES),
    "topology": Course(topology.topology, every_kind=True, nodes=topology.HOSTS),
    "provisioning": Course(
        provisioning.provisioned, definitions=(definition(),), shown=(JOBS, PROVISIONING_REQUESTS, POD_TEMPLATES)
    ),
}
