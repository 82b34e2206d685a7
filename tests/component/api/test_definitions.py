# SPDX-License-Identifier: Apache-2.0
"""Our definitions on a real API server: they install, convert, default, prune, and their CEL rules hold."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.binaries.release import Binaries
from devcluster.providers.provider import ClusterSpec
from multikueue.api.crds import manifests
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    CUSTOM_RESOURCE_DEFINITIONS,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    REMOTE_ASSIGNMENTS,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    WORKLOADS,
    Resource,
)
from multikueue.kube.errors import ApiError, Invalid
from multikueue.kube.rest.client import KubeClient, PatchKind

pytestmark = pytest.mark.binaries

ROOT = Path(__file__).resolve().parents[3]
TIME = "2026-01-01T00:00:00Z"


def _object(resource: Resource, name: str, **parts: Any) -> dict[str, Any]:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, **parts}


def _groups(**limits: str) -> list[dict[str, Any]]:
    quota = {"name": "cpu", "nominalQuota": "10", **limits}
    return [{"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}]


def _workload(name: str, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}}
    pod_set = {"name": "main", "count": 2, "template": template}
    return _object(WORKLOADS, name, spec={"podSets": [pod_set], "queueName": "q", **spec})


def _condition(kind: str, status: str = "True") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": kind, "message": "", "lastTransitionTime": TIME}


async def _update_status(client: KubeClient, name: str, status: dict[str, Any]) -> dict[str, Any]:
    current = await client.get_object(WORKLOADS, name, namespace="default")
    body = current | {"status": status}
    written = await client.replace(WORKLOADS, name, body, namespace="default", subresource="status")
    found: dict[str, Any] = orjson.loads(written)
    return found


@pytest.mark.parametrize("manifest", manifests(), ids=lambda manifest: manifest["metadata"]["name"])
async def test_a_definition_is_established_and_structural(client: KubeClient, manifest: dict[str, Any]) -> None:
    found = await client.get_object(CUSTOM_RESOURCE_DEFINITIONS, manifest["metadata"]["name"])
    conditions = {condition["type"]: condition for condition in found["status"]["conditions"]}
    assert conditions["Established"]["status"] == "True"
    assert conditions["NamesAccepted"]["status"] == "True"
    assert conditions.keys() == {"Established", "NamesAccepted"}, conditions


async def test_a_v1beta1_queue_with_a_cohort_is_stored_and_shown_in_both_versions(client: KubeClient) -> None:
    old = CLUSTER_QUEUES.at("v1beta1")
    spec = {"cohort": "all", "admissionChecks": ["mk"], "resourceGroups": _groups(borrowingLimit="5")}
    await client.create(old, _object(old, "old-form", spec=spec))
    new = await client.get_object(CLUSTER_QUEUES, "old-form")
    assert new["spec"]["cohortName"] == "all"
    assert new["spec"]["admissionChecksStrategy"] == {"admissionChecks": [{"name": "mk"}]}
    assert (await client.get_object(old, "old-form"))["spec"]["cohort"] == "all"


async def test_the_older_values_for_fungibility_are_accepted(client: KubeClient) -> None:
    old = CLUSTER_QUEUES.at("v1beta1")
    spec = {"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}}
    await client.create(old, _object(old, "old-words", spec=spec))
    found = await client.get_object(CLUSTER_QUEUES, "old-words")
    assert found["spec"]["flavorFungibility"] == {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}


async def test_the_api_server_fills_in_the_defaults(client: KubeClient) -> None:
    created = orjson.loads(await client.create(CLUSTER_QUEUES, _object(CLUSTER_QUEUES, "defaulted", spec={})))
    assert created["spec"] == {
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        "preemption": {
            "borrowWithinCohort": {"policy": "Never"},
            "reclaimWithinCohort": "Never",
            "withinClusterQueue": "Never",
        },
        "queueingStrategy": "BestEffortFIFO",
        "stopPolicy": "None",
    }


async def test_a_pod_template_is_kept_whole_and_what_is_no_field_is_dropped(client: KubeClient) -> None:
    workload = _workload("template")
    spec = workload["spec"]["podSets"][0]["template"]["spec"]
    spec |= {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}], "terminationGracePeriodSeconds": 3}
    spec["noSuchField"] = True
    created = orjson.loads(await client.create(WORKLOADS, workload, namespace="default"))
    kept = created["spec"]["podSets"][0]["template"]["spec"]
    del spec["noSuchField"]
    assert kept == spec


async def test_workloads_are_found_by_the_queue_that_admitted_them(client: KubeClient) -> None:
    await client.create(WORKLOADS, _workload("found"), namespace="default")
    await client.create(WORKLOADS, _workload("other"), namespace="default")
    admission = {"clusterQueue": "chosen", "podSetAssignments": [{"name": "main"}]}
    await _update_status(client, "found", {"admission": admission})
    page = await client.list_page(WORKLOADS, field_selector="status.admission.clusterQueue=chosen")
    assert [orjson.loads(item)["metadata"]["name"] for item in page.items] == ["found"]


REFUSED = [
    pytest.param(
        CLUSTER_QUEUES,
        {"spec": {"resourceGroups": _groups(borrowingLimit="1")}},
        "borrowingLimit must be nil when cohort is empty",
        id="borrowing without a cohort",
    ),
    pytest.param(
        CLUSTER_QUEUES,
        {"spec": {"resourceGroups": [_groups()[0] | {"coveredResources": ["cpu", "memory"]}]}},
        "flavors must have the same number of resources",
        id="a flavor that covers too little",
    ),
    pytest.param(
        CLUSTER_QUEUES,
        {"spec": {"preemption": {"borrowWithinCohort": {"policy": "LowerPriority"}}}},
        "reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
        id="borrowing by preemption without reclaiming",
    ),
    pytest.param(
        CLUSTER_QUEUES,
        {"spec": {"flavorFungibility": {"preference": "BorrowingOverPreemption"}}},
        "preference can only be set when both",
        id="a preference between policies that stop",
    ),
    pytest.param(
        CLUSTER_QUEUES, {"spec": {"queueingStrategy": "LIFO"}}, "Unsupported value", id="a strategy that is none"
    ),
    pytest.param(
        RESOURCE_FLAVORS,
        {"spec": {"topologyName": "t", "nodeLabels": {}}},
        "at least one nodeLabel is required",
        id="a topology without node labels",
    ),
    pytest.param(
        RESOURCE_FLAVORS,
        {"spec": {"tolerations": [{"operator": "Exists", "key": "k", "value": "v"}]}},
        "a value must be empty when 'operator' is 'Exists'",
        id="a toleration with a value too much",
    ),
    pytest.param(
        RESOURCE_FLAVORS,
        {"spec": {"nodeTaints": [{"key": "k", "effect": "Never"}]}},
        "supported taint effect values",
        id="a taint effect that is none",
    ),
    pytest.param(
        MULTIKUEUE_CLUSTERS,
        {"spec": {"clusterSource": {}}},
        "exactly one of the fields in",
        id="a cluster without a source",
    ),
    pytest.param(
        MULTIKUEUE_CONFIGS, {"spec": {"clusters": ["a", "a"]}}, "must be unique", id="a cluster that is named twice"
    ),
    pytest.param(
        TOPOLOGIES,
        {"spec": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "rack"}]}},
        "can only be used at the lowest level",
        id="a hostname above another level",
    ),
]


@pytest.mark.parametrize(("resource", "parts", "message"), REFUSED)
async def test_the_schema_refuses(client: KubeClient, resource: Resource, parts: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        await client.create(resource, _object(resource, "refused", **parts), dry_run=True)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({"podSets": []}, "should have at least 1 items", id="no pod sets"),
        pytest.param(
            {"priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "PriorityClass", "name": "p"}, "priority": 1},
            "only the WorkloadPriorityClass kind",
            id="a class of the wrong kind",
        ),
        pytest.param(
            {"priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "p"}},
            "priority should not be nil",
            id="a class without a priority",
        ),
        pytest.param({"maximumExecutionTimeSeconds": 0}, "greater than or equal to 1", id="no time at all"),
    ],
)
async def test_the_schema_refuses_a_workload_with(client: KubeClient, spec: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid, match=message):
        await client.create(WORKLOADS, _workload("refused", **spec), namespace="default", dry_run=True)


@pytest.mark.parametrize(
    ("resource", "before", "after", "message"),
    [
        pytest.param(
            ADMISSION_CHECKS,
            {"controllerName": "a"},
            {"controllerName": "b"},
            "field is immutable",
            id="the controller of a check",
        ),
        pytest.param(
            RESOURCE_FLAVORS,
            {"topologyName": "a", "nodeLabels": {"k": "v"}},
            {"topologyName": "b"},
            "topologyName is immutable",
            id="the topology of a flavor",
        ),
        pytest.param(
            TOPOLOGIES,
            {"levels": [{"nodeLabel": "a"}]},
            {"levels": [{"nodeLabel": "b"}]},
            "levels are mutable only when",
            id="the levels of a topology",
        ),
    ],
)
async def test_what_is_immutable_stays(
    client: KubeClient, resource: Resource, before: dict[str, Any], after: dict[str, Any], message: str
) -> None:
    await client.create(resource, _object(resource, "fixed", spec=before))
    with pytest.raises(Invalid, match=message):
        await client.patch(resource, "fixed", {"spec": after}, kind=PatchKind.MERGE)


async def test_a_local_queue_keeps_its_cluster_queue(client: KubeClient) -> None:
    await client.create(LOCAL_QUEUES, _object(LOCAL_QUEUES, "lq", spec={"clusterQueue": "a"}), namespace="default")
    body = {"spec": {"clusterQueue": "b"}}
    with pytest.raises(Invalid, match="field is immutable"):
        await client.patch(LOCAL_QUEUES, "lq", body, namespace="default", kind=PatchKind.MERGE)


async def test_a_workload_that_holds_quota_keeps_its_queue(client: KubeClient) -> None:
    await client.create(WORKLOADS, _workload("holding"), namespace="default")
    admission = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main"}]}
    await _update_status(client, "holding", {"conditions": [_condition("QuotaReserved")], "admission": admission})
    body = {"spec": {"queueName": "elsewhere"}}
    with pytest.raises(Invalid, match="queueName is immutable while workload quota reserved"):
        await client.patch(WORKLOADS, "holding", body, namespace="default", kind=PatchKind.MERGE)


async def test_the_cluster_of_a_workload_is_chosen_once(client: KubeClient) -> None:
    await client.create(WORKLOADS, _workload("dispatched"), namespace="default")
    await _update_status(client, "dispatched", {"nominatedClusterNames": ["w1", "w2"]})
    with pytest.raises(Invalid, match="mutually exclusive"):
        await _update_status(client, "dispatched", {"nominatedClusterNames": ["w1"], "clusterName": "w1"})
    await _update_status(client, "dispatched", {"clusterName": "w1"})
    with pytest.raises(Invalid, match="clusterName is immutable once set"):
        await _update_status(client, "dispatched", {"clusterName": "w2"})
    await _update_status(client, "dispatched", {})


async def test_the_epoch_of_an_assignment_never_goes_back(client: KubeClient) -> None:
    spec = {
        "workload": {"namespace": "ns", "name": "w", "uid": "u"},
        "origin": "multikueue",
        "managerUID": "m",
        "epoch": 2,
        "intent": "Reserve",
        "workloadSpec": {"anything": {"goes": [1]}},
        "job": {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "manifest": {"spec": {"completions": 3}}},
    }
    created = await client.create(
        REMOTE_ASSIGNMENTS, _object(REMOTE_ASSIGNMENTS, "w-1", spec=spec), namespace="default"
    )
    assert orjson.loads(created)["spec"] == spec | {"partitionPolicy": "failover"}
    for change, message in (
        ({"epoch": 1}, "epoch must not go back"),
        ({"workload": {"name": "other"}}, "workload, origin and managerUID are immutable"),
        ({"intent": "Dance"}, "Unsupported value"),
    ):
        body = {"spec": change}
        with pytest.raises(Invalid, match=message):
            await client.patch(REMOTE_ASSIGNMENTS, "w-1", body, namespace="default", kind=PatchKind.MERGE)


async def test_the_folder_applies_to_a_bare_api_server_and_v1beta1_waits_for_the_manager(
    binaries_provider: BinariesProvider, kube_binaries: Binaries, tmp_path: Path
) -> None:
    spec = ClusterSpec(controllers=False, scheduler=False)
    cluster = await binaries_provider.create("bare", folder=tmp_path, spec=spec)
    async with cluster, cluster.client() as client:
        kubectl = [str(kube_binaries.path("kubectl")), "--kubeconfig", str(cluster.kubeconfig)]
        await _run(*kubectl, "apply", "--validate=strict", "-f", str(ROOT / "crds"))
        again = await _run(*kubectl, "apply", "-f", str(ROOT / "crds"))
        assert again.count("unchanged") == len(manifests()), again
        await _run(*kubectl, "wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
        await client.create(COHORTS, _object(COHORTS, "new-form", spec={"parentName": "root"}))
        old = COHORTS.at("v1beta1")
        # Taking it would drop what only v1beta1 has; the strategy None does just that.
        with pytest.raises(ApiError, match="conversion webhook"):
            await client.create(old, _object(old, "old-form"))


async def _run(*command: str, stdin: bytes | None = None) -> str:
    done = await anyio.run_process(command, input=stdin, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


async def test_the_schema_of_pod_templates_is_what_the_api_server_publishes(client: KubeClient) -> None:
    published = await client.request("GET", "/openapi/v3/api/v1")
    await _run(sys.executable, "hack/gen_pod_template.py", "--check", stdin=published.body)
