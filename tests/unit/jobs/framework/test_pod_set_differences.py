# SPDX-License-Identifier: Apache-2.0
"""Whether the Workload that somebody made for a job is for the pods that the job runs."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.jobs.framework.pod_set_differences import differences, summary

AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
        }
    }
}


def pods(*containers: Any, count: int = 1, minimum: int | None = None, **spec: Any) -> dict[str, Any]:
    pod_set: dict[str, Any] = {
        "name": "main",
        "count": count,
        "template": {"spec": {"containers": list(containers) or [container()], **spec}},
    }
    return pod_set if minimum is None else pod_set | {"minCount": minimum}


def container(name: str = "c", *, cpu: object = "1", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "i", "resources": {"requests": {"cpu": cpu}}, **more}


def probed(**http: Any) -> dict[str, Any]:
    return {"httpGet": {"port": 80, **http}}


DEFAULTED: dict[str, Any] = {
    "imagePullPolicy": "Always",
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
OF_THE_POD: dict[str, Any] = {
    "restartPolicy": "Never",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "terminationGracePeriodSeconds": 30,
}


@pytest.mark.parametrize(
    ("job", "workload"),
    [
        pytest.param(pods(container(**DEFAULTED), **OF_THE_POD), pods(), id="what an API server fills in"),
        pytest.param(pods(), pods(container(**DEFAULTED), **OF_THE_POD), id="the same, on the other side"),
        pytest.param(pods(container(cpu="500m")), pods(container(cpu=0.5)), id="two forms of an amount"),
        pytest.param(
            pods(container() | {"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}}),
            pods(container() | {"resources": {"limits": {"cpu": "1"}}}),
            id="a limit that is the request",
        ),
        pytest.param(
            pods(container(env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}])),
            pods(container(env=[{"name": "A", "value": "2"}])),
            id="a variable twice",
        ),
        pytest.param(
            pods(
                container(
                    ports=[{"containerPort": 80, "protocol": "TCP", "hostPort": 80}],
                    env=[{"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "f"}}}],
                    livenessProbe=probed(path="/", scheme="HTTP")
                    | {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
                )
            ),
            pods(
                container(
                    ports=[{"containerPort": 80}],
                    env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "f"}}}],
                    livenessProbe=probed(),
                )
            ),
            id="ports, references and probes",
        ),
        pytest.param(
            pods(tolerations=[{"key": "a", "operator": "Equal"}, {"key": "b"}]),
            pods(tolerations=[{"key": "b"}, {"key": "a"}]),
            id="tolerations in another order",
        ),
        pytest.param(pods(volumes=[{"name": "v"}], hostNetwork=True), pods(), id="what no quota depends on"),
    ],
)
def test_the_same_pods(job: Any, workload: Any) -> None:
    assert differences(job, workload, at="podSets[0]") == ()


@pytest.mark.parametrize(
    ("job", "workload", "want"),
    [
        pytest.param(pods(count=2), pods(), "count: Job has 2, Workload has 1", id="the count"),
        pytest.param(pods(), pods(minimum=1), "minCount: Job has nothing, Workload has 1", id="the least count"),
        pytest.param(
            pods(container(cpu="2")),
            pods(),
            "template.spec.containers[0].resources.requests[cpu]: Job has 2, Workload has 1",
            id="a request that is understated",
        ),
        pytest.param(
            pods(container() | {"resources": {"limits": {"gpu": "1"}}}),
            pods(container() | {"resources": {"limits": {"gpu": "1"}, "requests": {"gpu": "0"}}}),
            "template.spec.containers[0].resources.requests[gpu]: Job has 1, Workload has 0",
            id="a limit without a request",
        ),
        pytest.param(
            pods(container(), container("hidden")),
            pods(),
            'template.spec.containers: Job has ["c", "hidden"], Workload has ["c"]',
            id="a container more",
        ),
        pytest.param(
            pods(initContainers=[container("i", restartPolicy="Always")]),
            pods(),
            'template.spec.initContainers: Job has ["i"], Workload has nothing',
            id="a hidden init container",
        ),
        pytest.param(
            pods(initContainers=[container("i", restartPolicy="Always")]),
            pods(initContainers=[container("i")]),
            "template.spec.initContainers[0].restartPolicy: Job has Always, Workload has nothing",
            id="an init container that goes on",
        ),
        pytest.param(
            pods(ephemeralContainers=[container("e")]),
            pods(),
            'template.spec.ephemeralContainers: Job has ["e"], Workload has nothing',
            id="a hidden ephemeral container",
        ),
        pytest.param(
            pods(overhead={"cpu": "9"}),
            pods(),
            "template.spec.overhead[cpu]: Job has 9, Workload has nothing",
            id="overhead",
        ),
        pytest.param(
            pods(runtimeClassName="heavy"),
            pods(),
            "template.spec.runtimeClassName: Job has heavy, Workload has nothing",
            id="a class with overhead",
        ),
        pytest.param(
            pods(resources={"requests": {"cpu": "9"}}),
            pods(),
            "template.spec.resources.requests[cpu]: Job has 9, Workload has nothing",
            id="resources of the pod",
        ),
        pytest.param(
            pods(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}]),
            pods(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "small"}]),
            "template.spec.resourceClaims[0].resourceClaimTemplateName: Job has t, Workload has small",
            id="a device claim",
        ),
        pytest.param(
            pods(container() | {"resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]}}),
            pods(),
            'template.spec.containers[0].resources.claims: Job has [{"name": "gpu"}], Workload has nothing',
            id="a device claim of a container",
        ),
        pytest.param(
            pods(nodeSelector={"pool": "gpu"}),
            pods(nodeSelector={"pool": ""}),
            "template.spec.nodeSelector[pool]: Job has gpu, Workload has ",
            id="a node selector",
        ),
        pytest.param(
            pods(tolerations=[{"key": "spot"}]),
            pods(),
            'template.spec.tolerations: Job has [{"key": "spot"}], Workload has nothing',
            id="a toleration",
        ),
        pytest.param(
            pods(affinity=AFFINITY),
            pods(),
            "template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Job"
            ' has [{"matchExpressions": [{"key": "zone", "operator": "In", "va…, Workload has nothing',
            id="node affinity",
        ),
        pytest.param(
            pods(container(image="other")),
            pods(),
            "template.spec.containers[0].image: Job has other, Workload has i",
            id="an image",
        ),
        pytest.param(
            pods(container(imagePullPolicy="Never")),
            pods(container(imagePullPolicy="Always")),
            "template.spec.containers[0].imagePullPolicy: Job has Never, Workload has Always",
            id="what both say otherwise",
        ),
        pytest.param(
            pods(container(cpu="1x")),
            pods(container(cpu="1")),
            "template.spec.containers[0].resources.requests[cpu]: Job has 1x, Workload has 1",
            id="an amount that is none",
        ),
        pytest.param(
            pods(container(env=[{"name": "A", "value": "\x1b[2J\n"}])),
            pods(container(env=[{"name": "A", "value": "1"}])),
            r"template.spec.containers[0].env[0].value: Job has \x1b[2J\x0a, Workload has 1",
            id="hostile text",
        ),
    ],
)
def test_other_pods(job: Any, workload: Any, want: str) -> None:
    assert differences(job, workload, at="podSets[0]") == (f"podSets[0].{want}",)


def test_the_first_few_differences_are_reported() -> None:
    assert summary(("a", "b")) == "a; b"
    assert summary(tuple("abcdefg")) == "a; b; c; d; e; and 2 more"


@pytest.mark.parametrize("resources", ["1", ["cpu"], {"requests": "1"}, {"limits": [1]}], ids=str)
def test_resources_of_another_shape_differ_as_a_whole_and_break_nothing(resources: object) -> None:
    odd, usual = pods(container() | {"resources": resources}), pods(container())
    found = differences(odd, usual, at="podSets[0]")
    assert found, "the two are not the same"
    assert all("resources" in each for each in found)
    assert differences(odd, odd, at="podSets[0]") == ()
