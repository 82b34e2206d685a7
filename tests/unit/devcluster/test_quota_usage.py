# SPDX-License-Identifier: Apache-2.0
"""What objects count for in quotas, and which scopes select them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from devcluster.apiserver.admission import quotas
from devcluster.apiserver.admission.review import Review
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.errors import StatusError
from devcluster.apiserver.http.requests import User
from devcluster.apiserver.registry.resources import Registry
from devcluster.apiserver.storage.store import ObjectStore
from devcluster.quota_usage import counted_resource, increase, selected, total, tracked, unspecified, usage
from multikueue.api.objects import JsonObject
from multikueue.core.clock import SystemClock
from multikueue.core.quantity import Quantity

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SIDECAR = {"restartPolicy": "Always"}


def container(
    name: str = "c", *, limits: JsonObject | None = None, more: JsonObject | None = None, **requests: str
) -> Any:
    return {"name": name, "resources": {"requests": requests, "limits": limits or {}}, **(more or {})}


def pod(*containers: JsonObject, status: JsonObject | None = None, meta: JsonObject | None = None, **spec: Any) -> Any:
    metadata = {"name": "pod", "namespace": "ns", **(meta or {})}
    return {"metadata": metadata, "spec": {"containers": list(containers), **spec}, "status": status or {}}


def claim(storage: str, *, status: JsonObject | None = None, meta: JsonObject | None = None, **spec: Any) -> JsonObject:
    wanted = {"resources": {"requests": {"storage": storage}}, **spec}
    return {"metadata": {"name": "claim", **(meta or {})}, "spec": wanted, "status": status or {}}


def used(resource: str, value: JsonObject) -> dict[str, str]:
    return {name: str(amount) for name, amount in usage(resource, value, now=NOW).items()}


def test_an_object_counts_for_its_resource_and_a_legacy_name() -> None:
    assert used("configmaps", {}) == {"count/configmaps": "1", "configmaps": "1"}
    assert used("jobs.batch", {}) == {"count/jobs.batch": "1"}
    assert used("widgets.example.com", {}) == {"count/widgets.example.com": "1"}
    assert used("events", {}) == {}


def test_a_pod_counts_for_requests_and_limits() -> None:
    value = pod(container(cpu="500m", memory="1Gi", limits={"cpu": "1"}), container("d", cpu="600m"))
    assert used("pods", value) == {
        "count/pods": "1",
        "pods": "1",
        "cpu": "1100m",
        "requests.cpu": "1100m",
        "memory": "1Gi",
        "requests.memory": "1Gi",
        "limits.cpu": "1",
    }


def test_only_requests_of_huge_pages_and_extended_resources_count() -> None:
    names = {"hugepages-2Mi": "4Mi", "example.com/gpu": "2", "node.kubernetes.io/odd": "1"}
    found = used("pods", pod({"name": "c", "resources": {"requests": names, "limits": names}}))
    assert found == {
        "count/pods": "1",
        "pods": "1",
        "hugepages-2Mi": "4Mi",
        "requests.hugepages-2Mi": "4Mi",
        "requests.example.com/gpu": "2",
    }


@pytest.mark.parametrize(
    ("value", "cpu"),
    [
        pytest.param(pod(container(cpu="1"), initContainers=[container(cpu="3")]), "3", id="an init container"),
        pytest.param(pod(container(cpu="1"), initContainers=[container(cpu="3", more=SIDECAR)]), "4", id="a sidecar"),
        pytest.param(
            pod(container(cpu="1"), initContainers=[container(cpu="1", more=SIDECAR), container(cpu="4")]),
            "5",
            id="an init container after a sidecar",
        ),
        pytest.param(
            pod(container(cpu="1"), initContainers=[container(cpu="4"), container(cpu="1", more=SIDECAR)]),
            "4",
            id="an init container before a sidecar",
        ),
        pytest.param(pod(container(cpu="1"), overhead={"cpu": "250m"}), "1250m", id="overhead"),
        pytest.param(
            pod(container(cpu="1"), resources={"requests": {"cpu": "2"}}, overhead={"cpu": "1"}),
            "3",
            id="resources of the pod",
        ),
        pytest.param(
            pod(
                container(cpu="1"),
                status={
                    "containerStatuses": [
                        {"name": "c", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "2"}}
                    ]
                },
            ),
            "3",
            id="a resize that is not done",
        ),
        pytest.param(
            pod(
                container(cpu="9"),
                status={
                    "conditions": [{"type": "PodResizePending", "reason": "Infeasible"}],
                    "containerStatuses": [
                        {"name": "c", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "2"}}
                    ],
                },
            ),
            "2",
            id="a resize that cannot be done",
        ),
    ],
)
def test_the_requests_of_a_pod(value: JsonObject, cpu: str) -> None:
    assert used("pods", value)["requests.cpu"] == cpu


def test_overhead_is_a_limit_only_where_there_is_one() -> None:
    found = used("pods", pod(container(limits={"cpu": "1"}), overhead={"cpu": "1", "memory": "1Gi"}))
    assert (found["limits.cpu"], found.get("limits.memory")) == ("2", None)


@pytest.mark.parametrize(
    ("value", "counts"),
    [
        pytest.param(pod(container(), status={"phase": "Running"}), True, id="a running pod"),
        pytest.param(pod(container(), status={"phase": "Succeeded"}), False, id="a pod that succeeded"),
        pytest.param(pod(container(), status={"phase": "Failed"}), False, id="a pod that failed"),
        pytest.param(
            pod(container(), meta={"deletionTimestamp": "2025-12-31T23:59:50Z", "deletionGracePeriodSeconds": 30}),
            True,
            id="a pod within its grace period",
        ),
        pytest.param(
            pod(container(), meta={"deletionTimestamp": "2025-12-31T23:59:00Z", "deletionGracePeriodSeconds": 30}),
            False,
            id="a pod after its grace period",
        ),
    ],
)
def test_an_ended_pod_is_only_an_object(value: JsonObject, counts: bool) -> None:
    found = used("pods", value)
    assert found["count/pods"] == "1"
    assert ("pods" in found) is counts


@pytest.mark.parametrize(
    ("spec", "ports", "balancers"),
    [
        pytest.param({"type": "ClusterIP", "ports": [{}, {}]}, "0", "0", id="a cluster IP"),
        pytest.param({"type": "NodePort", "ports": [{}, {}]}, "2", "0", id="node ports"),
        pytest.param({"type": "LoadBalancer", "ports": [{}, {}]}, "2", "1", id="a load balancer"),
        pytest.param(
            {"type": "LoadBalancer", "allocateLoadBalancerNodePorts": False, "ports": [{"nodePort": 30000}, {}]},
            "1",
            "1",
            id="a load balancer of explicit node ports",
        ),
        pytest.param({"type": "ExternalName"}, "0", "0", id="an external name"),
    ],
)
def test_services(spec: JsonObject, ports: str, balancers: str) -> None:
    found = used("services", {"spec": spec})
    assert (found["services.nodeports"], found["services.loadbalancers"], found["services"]) == (ports, balancers, "1")


def test_claims_count_for_their_class() -> None:
    assert used("persistentvolumeclaims", claim("1Gi", storageClassName="gold")) == {
        "count/persistentvolumeclaims": "1",
        "persistentvolumeclaims": "1",
        "requests.storage": "1Gi",
        "gold.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "gold.storageclass.storage.k8s.io/requests.storage": "1Gi",
    }
    annotated = claim("1Gi", meta={"annotations": {"volume.beta.kubernetes.io/storage-class": "lead"}})
    assert "lead.storageclass.storage.k8s.io/requests.storage" in used("persistentvolumeclaims", annotated)


def test_storage_is_whole_and_the_greater_of_wanted_and_allocated() -> None:
    assert used("persistentvolumeclaims", claim("1500m"))["requests.storage"] == "2"
    grown = claim("1Gi", status={"allocatedResources": {"storage": "2Gi"}})
    assert used("persistentvolumeclaims", grown)["requests.storage"] == "2Gi"


def test_the_names_that_a_resource_counts_for() -> None:
    names = [
        *("pods", "count/pods", "cpu", "requests.cpu", "limits.cpu", "hugepages-2Mi", "requests.example.com/gpu"),
        *("services", "services.nodeports", "requests.storage", "gold.storageclass.storage.k8s.io/requests.storage"),
        *("configmaps", "count/jobs.batch", "count/events", "example.com/gpu", "limits.example.com/gpu"),
    ]
    assert tracked("pods", names) == [
        *("count/pods", "cpu", "hugepages-2Mi", "limits.cpu", "pods", "requests.cpu", "requests.example.com/gpu"),
    ]
    assert tracked("services", names) == ["services", "services.nodeports"]
    assert tracked("persistentvolumeclaims", names) == [
        "gold.storageclass.storage.k8s.io/requests.storage",
        "requests.storage",
    ]
    assert tracked("configmaps", names) == ["configmaps"]
    assert tracked("jobs.batch", names) == ["count/jobs.batch"]
    assert tracked("events", names) == []
    assert [counted_resource(name) for name in ("count/jobs.batch", "secrets", "services", "cpu")] == [
        *("jobs.batch", "secrets", "services", ""),
    ]


PLAIN = pod(container())
ASKING = pod(container(cpu="1"))
DISK = pod(container(), {"name": "d", "resources": {"requests": {"ephemeral-storage": "1Gi"}}})
LIMITED = pod(container(), activeDeadlineSeconds=5)
CRITICAL = pod(container(), priorityClassName="critical")


def affine(**term: Any) -> Any:
    return pod(container(), affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})


@pytest.mark.parametrize(
    ("scope", "value", "wanted"),
    [
        pytest.param("Terminating", PLAIN, False, id="no deadline"),
        pytest.param("Terminating", LIMITED, True, id="a deadline"),
        pytest.param("NotTerminating", PLAIN, True, id="it goes on"),
        pytest.param("BestEffort", PLAIN, True, id="no requests"),
        pytest.param("BestEffort", DISK, True, id="requests of disk only"),
        pytest.param("BestEffort", ASKING, False, id="requests"),
        pytest.param("NotBestEffort", ASKING, True, id="not best effort"),
        pytest.param("NotBestEffort", pod(container(cpu="0")), False, id="requests of zero"),
        pytest.param("BestEffort", pod(container(), resources={"limits": {"cpu": "1"}}), False, id="limits of the pod"),
        pytest.param("PriorityClass", CRITICAL, True, id="a priority class"),
        pytest.param("PriorityClass", PLAIN, False, id="no priority class"),
        pytest.param("CrossNamespacePodAffinity", affine(), False, id="affinity inside"),
        pytest.param("CrossNamespacePodAffinity", affine(namespaceSelector={}), True, id="affinity by selector"),
        pytest.param("CrossNamespacePodAffinity", affine(namespaces=["a"]), True, id="affinity by name"),
        pytest.param("VolumeAttributesClass", PLAIN, False, id="a scope of claims"),
    ],
)
def test_scopes_of_pods(scope: str, value: JsonObject, wanted: bool) -> None:
    assert selected("pods", value, {"scopes": [scope]}) is wanted


@pytest.mark.parametrize(
    ("operator", "values", "critical", "plain"),
    [
        pytest.param("In", ["critical"], True, False, id="In"),
        pytest.param("In", ["other"], False, False, id="In others"),
        pytest.param("NotIn", ["critical"], False, True, id="NotIn"),
        pytest.param("NotIn", ["other"], True, True, id="NotIn others"),
        pytest.param("Exists", [], True, False, id="Exists"),
        pytest.param("DoesNotExist", [], False, True, id="DoesNotExist"),
    ],
)
def test_selectors(operator: str, values: list[str], critical: bool, plain: bool) -> None:
    def spec(scope: str) -> JsonObject:
        return {"scopeSelector": {"matchExpressions": [{"scopeName": scope, "operator": operator, "values": values}]}}

    assert selected("pods", CRITICAL, spec("PriorityClass")) is critical
    assert selected("pods", PLAIN, spec("PriorityClass")) is plain
    of_class = claim("1", volumeAttributesClassName="critical")
    assert selected("persistentvolumeclaims", of_class, spec("VolumeAttributesClass")) is critical
    assert selected("persistentvolumeclaims", claim("1"), spec("VolumeAttributesClass")) is plain


def test_a_scope_selects_no_other_kinds() -> None:
    assert selected("configmaps", {}, {})
    assert not selected("configmaps", {}, {"scopes": ["NotTerminating"]})
    assert not selected("persistentvolumeclaims", claim("1"), {"scopes": ["NotBestEffort"]})


def test_a_total_has_all_names_and_only_what_is_selected() -> None:
    values = [ASKING, PLAIN, pod(container(cpu="500m"))]
    found = total("pods", values, {"scopes": ["NotBestEffort"]}, names=["pods", "cpu", "limits.cpu"], now=NOW)
    assert {name: str(amount) for name, amount in found.items()} == {"pods": "2", "cpu": "1500m", "limits.cpu": "0"}


def test_only_an_increase_is_requested() -> None:
    new = {"a": Quantity.of(3), "b": Quantity.of(1), "c": Quantity.of(2)}
    assert increase(new, {"a": Quantity.of(1), "b": Quantity.of(1), "c": Quantity.of(5)}) == {"a": Quantity.of(2)}
    assert increase({"a": Quantity.of(0)}, {}) == {}


def test_what_containers_do_not_specify() -> None:
    value = pod(container("b"), container("a", cpu="1"), initContainers=[container("i", memory="1")])
    names = ["pods", "requests.cpu", "memory", "ephemeral-storage"]
    assert unspecified(value, names) == "memory for: a,b; requests.cpu for: b,i"
    assert unspecified(value, ["pods", "ephemeral-storage"]) == ""
    assert unspecified(pod(container(), resources={"limits": {"cpu": "1"}}), names) == ""


def refusal(hard: JsonObject, plural: str, new: JsonObject, *, old: JsonObject, subresource: str = "") -> str:
    """Why an update is refused; empty if it is not."""
    context = ServerContext(ObjectStore(), Registry(), SystemClock())
    kind = context.registry.find("", "v1", plural)
    assert kind is not None
    quota = {"metadata": {"name": "q", "namespace": "ns"}, "spec": {"hard": hard}}
    context.store.put("resourcequotas", "ns/q", quota)
    context.store.put(plural, "ns/x", old)
    review = Review(
        kind=kind,
        operation="UPDATE",
        user=User("admin", ()),
        namespace="ns",
        name="x",
        value=new,
        old=old,
        subresource=subresource,
    )
    try:
        quotas.check(context, review)
    except StatusError as error:
        return error.message
    return ""


def service(kind: str, *ports: int) -> JsonObject:
    return {"metadata": {"name": "x", "namespace": "ns"}, "spec": {"type": kind, "ports": [{"port": n} for n in ports]}}


def test_an_update_is_refused_for_what_it_adds() -> None:
    hard = {"services.nodeports": "1", "services": "0"}
    assert refusal(hard, "services", service("NodePort", 1, 2), old=service("NodePort", 1)) == (
        'services "x" is forbidden: exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=1, '
        "limited: services.nodeports=1"
    )
    assert refusal(hard, "services", service("NodePort", 1), old=service("NodePort", 1, 2)) == ""
    assert refusal({"requests.storage": "2Gi"}, "persistentvolumeclaims", claim("3Gi"), old=claim("1Gi")) == (
        'persistentvolumeclaims "x" is forbidden: exceeded quota: q, requested: requests.storage=2Gi, '
        "used: requests.storage=1Gi, limited: requests.storage=2Gi"
    )


def test_a_pod_is_counted_again_when_it_is_resized_or_gets_a_deadline() -> None:
    bigger, hard = pod(container(cpu="5")), {"requests.cpu": "2"}
    assert "requested: requests.cpu=4, used: requests.cpu=1" in refusal(
        hard, "pods", bigger, old=ASKING, subresource="resize"
    )
    assert refusal(hard, "pods", bigger, old=ASKING, subresource="status") == ""
    assert refusal(hard, "pods", bigger, old=ASKING) == ""
    assert "must specify requests.cpu for: c" in refusal(hard, "pods", LIMITED, old=PLAIN)
