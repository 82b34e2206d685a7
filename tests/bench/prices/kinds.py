# SPDX-License-Identifier: Apache-2.0
"""The kinds that are written, each with an object like those that a hub has, and what a write of it changes.

No write repeats the one before it on the same object: an API server does not store an update that changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from multikueue.api.resource import (
    CLUSTER_REPORTS,
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    LEASES,
    REMOTE_ASSIGNMENTS,
    WORKLOADS,
    Resource,
)

NAMESPACE: Final = "prices"
_TIME: Final = "2026-01-01T00:00:00Z"
_CONTAINER: Final = {
    "name": "main",
    "image": "registry.example/team/train:v1",
    "args": ["--epochs=10", "--batch=32"],
    "resources": {"requests": {"cpu": "2", "memory": "4Gi"}},
}
_TEMPLATE: Final = {"spec": {"containers": [_CONTAINER], "restartPolicy": "Never"}}
_ADMISSION: Final = {
    "clusterQueue": "main",
    "podSetAssignments": [
        {
            "name": "main",
            "count": 4,
            "flavors": {"cpu": "default", "memory": "default"},
            "resourceUsage": {"cpu": "8", "memory": "16Gi"},
        }
    ],
}
Body = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WrittenKind:
    """One kind; `change` and `status` take a number that grows with each write of an object."""

    resource: Resource
    spec: Body
    """What the object has besides its metadata."""
    change: Callable[[int], Body]
    """The fields that a write of the object itself changes, as a merge patch."""
    status: Callable[[int], Body] | None = None
    """The whole status."""

    @property
    def name(self) -> str:
        """The kind."""
        return self.resource.kind

    @property
    def collection(self) -> str:
        """The path of its objects."""
        return self.resource.path(NAMESPACE)

    def manifest(self, name: str) -> Body:
        """An object to create."""
        metadata = {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {"kueue.x-k8s.io/queue-name": "main"},
            "annotations": {"bench": "0"},
        }
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": metadata,
            **self.spec,
        }


def _annotation(number: int) -> Body:
    return {"metadata": {"annotations": {"bench": str(number)}}}


def _conditions(number: int, *types: str) -> list[Body]:
    return [
        {
            "type": type,
            "status": "True",
            "reason": "Bench",
            "message": f"write {number} of this object".ljust(60, "."),
            "lastTransitionTime": _TIME,
        }
        for type in types
    ]


def _workload_status(number: int) -> Body:
    check = {"name": "multikueue", "state": "Ready", "message": f"granted, {number}", "lastTransitionTime": _TIME}
    return {
        "admission": _ADMISSION,
        "admissionChecks": [check],
        "conditions": _conditions(number, "QuotaReserved", "Admitted", "PodsReady"),
    }


def _job_status(number: int) -> Body:
    # Neither the time of the start nor a condition may change while the Job runs.
    return {"active": 1, "ready": number % 2, "startTime": _TIME}


def _assignment_status(number: int) -> Body:
    return {
        "epoch": 1,
        "phase": "Running",
        "jobStatus": _job_status(number),
        "jobUID": "6f2a9d1e-0000-4000-8000-000000000000",
        "sequence": number,
        "bootID": "6f2a9d1e-0000-4000-8000-000000000001",
    }


def _report_status(number: int) -> Body:
    capacity = [
        {
            "name": name,
            "allocatable": "64",
            "free": str(number % 64),
            "largestFree": "4",
            "reserved": "8",
            "largest": "8",
        }
        for name in ("cpu", "memory", "pods")
    ]
    return {
        "clusterUID": "6f2a9d1e-0000-4000-8000-000000000002",
        "bootID": "6f2a9d1e-0000-4000-8000-000000000001",
        "sequence": number,
        "agentVersion": "1.0.0",
        "kubernetesVersion": "v1.36.3",
        "kinds": [{"apiVersion": "batch/v1", "kind": "Job"}],
        "localQueues": [{"namespace": NAMESPACE, "name": "main", "active": True, "clusterQueue": "main"}],
        "capacity": capacity,
        "groups": [{"labels": {"kubernetes.io/arch": "amd64"}, "nodes": 8, "capacity": capacity}],
        "nodes": {"ready": 8, "total": 8},
        "digests": [f"{number:016x}"] * 16,
        "time": _TIME,
    }


def _renewed(number: int) -> str:
    return f"2026-01-01T00:00:00.{number % 1_000_000:06}Z"


WORKLOAD: Final = WrittenKind(
    resource=WORKLOADS,
    spec={"spec": {"queueName": "main", "podSets": [{"name": "main", "count": 4, "template": _TEMPLATE}]}},
    change=_annotation,
    status=_workload_status,
)
JOB: Final = WrittenKind(
    resource=JOBS,
    spec={
        "spec": {
            "parallelism": 1,
            "completions": 1,
            "managedBy": "kueue.x-k8s.io/multikueue",
            "template": _TEMPLATE,
        }
    },
    change=_annotation,
    status=_job_status,
)
ASSIGNMENT: Final = WrittenKind(
    resource=REMOTE_ASSIGNMENTS,
    spec={
        "spec": {
            "workload": {"namespace": "team", "name": "job-train", "uid": "6f2a9d1e-0000-4000-8000-000000000003"},
            "origin": "multikueue",
            "managerUID": "6f2a9d1e-0000-4000-8000-000000000004",
            "epoch": 1,
            "intent": "Run",
            "queueName": "main",
            "job": {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": "train",
                "manifest": {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "metadata": {
                        "name": "train",
                        "namespace": "team",
                        "labels": {"multikueue.io/origin": "multikueue"},
                    },
                    "spec": {"parallelism": 4, "completions": 4, "template": _TEMPLATE},
                },
            },
            "podSetAssignments": _ADMISSION["podSetAssignments"],
            "leaseSeconds": 60,
        }
    },
    change=lambda number: {"spec": {"epoch": number + 2}},
    status=_assignment_status,
)
REPORT: Final = WrittenKind(
    resource=CLUSTER_REPORTS,
    spec={"spec": {"quotas": False}},
    change=lambda number: {"spec": {"resync": {"request": f"request-{number}"}}},
    status=_report_status,
)
LEASE: Final = WrittenKind(
    resource=LEASES,
    spec={"spec": {"holderIdentity": "agent", "leaseDurationSeconds": 60, "renewTime": _renewed(0)}},
    change=lambda number: {"spec": {"renewTime": _renewed(number + 1)}},
)
EVENT: Final = WrittenKind(
    resource=EVENTS,
    spec={
        "eventTime": _renewed(0),
        "reportingController": "kueue.x-k8s.io/multikueue",
        "reportingInstance": "kueue-controller-manager-0",
        "action": "Admit",
        "reason": "Admitted",
        "type": "Normal",
        "note": "Admitted by ClusterQueue main, wait time since reservation was 0s",
        "regarding": {"apiVersion": "batch/v1", "kind": "Job", "namespace": NAMESPACE, "name": "train"},
    },
    change=lambda number: {"series": {"count": number + 2, "lastObservedTime": _renewed(number + 1)}},
)
CONFIG_MAP: Final = WrittenKind(
    resource=CONFIG_MAPS,
    spec={"data": {"payload": "x" * 500, "number": "0"}},
    change=lambda number: {"data": {"number": str(number + 1)}},
)
KINDS: Final = (WORKLOAD, JOB, ASSIGNMENT, REPORT, LEASE, EVENT, CONFIG_MAP)
