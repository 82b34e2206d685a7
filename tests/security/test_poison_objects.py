# SPDX-License-Identifier: Apache-2.0
"""Unreadable objects: each is reported where its owner looks, and everything else works.

A hundred of each of ten sorts lie on one federation while its manager and agents are restarted; two hundred Jobs of
another tenant, on both transports, finish. Each sort is tried alone as well, so that a failure says which. No webhook
is asked: what lies there was written before it was installed, or while it was not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import anyio
import orjson
import pytest

from devcluster.federation import enrolment
from multikueue.api import constants
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    CLUSTER_REPORTS,
    COHORTS,
    JOBS,
    LEASES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    REMOTE_ASSIGNMENTS,
    SECRETS,
    WORKLOADS,
    Resource,
)
from multikueue.kube.rest.client import KubeClient
from tests.security.fuzz.catalogue import HUB, NAMESPACE, PULL, PUSH, QUEUE
from tests.security.fuzz.federation import Fuzzed, bounded, connected, fuzzed_federation
from tests.security.fuzz.writes import Edit, Write
from tests.support.managers import Object, ensure, eventually, get

pytestmark = pytest.mark.anyio

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
LONG: Final = "@repeat:5000:9@"
_FEW: Final = 4
_MANY: Final = 100
_TIME: Final = "2026-01-31T08:00:00Z"
_YEAR_0: Final = "0001-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Poison:
    """One object, and where it may be reported: on itself, or on a related object."""

    name: str
    cluster: str
    resource: Resource
    namespace: str | None = NAMESPACE
    stand_in: tuple[Resource, str] | None = None
    """A cluster-scoped object whose condition counts as well."""
    workload: str = ""
    """The Workload of the namespace of all whose events count as well."""
    understood: bool = False
    """Whether it is wrong but readable, so that there is nothing to report."""


Make = Callable[[Fuzzed, int], Awaitable[list[Poison]]]


@dataclass(frozen=True, slots=True)
class Sort:
    """A sort of them; one of the texts has to be in the report about each unreadable object."""

    name: str
    make: Make
    words: tuple[str, ...]
    without_agent: bool = False
    """Whether the agent must not write over it before the manager has read it."""


async def _adopting_jobs(made: Fuzzed, count: int) -> list[Poison]:
    value = f"{PULL} m u ²"
    place = ("metadata", "annotations", constants.ADOPTS_ANNOTATION)
    return await _jobs(made, "adopts", count, lambda number: (Edit(place, value),))


async def _jobs_of_anothers_workload(made: Fuzzed, count: int) -> list[Poison]:
    await _send(made, Write("tenant/jobs", 2, (Edit(("metadata", "name"), "first"),)))
    owner = await eventually(lambda: _workload_of(made, "first"), what="the first Job has a Workload")
    assert owner is not None
    place = ("metadata", "annotations", constants.PREBUILT_WORKLOAD_ANNOTATION)
    return await _jobs(made, "prebuilt", count, lambda number: (Edit(place, owner),))


async def _workloads_of_endless_requests(made: Fuzzed, count: int) -> list[Poison]:
    place = ("spec", "podSets", 0, "template", "spec", "containers", 0, "resources")
    values = (LONG, "9223372036854775807Ei", "1@repeat:60:0@", "0.@repeat:3000:0@1")
    found = await _workloads(
        made, "requests", count, lambda number: (Edit(place, {"requests": {"cpu": values[number % len(values)]}}),)
    )
    # Amounts beyond 64 bits are counted, and fit nowhere.
    return [replace(poison, understood=number % len(values) in (1, 2)) for number, poison in enumerate(found)]


async def _workloads_of_the_year_0(made: Fuzzed, count: int) -> list[Poison]:
    found = await _workloads(made, "times", count, lambda number: ())
    condition = {
        "type": "Evicted",
        "status": "True",
        "reason": "Preempted",
        "message": "",
        "lastTransitionTime": _YEAR_0,
    }
    statuses: tuple[Object, ...] = (
        {"conditions": [condition]},
        {"requeueState": {"count": 1, "requeueAt": "9999-12-31T23:59:59Z"}},
        {"conditions": [{**condition, "type": "PodsReady", "status": "False"}]},
        {"admissionChecks": [{"name": "c", "state": "Retry", "message": "", "lastTransitionTime": _YEAR_0}]},
    )
    for number, poison in enumerate(found):
        await _patch_status(made.clients[HUB], poison, statuses[number % len(statuses)])
    return found


async def _garbled_reports(made: Fuzzed, count: int) -> list[Poison]:
    names = await _enrol(made, count)
    amount = {
        "name": "cpu",
        "allocatable": LONG,
        "free": LONG,
        "largestFree": "1e18",
        "reserved": "-1",
        "largest": "1n",
    }
    taint = {"key": "²", "value": "x", "effect": "NoSchedule"}
    status = {
        "bootID": "b",
        "sequence": 2**63 - 1,
        "capacity": [amount],
        "groups": [{"labels": {"²": "²"}, "taints": [taint], "nodes": 2**31 - 1, "capacity": [amount]}],
        "nodes": {"ready": 2**31 - 1, "total": 0},
    }
    body = orjson.loads(orjson.dumps({"status": status}).replace(LONG.encode(), b"9" * 5000))
    for name in names:
        await made.clients[HUB].patch(
            CLUSTER_REPORTS, "agent", body, namespace=mailbox_namespace(name), subresource="status"
        )
    return [_of_cluster(name, CLUSTER_REPORTS) for name in names]


async def _leases_of_no_time(made: Fuzzed, count: int) -> list[Poison]:
    names = await _enrol(made, count)
    times = ("0001-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.000000Z")
    for number, name in enumerate(names):
        spec = {"renewTime": times[number % len(times)], "leaseDurationSeconds": 2**31 - 1, "holderIdentity": "\x1b[2J"}
        await made.clients[HUB].patch(LEASES, "agent", {"spec": spec}, namespace=mailbox_namespace(name))
    return [_of_cluster(name, LEASES) for name in names]


async def _assignments_of_nonsense(made: Fuzzed, count: int) -> list[Poison]:
    place = ("spec", "template", "metadata", "annotations", constants.RUN_FOR_ANNOTATION)
    pinned = ("metadata", "annotations", constants.CLUSTERS_ANNOTATION)
    await _jobs(made, "dispatched", count, lambda number: (Edit(place, "forever"), Edit(pinned, PULL)))

    async def assigned() -> list[tuple[str, str]]:
        page = await made.clients[HUB].list_all(REMOTE_ASSIGNMENTS, namespace=mailbox_namespace(PULL))
        found = [orjson.loads(raw) for raw in page.items]
        pairs = [(obj["metadata"]["name"], obj["spec"]["workload"]["name"]) for obj in found]
        return [(name, workload) for name, workload in pairs if "dispatched-" in workload]

    names = await eventually(assigned, what="all are assigned", until=lambda found: len(found) >= count)
    await made.agent.stop(abruptly=False)
    end = {"reason": "Succeeded", "message": "\x1b[2J", "time": _YEAR_0}
    running = {"epoch": 1, "phase": "Running", "jobUID": "u"}
    blocked = {
        "type": "BlockedOnPreemptionGates",
        "status": "True",
        "reason": "PreemptionGated",
        "message": "",
        "lastTransitionTime": _YEAR_0,
    }
    statuses: tuple[Object, ...] = (
        {"epoch": 1, "phase": "Finished", "finished": end},
        {"epoch": 2**63 - 1, "phase": "Running", "sequence": 2**63 - 1},
        {**running, "jobStatus": {"completedIndexes": "0-99999999", "active": "²"}},
        {"epoch": 1, "phase": "Reserved", "conditions": [blocked]},
        {
            "epoch": 1,
            "phase": "Running",
            "jobUID": "u",
            "jobStatus": {"startTime": "²", "conditions": [{"type": 1}, 7]},
        },
    )
    found = []
    for number, (name, workload) in enumerate(sorted(names)[:count]):
        status = statuses[number % len(statuses)]
        poison = Poison(
            name,
            HUB,
            REMOTE_ASSIGNMENTS,
            namespace=mailbox_namespace(PULL),
            workload=workload,
            # A status of another epoch than the assignment's is ignored, whatever it says.
            understood=status["epoch"] != 1,
        )
        await _patch_status(made.clients[HUB], poison, status)
        found.append(poison)
    return found


async def _workloads_that_cannot_be(made: Fuzzed, count: int) -> list[Poison]:
    found = await _workloads(made, "impossible", count, lambda number: ())
    reserved = [
        {"type": kind, "status": "True", "reason": "Said", "message": "", "lastTransitionTime": _TIME}
        for kind in ("QuotaReserved", "Admitted")
    ]

    def admitted(**assignment: Any) -> Object:
        given = {"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}, "count": 1, **assignment}
        return {"conditions": reserved, "admission": {"clusterQueue": "mallory", "podSetAssignments": [given]}}

    statuses = (
        admitted(resourceUsage={"cpu": "9" * 5000}),
        admitted(flavors={"cpu": "nowhere"}),
        admitted(name="other"),
        {"conditions": reserved},
        {**admitted(), "clusterName": "nowhere"},
    )
    # Only the amount cannot be read; names of missing objects are accepted.
    found = [replace(poison, understood=number % len(statuses) != 0) for number, poison in enumerate(found)]
    for number, poison in enumerate(found):
        await _patch_status(made.clients[HUB], poison, statuses[number % len(statuses)])
    return found


async def _odd_configuration(made: Fuzzed, count: int) -> list[Poison]:
    found = []
    for number in range(count):
        name = f"odd-{number}"
        resource, spec = (
            (COHORTS, {"parentName": name}),
            (ADMISSION_CHECKS, _check("NoSuchKind")),
            (MULTIKUEUE_CONFIGS, {"clusters": ["nowhere"]}),
            (
                CLUSTER_QUEUES,
                {"cohortName": name, "namespaceSelector": {"matchLabels": {}}, "resourceGroups": _twice()},
            ),
        )[number % 4]
        body = {"apiVersion": KUEUE, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}
        await made.clients[HUB].create(resource, body)
        # A config is reported by the checks that use it, and of two groups of one resource the first counts.
        understood = resource in (MULTIKUEUE_CONFIGS, CLUSTER_QUEUES)
        found.append(Poison(name, HUB, resource, namespace=None, understood=understood))
    return found


async def _jobs_of_no_hub(made: Fuzzed, count: int) -> list[Poison]:
    found = []
    marks = {constants.EPOCH_ANNOTATION: "²", constants.MANAGER_UID_ANNOTATION: "u"}
    odd = (constants.ASSIGNMENT_ANNOTATION, constants.WORKLOAD_ANNOTATION)
    for number in range(count):
        cluster, name = (PULL, PUSH)[number % 2], f"copy-{number}"
        edits = [Edit(("metadata", "name"), name)]
        edits += [Edit(("metadata", "annotations", mark), value) for mark, value in marks.items()]
        edits += [Edit(("metadata", "annotations", mark), f"job-{number}") for mark in odd]
        await _send(made, Write(f"{cluster}/copies", 0, tuple(edits)))
        # By its other annotations it belongs to another management cluster, which an administrator decides about.
        found.append(Poison(name, cluster, JOBS, understood=True))
    return found


SORTS: Final = (
    Sort("jobs-that-adopt-at-no-epoch", _adopting_jobs, (constants.ADOPTS_ANNOTATION,)),
    Sort(
        "jobs-of-anothers-workload",
        _jobs_of_anothers_workload,
        (constants.PREBUILT_WORKLOAD_ANNOTATION, "owned by", "belongs to"),
    ),
    Sort("workloads-of-endless-requests", _workloads_of_endless_requests, ("requests", "resources", "cpu")),
    Sort("workloads-of-the-year-0", _workloads_of_the_year_0, ("time", "Time", "requeueAt")),
    Sort("garbled-reports", _garbled_reports, ("capacity", "cpu", "sequence", "nodes")),
    Sort("leases-of-no-time", _leases_of_no_time, ("renewTime", "leaseDurationSeconds")),
    Sort(
        "assignments-of-nonsense",
        _assignments_of_nonsense,
        ("time", "Time", "epoch", "jobStatus", "completedIndexes", "conditions"),
        without_agent=True,
    ),
    Sort(
        "workloads-that-cannot-be", _workloads_that_cannot_be, ("admission", "resourceUsage", "flavor", "clusterName")
    ),
    Sort("odd-configuration", _odd_configuration, ("odd-", "parameters", "cluster", "cohort", "Cohort")),
    Sort("jobs-of-no-hub", _jobs_of_no_hub, (constants.EPOCH_ANNOTATION,)),
)


@pytest.mark.breaks_on_purpose
@pytest.mark.parametrize("sort", SORTS, ids=[sort.name for sort in SORTS])
async def test_a_few_objects_of_one_sort_cost_themselves_only(sort: Sort) -> None:
    async with fuzzed_federation(webhooks=False) as made:
        good = await made.submit()
        poison = await sort.make(made, _FEW)
        await _restart(made)
        good += await made.submit()
        await _keeps_working(made, good)
        await _are_reported(made, [(sort, poison)])


@pytest.mark.breaks_on_purpose
@pytest.mark.attacks
async def test_a_thousand_of_ten_sorts_and_two_hundred_good_jobs_finish() -> None:
    async with fuzzed_federation(webhooks=False) as made:
        # So much that the poison that can be queued is dispatched, each in its turn.
        await made.clients[HUB].patch(CLUSTER_QUEUES, QUEUE, bounded(pods=2_000, cpu=1_000))
        good: list[str] = []
        listed = []
        for number, sort in enumerate(sorted(SORTS, key=lambda sort: sort.without_agent)):
            for _ in range(10):
                good += await made.submit()
            listed.append((sort, await sort.make(made, _MANY)))
            if number == len(SORTS) // 2:
                await _restart(made)
        await _restart(made)
        assert len(good) == 200
        assert sum(len(poison) for _, poison in listed) == 1000
        await _keeps_working(made, good)
        # An agent reports again what is so, with a thousand objects before the manager has read them all: that it tells
        # of those is asked above, where they are few.
        await _are_reported(made, [(sort, poison) for sort, poison in listed if not sort.without_agent])


async def _restart(made: Fuzzed) -> None:
    """The manager first, so that it reads what lies there before an agent writes over it."""
    _is_there(made)
    for part in made.parts:
        await part.stop(abruptly=False)
    for part in made.parts:
        if part is not made.agent:
            await part.start()
    await _lead_for_a_while(made)
    await made.agent.start()


async def _lead_for_a_while(made: Fuzzed) -> None:
    """Wait until the managers lead, and for a moment in which they read what is there; no check relies on it."""
    with anyio.move_on_after(10):
        for part in made.parts:
            while part is not made.agent and await part.problem():
                _is_there(made)
                await anyio.sleep(0.05)
    await anyio.sleep(0.3)


def _is_there(made: Fuzzed) -> None:
    for part in made.parts:
        assert part.lost is None, f"{part.name} ended: {part.lost}"


async def _keeps_working(made: Fuzzed, good: Sequence[str]) -> None:
    """Every part runs and is ready, and the other tenant's Jobs finish."""

    async def left() -> list[str]:
        _is_there(made)
        return await made.unfinished(good)

    await eventually(left, what="the other tenant's Jobs are complete", until=lambda found: not found)
    await connected(made, within=30.0)


async def _are_reported(made: Fuzzed, found: Sequence[tuple[Sort, Sequence[Poison]]]) -> None:
    async def unreported() -> dict[str, list[str]]:
        reports = await _reports(made)
        missing: dict[str, list[str]] = {}
        for sort, poison in found:
            for each in poison:
                lines = reports.get((each.cluster, each.resource.kind, each.name, each.namespace), [])
                if each.resource in (LEASES, CLUSTER_REPORTS, REMOTE_ASSIGNMENTS):
                    lines = [*lines, *reports.get((each.cluster, each.resource.kind, "agent", each.namespace), [])]
                if each.understood:
                    continue
                if each.workload:
                    lines = [*lines, *reports.get((each.cluster, WORKLOADS.kind, each.workload, NAMESPACE), [])]
                if each.stand_in is not None:
                    resource, name = each.stand_in
                    lines = [*lines, *reports.get((each.cluster, resource.kind, name, None), [])]
                if not any(word in line for line in lines for word in sort.words):
                    missing.setdefault(sort.name, []).append(f"{each.resource.kind} {each.name}: {lines or 'nothing'}")
        return missing

    last = await unreported()
    with anyio.move_on_after(20):
        while last:
            _is_there(made)
            await anyio.sleep(0.2)
            last = await unreported()
    few = {name: f"{len(each)}, such as {each[0][:300]}" for name, each in last.items()}
    assert not few, f"these are not reported: {few}"


async def _reports(made: Fuzzed) -> dict[tuple[str, str, str, str | None], list[str]]:
    """Warnings and conditions, by the object that they are about."""
    reports: dict[tuple[str, str, str, str | None], list[str]] = {}
    for cluster, client in made.clients.items():
        answer = await client.request("GET", "/apis/events.k8s.io/v1/events")
        for event in orjson.loads(answer.body)["items"]:
            about = event["regarding"]
            if event["type"] == "Warning":
                # An event about what has no namespace lies in `default`, and says so of its object at times.
                for namespace in (about.get("namespace") or None, None):
                    reports.setdefault((cluster, about["kind"], about["name"], namespace), []).append(event["note"])
    client = made.clients[HUB]
    for resource in (WORKLOADS, JOBS, COHORTS, ADMISSION_CHECKS, CLUSTER_QUEUES, MULTIKUEUE_CLUSTERS):
        for raw in (await client.list_all(resource)).items:
            obj = orjson.loads(raw)
            metadata = obj["metadata"]
            for condition in (obj.get("status") or {}).get("conditions") or ():
                key = (HUB, resource.kind, metadata["name"], metadata.get("namespace"))
                reports.setdefault(key, []).append(f"{condition['reason']}: {condition.get('message', '')}")
    return reports


async def _send(made: Fuzzed, write: Write) -> None:
    answer = await made.send(write)
    assert answer is not None, f"{write.text()} has no object"
    assert answer.status in (200, 201), f"{write.text()} was answered with {answer.status}: {answer.body[:300]}"


async def _jobs(made: Fuzzed, name: str, count: int, edits: Callable[[int], tuple[Edit, ...]]) -> list[Poison]:
    for number in range(count):
        named = Edit(("metadata", "name"), f"{name}-{number}")
        await _send(made, Write("tenant/jobs", 0, (named, *edits(number))))
    return [Poison(f"{name}-{number}", HUB, JOBS) for number in range(count)]


async def _workloads(made: Fuzzed, name: str, count: int, edits: Callable[[int], tuple[Edit, ...]]) -> list[Poison]:
    for number in range(count):
        named = Edit(("metadata", "name"), f"{name}-{number}")
        await _send(made, Write("tenant/workloads", 0, (named, *edits(number))))
    return [Poison(f"{name}-{number}", HUB, WORKLOADS) for number in range(count)]


async def _patch_status(client: KubeClient, poison: Poison, status: Object) -> None:
    await client.patch(
        poison.resource, poison.name, {"status": status}, namespace=poison.namespace, subresource="status"
    )


async def _workload_of(made: Fuzzed, job: str) -> str | None:
    for raw in (await made.clients[HUB].list_all(WORKLOADS, namespace=NAMESPACE)).items:
        metadata = orjson.loads(raw)["metadata"]
        if any(owner["name"] == job for owner in metadata.get("ownerReferences") or ()):
            return str(metadata["name"])
    return None


async def _enrol(made: Fuzzed, count: int) -> list[str]:
    """Clusters whose agents are played by whoever broke into them; the same ones for all sorts of one test."""
    client = made.clients[HUB]
    names = [f"taken-over-{number}" for number in range(count)]
    for each in names:
        for obj, resource in zip(enrolment.manifests(each), (SECRETS, MULTIKUEUE_CLUSTERS), strict=True):
            await ensure(client, resource, obj)
    for each in names:
        for resource in (LEASES, CLUSTER_REPORTS):
            await eventually(
                partial(get, client, resource, "agent", namespace=mailbox_namespace(each)),
                what=f"the mailbox of {each}",
            )
    return names


def _of_cluster(name: str, resource: Resource) -> Poison:
    return Poison("agent", HUB, resource, namespace=mailbox_namespace(name), stand_in=(MULTIKUEUE_CLUSTERS, name))


def _check(kind: str) -> Object:
    return {
        "controllerName": constants.MULTIKUEUE_CONTROLLER,
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": kind, "name": "nowhere"},
    }


def _twice() -> list[Object]:
    group = {
        "coveredResources": ["cpu"],
        "flavors": [{"name": "nowhere", "resources": [{"name": "cpu", "nominalQuota": "9" * 5000}]}],
    }
    return [group, group]
