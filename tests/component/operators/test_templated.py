# SPDX-License-Identifier: Apache-2.0
"""The generic operator of tests plays each kind: pods of its templates, suspension, conditions and counts."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest

from multikueue.api.objects import JsonObject
from multikueue.api.resource import PODS
from multikueue.kube.rest.client import KubeClient
from tests.support.crds import kinds
from tests.support.operators.operated_kinds import KINDS, OperatedKind, State, at, kind_of
from tests.support.operators.operator import Operator
from tests.support.operators.playground import Playground, playground
from tests.support.operators.samples import pod_template, sample
from tests.support.operators.templated import TemplatedOperator

# They test what tests use: not with each `make test`.
pytestmark = pytest.mark.conformance

LONG = pod_template({"multikueue.io/run-for": "forever"}, terminationGracePeriodSeconds=0)
QUICK = pod_template({"multikueue.io/run-for": "100ms"})
FAILING = pod_template({"multikueue.io/run-for": "50ms", "multikueue.io/exit-code": "1"})


def operator_of(kind: OperatedKind) -> Any:
    return partial(_made, kind=kind)


def _made(client: KubeClient, kind: OperatedKind) -> Operator:
    return TemplatedOperator(client, kind)


def shown(kind: OperatedKind, state: State) -> Any:
    """Whether a status shows a state: its conditions, and the fields that do not count pods."""

    def holds(status: JsonObject) -> bool:
        true = {each["type"] for each in status.get("conditions") or () if each["status"] == "True"}
        return set(kind.conditions.get(state, ())) == true and all(
            status.get(name) == value for name, value in PHASES.get((kind.resource, state), {}).items()
        )

    return holds


PHASES: dict[tuple[Any, State], JsonObject] = {
    (kinds.RAY_JOBS, State.RUNNING): {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"},
    (kinds.RAY_JOBS, State.SUCCEEDED): {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"},
    (kinds.RAY_JOBS, State.FAILED): {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED"},
    (kinds.RAY_JOBS, State.SUSPENDED): {"jobDeploymentStatus": "Suspended"},
    (kinds.RAY_CLUSTERS, State.RUNNING): {"state": "ready", "readyWorkerReplicas": 2},
    (kinds.RAY_CLUSTERS, State.SUSPENDED): {"state": "suspended"},
    (kinds.APP_WRAPPERS, State.RUNNING): {"phase": "Running"},
    (kinds.APP_WRAPPERS, State.SUCCEEDED): {"phase": "Succeeded"},
    (kinds.APP_WRAPPERS, State.SUSPENDED): {"phase": "Suspended"},
    (kinds.LEADER_WORKER_SETS, State.RUNNING): {"replicas": 2, "readyReplicas": 2},
    (kinds.SPARK_APPLICATIONS, State.RUNNING): {"applicationState": {"state": "RUNNING"}},
    (kinds.SPARK_APPLICATIONS, State.SUCCEEDED): {"applicationState": {"state": "COMPLETED"}},
    (kinds.SPARK_APPLICATIONS, State.FAILED): {"applicationState": {"state": "FAILED"}},
    (kinds.TRAIN_JOBS, State.RUNNING): {
        "jobsStatus": [{"name": "node", "ready": 1, "succeeded": 0, "failed": 0, "active": 1, "suspended": 0}]
    },
}


async def reaches(cluster: Playground, kind: OperatedKind, state: State, name: str = "one") -> JsonObject:
    return await cluster.status(kind.resource, name, f"{kind.resource.kind} {state}", shown(kind, state))


def suspend_patch(kind: OperatedKind, *, suspend: bool) -> JsonObject:
    body: Any = suspend
    for name in reversed(kind.suspend):
        body = {name: body}
    return dict(body)


async def pods_of(cluster: Playground, name: str) -> list[str]:
    found = [pod["metadata"]["name"] for pod in await cluster.listed(PODS)]
    return [each for each in found if each.startswith(f"{name}-")]


async def run_suspend_and_run(cluster: Playground, kind: OperatedKind) -> None:
    name = kind.resource.kind.lower()
    await cluster.create(kind.resource, sample(kind.resource, name, LONG))
    await reaches(cluster, kind, State.RUNNING, name)
    roles = list(kind.roles(await cluster.get(kind.resource, name)))
    assert len(await pods_of(cluster, name)) == sum(role.count for role in roles), name
    if kind.resource == kinds.LEADER_WORKER_SETS:
        return  # has no field for it
    await cluster.change(kind.resource, name, suspend_patch(kind, suspend=True))
    await reaches(cluster, kind, State.SUSPENDED, name)

    async def empty() -> bool:
        return not await pods_of(cluster, name)

    await cluster.until(f"{name} without pods", empty)
    await cluster.change(kind.resource, name, suspend_patch(kind, suspend=False))
    await reaches(cluster, kind, State.RUNNING, name)


async def test_objects_of_each_kind_run_are_suspended_and_run_again() -> None:
    # All kinds in one cluster: a cluster for each would take a minute.
    async with playground(*map(operator_of, KINDS)) as cluster, anyio.create_task_group() as tasks:
        for kind in KINDS:
            tasks.start_soon(run_suspend_and_run, cluster, kind)


@pytest.mark.parametrize(
    ("template", "state"), [(QUICK, State.SUCCEEDED), (FAILING, State.FAILED)], ids=["succeed", "fail"]
)
async def test_objects_of_each_kind_that_ends_end_with_their_pods(template: JsonObject, state: State) -> None:
    ending = [kind for kind in KINDS if kind.finishes]

    async def ends(kind: OperatedKind) -> None:
        name = kind.resource.kind.lower()
        await cluster.create(kind.resource, sample(kind.resource, name, template))
        status = await reaches_end(cluster, kind, state, name)
        assert status["operatorState"] == state, name

    async with playground(*map(operator_of, ending)) as cluster, anyio.create_task_group() as tasks:
        for kind in ending:
            tasks.start_soon(ends, kind)


async def reaches_end(cluster: Playground, kind: OperatedKind, state: State, name: str) -> JsonObject:
    def holds(status: JsonObject) -> bool:
        return "operatorState" in status and bool(shown(kind, state)(status))

    return await cluster.status(kind.resource, name, f"{kind.resource.kind} {state}", holds)


async def test_pods_of_leading_roles_end_an_object_and_the_others_are_deleted() -> None:
    kind = kind_of(kinds.PYTORCH_JOBS)
    made = sample(kinds.PYTORCH_JOBS, "one", LONG)
    made["spec"]["pytorchReplicaSpecs"]["Master"]["template"] = QUICK
    async with playground(operator_of(kind)) as cluster:
        await cluster.create(kind.resource, made)
        status = await reaches(cluster, kind, State.SUCCEEDED)
        assert status["replicaStatuses"]["Master"] == {"succeeded": 1}

        async def cleaned() -> bool:
            return [pod["metadata"]["name"] for pod in await cluster.listed(PODS)] == ["one-master-0"]

        await cluster.until("without workers", cleaned)


async def test_an_object_of_another_controller_is_left_alone() -> None:
    kind = kind_of(kinds.RAY_CLUSTERS)
    foreign = sample(kinds.RAY_CLUSTERS, "foreign", LONG)
    foreign["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    async with playground(operator_of(kind)) as cluster:
        await cluster.create(kind.resource, foreign)
        await cluster.create(kind.resource, sample(kinds.RAY_CLUSTERS, "one", LONG))
        await reaches(cluster, kind, State.RUNNING)
        assert "status" not in await cluster.get(kind.resource, "foreign")
        assert all(pod["metadata"]["name"].startswith("one-") for pod in await cluster.listed(PODS))


async def test_gated_pods_of_a_leader_worker_set_wait_for_their_gate() -> None:
    kind = kind_of(kinds.LEADER_WORKER_SETS)
    gated = pod_template({"multikueue.io/run-for": "forever"}, schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    async with playground(operator_of(kind)) as cluster:
        await cluster.create(kind.resource, sample(kinds.LEADER_WORKER_SETS, "one", gated))
        await cluster.status(kind.resource, "one", "counted", lambda seen: seen.get("replicas") == 2)

        async def made() -> bool:
            return len(await cluster.listed(PODS)) == 4

        await cluster.until("made", made)
        for name in ("one-0", "one-0-1"):
            await cluster.change(PODS, name, {"spec": {"schedulingGates": []}})
        await cluster.status(kind.resource, "one", "half ready", lambda seen: seen.get("readyReplicas") == 1)
        bound = {pod["metadata"]["name"] for pod in await cluster.listed(PODS) if pod["spec"].get("nodeName")}
        assert bound == {"one-0", "one-0-1"}
        assert at(await cluster.get(kind.resource, "one"), "status", "conditions") == []
