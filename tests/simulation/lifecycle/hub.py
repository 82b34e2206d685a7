# SPDX-License-Identifier: Apache-2.0
"""What is durable in the lifecycle simulation: Jobs, Workloads, queues, checks, requests, and the clock.

Every write of the manager passes through `Hub.write`, where it can be killed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from multikueue.api.constants import JOB_UID_LABEL, PROVISIONING_CONTROLLER
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time
from tests.simulation.lifecycle.requests import RequestStore

Object = dict[str, Any]

START: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
TEAM: Final = "team"
QUEUES: Final = ("a", "b")
FOREIGN_CHECKS: Final = ("first", "second", "spot-only")
CAPACITY: Final = "capacity"
CHECKS: Final = (*FOREIGN_CHECKS, CAPACITY)
CLASSES: Final = {"low": 0, "high": 100}


class Violation(AssertionError):
    """An invariant does not hold."""


class Killed(Exception):
    """The manager was killed at a write."""


@dataclass(slots=True)
class Hub:
    """What is durable, and the clock."""

    now: datetime = START
    jobs: dict[str, Object] = field(default_factory=dict)
    workloads: dict[Key, Object] = field(default_factory=dict)
    cluster_queues: dict[str, Object] = field(default_factory=dict)
    local_queues: dict[str, Object] = field(default_factory=dict)
    checks: dict[str, Object] = field(default_factory=dict)
    configs: dict[str, Object] = field(default_factory=dict)
    capacity: RequestStore = field(default_factory=RequestStore)
    made: int = 0
    writes: int = 0
    """That the manager has made."""
    fuse: int | None = None
    """How many writes of the manager are left until it is killed."""
    stored_last: bool = False
    """Whether the write at which it is killed is stored."""

    def write(self, change: Callable[[], object]) -> None:
        """One write of the manager; raises `Killed` before or after it."""
        self.writes += 1
        if self.fuse is None:
            change()
            return
        self.fuse -= 1
        if self.fuse > 0 or self.stored_last:
            change()
        if self.fuse <= 0:
            raise Killed

    def durable(self) -> Object:
        """Everything but versions, uids, and why something waits: a new manager counts amounts anew."""
        found: Object = copy.deepcopy({"jobs": self.jobs, "workloads": {str(k): v for k, v in self.workloads.items()}})
        for workload in found["workloads"].values():
            status = workload.get("status") or {}
            status.pop("resourceRequests", None)
            status["conditions"] = sorted(
                (
                    {key: value for key, value in each.items() if key not in ("reason", "message")}
                    if (each["type"], each["status"]) == ("QuotaReserved", "False")
                    else each
                    for each in status.get("conditions") or ()
                ),
                key=lambda each: str(each["type"]),
            )
        for each in (*found["jobs"].values(), *found["workloads"].values()):
            del each["metadata"]["resourceVersion"]
        names = {each["metadata"].pop("uid"): name for name, each in found["workloads"].items()}
        return {**found, **self.capacity.durable(names)}


def new_hub() -> Hub:
    """Two queues of one cohort, each with three CPUs on demand and two of spot, which needs a check of its own."""
    hub = Hub()
    for name in QUEUES:
        flavors = [
            {"name": flavor, "resources": [{"name": "cpu", "nominalQuota": quota}]}
            for flavor, quota in (("on-demand", "3"), ("spot", "2"))
        ]
        hub.cluster_queues[name] = {
            "metadata": {"name": name},
            "spec": {
                "cohortName": "all",
                "namespaceSelector": {},
                "queueingStrategy": "BestEffortFIFO",
                "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "LowerPriority"},
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
                "admissionChecksStrategy": {"admissionChecks": strategy(("first",) if name == "a" else (CAPACITY,))},
            },
        }
        hub.local_queues[name] = {"metadata": {"name": name, "namespace": TEAM}, "spec": {"clusterQueue": name}}
    time = format_time(START)
    for name in CHECKS:
        conditions = [
            {"type": "Active", "status": "True", "reason": "Active", "message": "", "lastTransitionTime": time}
        ]
        hub.checks[name] = {
            "metadata": {"name": name, "generation": 1, "resourceVersion": "1"},
            "spec": {"controllerName": f"example.com/{name}"},
            "status": {"conditions": conditions},
        }
    reference = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": CAPACITY}
    hub.checks[CAPACITY]["spec"] = {"controllerName": PROVISIONING_CONTROLLER, "parameters": reference}
    hub.configs[CAPACITY] = capacity_config()
    return hub


def capacity_config(
    class_name: str = "check-capacity.autoscaling.x-k8s.io", *, retries: int = 2, managed: tuple[str, ...] = ()
) -> Object:
    """How capacity is requested: a minute after the first failure it is tried again."""
    selector = [{"key": "example.com/pool", "valueFromProvisioningClassDetail": "Pool"}]
    return {
        "metadata": {"name": CAPACITY, "generation": 1, "resourceVersion": "1"},
        "spec": {
            "provisioningClassName": class_name,
            "managedResources": list(managed),
            "podSetUpdates": {"nodeSelector": selector},
            "retryStrategy": {"backoffLimitCount": retries, "backoffBaseSeconds": 60, "backoffMaxSeconds": 100},
        },
    }


def strategy(checks: tuple[str, ...]) -> list[Object]:
    """The entries of an admissionChecksStrategy; `spot-only` is for one flavor."""
    return [{"name": name, **({"onFlavors": ["spot"]} if name == "spot-only" else {})} for name in checks]


def merge(target: Object, patch: Object) -> None:
    """A JSON merge patch."""
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        elif isinstance(value, dict):
            merge(target.setdefault(name, {}), value)
        else:
            target[name] = copy.deepcopy(value)


def key_of(workload: Object) -> Key:
    """Its key."""
    return Key(workload["metadata"]["namespace"], workload["metadata"]["name"])


def owner_of(workload: Object) -> str:
    """The name of its Job."""
    return str(workload["metadata"]["ownerReferences"][0]["name"])


def uid_of(workload: Object) -> str:
    """The uid of its Job."""
    return str(workload["metadata"]["labels"][JOB_UID_LABEL])


def later(hub: Hub, seconds: int) -> None:
    """Time passes."""
    hub.now += timedelta(seconds=seconds)
