# SPDX-License-Identifier: Apache-2.0
"""The courses of quota: flavors, cohorts, fair sharing, preemption between queues, and pods that are fewer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import anyio

from multikueue.api.resource import CLUSTER_QUEUES, COHORTS, JOBS, RESOURCE_FLAVORS
from tests.comparison.courses.course import RESERVED_SECONDS
from tests.comparison.hub import ComparedHub, Object
from tests.comparison.looks import Look

FAIR: Final = {"fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]}}
_MINIMUM: Final = "kueue.x-k8s.io/job-min-parallelism"


async def flavors(hub: ComparedHub) -> AsyncIterator[Look]:
    """Jobs get the node labels and tolerations of the flavor that has quota, and lose them with it."""
    taint = {"key": "spot", "value": "true", "effect": "NoSchedule"}
    await hub.make(RESOURCE_FLAVORS, "reserved", {"nodeLabels": {"kind": "reserved"}})
    await hub.make(RESOURCE_FLAVORS, "spot", {"nodeLabels": {"kind": "spot"}, "nodeTaints": [taint]})
    tolerated = {"tolerations": [{"key": "spot", "operator": "Exists"}], "nodeLabels": {"kind": "cheap"}}
    await hub.make(RESOURCE_FLAVORS, "cheap", {**tolerated, "nodeTaints": [taint]})
    given = [_flavor("reserved", cpu="2", memory="2Gi"), _flavor("spot", cpu="4", memory="4Gi")]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [*given, _flavor("cheap", cpu="4", memory="4Gi")]}
    await hub.queue(resourceGroups=[group], preemption={"withinClusterQueue": "LowerPriority"})
    yield Look("there are three flavors")
    await hub.submit("a", cpu="2")
    await anyio.sleep(RESERVED_SECONDS)
    await hub.submit("b", cpu="1")
    await anyio.sleep(RESERVED_SECONDS)
    yield Look("a has the first flavor, and b another one")
    await hub.submit("c", template={"tolerations": [{"key": "spot", "value": "true", "effect": "NoSchedule"}]})
    await anyio.sleep(RESERVED_SECONDS)
    yield Look("c tolerates the taint")
    await hub.submit("d", template={"nodeSelector": {"kind": "spot"}})
    await hub.submit("e", template={"nodeSelector": {"kind": "other"}})
    await hub.submit("f", cpu="9")
    yield Look("three have selectors or requests that do not fit")
    await hub.run("a")
    await hub.submit("g", cpu="2", priority_class="high", template={"nodeSelector": {"kind": "reserved"}})
    yield Look("g preempts a")
    await hub.stop("a")
    yield Look("a has stopped, and is somewhere else")
    await hub.change(RESOURCE_FLAVORS, "cheap", {"spec": {"nodeLabels": {"kind": "other"}}})
    yield Look("a flavor has other labels")


async def partial_admission(hub: ComparedHub) -> AsyncIterator[Look]:
    """A Job runs with fewer pods than it asked for."""
    await hub.queue(cpu="3", preempts=True)
    await hub.submit("a", parallelism=5, annotations={_MINIMUM: "2"})
    yield Look("a runs in part")
    await hub.run("a", pods=3)
    await hub.submit("b", parallelism=2, priority_class="high")
    yield Look("b preempts a")
    await hub.stop("a")
    yield Look("a has stopped")
    await hub.end("b")
    yield Look("b has succeeded")


async def cohorts(hub: ComparedHub) -> AsyncIterator[Look]:
    """Queues of a cohort lend each other quota and take it back."""
    own = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}
    for name in ("q", "p"):
        await hub.queue(name, cpu="2", cohortName="all", preemption=own)
    await hub.make(COHORTS, "all", {"resourceGroups": [_cpu("1")], "parentName": "root"})
    yield Look("two queues are in a cohort with quota")
    await hub.submit("a", cpu="2")
    await anyio.sleep(RESERVED_SECONDS)
    await hub.submit("b", cpu="2")
    await anyio.sleep(RESERVED_SECONDS)
    await hub.submit("c", cpu="2")
    yield Look("b borrows, and c waits")
    await hub.run("b")
    await hub.submit("d", cpu="2", queue_name="p")
    yield Look("d takes back what its queue owns")
    await hub.stop("b")
    yield Look("b has stopped")
    await hub.change(CLUSTER_QUEUES, "p", {"spec": {"cohortName": None}})
    yield Look("the second queue leaves the cohort")
    await hub.change(COHORTS, "all", {"spec": {"resourceGroups": [_cpu("5")]}})
    yield Look("the cohort has more quota")
    await hub.make(COHORTS, "root", {"parentName": "all"})
    await hub.submit("e", cpu="1")
    yield Look("the cohorts are a cycle")
    await hub.client.delete(COHORTS, "root")
    yield Look("the cycle is broken")
    await hub.client.delete(COHORTS, "all")
    yield Look("the cohort is deleted")


async def borrowing(hub: ComparedHub) -> AsyncIterator[Look]:
    """A Job of high priority preempts in another queue while it borrows; limits hold."""
    within = {"policy": "LowerPriority", "maxPriorityThreshold": 50}
    takes = {"withinClusterQueue": "LowerOrNewerEqualPriority", "reclaimWithinCohort": "LowerPriority"}
    await hub.queue("q", cohortName="all", preemption=takes | {"borrowWithinCohort": within}, **_limited("2", "2"))
    await hub.queue("p", cohortName="all", **_limited("2", None, "1"))
    await hub.queue("o", cohortName="all", cpu="0")
    await hub.submit("a", cpu="3", queue_name="p", priority_class="low")
    await hub.run("a")
    await hub.submit("b", cpu="3", priority_class="high")
    yield Look("a borrows, and b would")
    await hub.submit("c", cpu="4")
    yield Look("c is larger than what its queue may borrow")
    await hub.submit("d", cpu="1", queue_name="o", priority_class="low")
    yield Look("d has no quota of its own")
    await hub.stop("a")
    yield Look("a has stopped")
    await hub.change(CLUSTER_QUEUES, "q", {"spec": {"resourceGroups": _limited("5", "0")["resourceGroups"]}})
    yield Look("the first queue has more quota")


async def fair(hub: ComparedHub) -> AsyncIterator[Look]:
    """Queues with weights share a cohort."""
    own = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    for name, weight in (("q", "1"), ("p", "2"), ("o", "0")):
        await hub.queue(name, cpu="2", cohortName="all", preemption=own, fairSharing={"weight": weight})
    yield Look("three queues have weights")
    for number in range(5):
        await hub.submit(f"a{number}", cpu="1")
        await anyio.sleep(RESERVED_SECONDS)  # those that are younger by a second are preempted first
    yield Look("one queue borrows")
    for number in range(4):
        await hub.submit(f"b{number}", cpu="1", queue_name="p")
        await anyio.sleep(RESERVED_SECONDS)
    yield Look("another one wants its share")
    for number in range(5):
        await hub.stop(f"a{number}")
    yield Look("what was preempted has stopped")
    await hub.change(CLUSTER_QUEUES, "q", {"spec": {"fairSharing": {"weight": "3"}}})
    await hub.submit("c", cpu="1", queue_name="o")
    yield Look("the first queue has more weight")


def _flavor(name: str, **quotas: str) -> Object:
    return {"name": name, "resources": [{"name": each, "nominalQuota": value} for each, value in quotas.items()]}


def _cpu(quota: str) -> Object:
    return {"coveredResources": ["cpu"], "flavors": [_flavor("default", cpu=quota)]}


def _limited(quota: str, borrows: str | None, lends: str | None = None) -> dict[str, Any]:
    found = _cpu(quota)
    limits = {"borrowingLimit": borrows, "lendingLimit": lends}
    found["flavors"][0]["resources"][0] |= {key: value for key, value in limits.items() if value is not None}
    return {"resourceGroups": [found]}


async def resized(hub: ComparedHub) -> AsyncIterator[Look]:
    """Quota shrinks under what runs, flavors are renamed, and the order of queueing changes."""
    await hub.queue(cpu="2")
    await hub.submit("a", cpu="2")
    await anyio.sleep(RESERVED_SECONDS)
    await hub.run("a")
    await hub.submit("b", cpu="2")
    await hub.submit("c", cpu="1")
    yield Look("a runs, and two wait")
    await hub.change(CLUSTER_QUEUES, "q", {"spec": {"resourceGroups": [_cpu("1")]}})
    yield Look("there is less quota than a uses")
    await hub.change(CLUSTER_QUEUES, "q", {"spec": {"queueingStrategy": "StrictFIFO"}})
    await hub.end("a")
    yield Look("a has succeeded, and b is first in a strict queue")
    await hub.change(CLUSTER_QUEUES, "q", {"spec": {"queueingStrategy": "BestEffortFIFO"}})
    yield Look("the queue is not strict any more")
    await hub.client.delete(JOBS, "b", namespace="team", propagation="Background")
    await hub.change(CLUSTER_QUEUES, "q", {"spec": {"resourceGroups": [_cpu("3")]}})
    await hub.submit("d", cpu="2")
    yield Look("b is deleted, and there is more quota")
