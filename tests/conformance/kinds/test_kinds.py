# SPDX-License-Identifier: Apache-2.0
"""What built-in kinds refuse, and the errors."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("kinds")
Document = dict[str, Any]

_INSIDE: Final = "/namespaces/{ns}"
_CONTAINER: Final[Document] = {"name": "c", "image": "i"}
_POD: Final[Document] = {"restartPolicy": "Never", "containers": [_CONTAINER]}
_PLACES: Final[dict[str, str]] = {
    "Job": f"/apis/batch/v1{_INSIDE}/jobs",
    "CronJob": f"/apis/batch/v1{_INSIDE}/cronjobs",
    "Pod": f"/api/v1{_INSIDE}/pods",
    "Node": "/api/v1/nodes",
    "Namespace": "/api/v1/namespaces",
    "Lease": f"/apis/coordination.k8s.io/v1{_INSIDE}/leases",
    "ConfigMap": f"/api/v1{_INSIDE}/configmaps",
    "Secret": f"/api/v1{_INSIDE}/secrets",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "ResourceQuota": f"/api/v1{_INSIDE}/resourcequotas",
    "LimitRange": f"/api/v1{_INSIDE}/limitranges",
    "ServiceAccount": f"/api/v1{_INSIDE}/serviceaccounts",
    "Service": f"/api/v1{_INSIDE}/services",
    "Event": f"/api/v1{_INSIDE}/events",
    "IPAddress": "/apis/networking.k8s.io/v1/ipaddresses",
}


def _document(kind: str, name: str = "{id}", **more: Any) -> Document:
    version = _PLACES[kind].removeprefix("/apis/").removeprefix("/api/").partition(_INSIDE)[0]
    version = version.rpartition("/")[0] if "{ns}" not in _PLACES[kind] else version
    return {"kind": kind, "apiVersion": version, "metadata": {"name": name}, **more}


def _job(**spec: Any) -> Document:
    return _document("Job", spec={"template": {"spec": _POD}, **spec})


def _job_of(**container: Any) -> Document:
    return _job(template={"spec": {**_POD, "containers": [{**_CONTAINER, **container}]}})


def _cron(name: str = "{id}", *, job: Document | None = None, **spec: Any) -> Document:
    template = {"spec": {"template": {"spec": _POD}, **(job or {})}}
    return _document("CronJob", name, spec={"schedule": "0 0 1 1 *", "jobTemplate": template, **spec})


def _pod(**spec: Any) -> Document:
    return _document("Pod", spec={**_POD, "automountServiceAccountToken": False, **spec})


def _container(**more: Any) -> Document:
    return _pod(containers=[{**_CONTAINER, **more}])


def _service(*ports: Document, **more: Any) -> Document:
    return _document("Service", name="s", spec={"ports": [*ports], **more})


_HTTP: Final[Document] = {"port": 80, "name": "http"}
_CREATED: Final[dict[str, Document]] = {
    "a limit range of one type twice": _document(
        "LimitRange",
        spec={"limits": [{"type": "Container", "max": {"cpu": "1"}}, {"type": "Container", "min": {"cpu": "1"}}]},
    ),
    "a service of a target port of zero": _service({"port": 80, "targetPort": 0}, clusterIP="None"),
    "a service of an empty target port": _service({"port": 80, "targetPort": ""}, clusterIP="None"),
    **{
        f"an address {name}": _document(
            "IPAddress", name=name, spec={"parentRef": {"resource": "services", "name": "s"}}
        )
        for name in (
            "fe80::42:1dff:fe84:f9e2",
            "192.0.2.77",
            "FE80::1",
            "010.0.0.1",
            "not-an-address",
            "::ffff:1.2.3.4",
        )
    },
    "a service of a strange affinity": _service(_HTTP, sessionAffinity="Whim"),
    "a service of no time for its clients": _service(
        _HTTP, sessionAffinity="ClientIP", sessionAffinityConfig={"clientIP": {"timeoutSeconds": 0}}
    ),
    "a service of one name twice": _service(_HTTP, {**_HTTP, "port": 81}),
    "a service of one port twice": _service(_HTTP, {**_HTTP, "name": "again"}),
    "a service of ports without names": _service({"port": 80}, {"port": 81, "name": "a"}),
    "a service of bad ports": _service({"port": 0, "name": "A_"}, {"port": 1, "protocol": "X", "name": "b"}),
    "a service of a bad target": _service({"port": 80, "targetPort": "x_y"}),
    "a service of a node's port": _service({"port": 80, "nodePort": 30_000}),
    "a service without ports": _service(),
    "a service of a strange type": _service(_HTTP, type="Whim"),
    "a service of no external name": _document("Service", name="s", spec={"type": "ExternalName"}),
    "an event of another namespace": _document("Event", name="e", involvedObject={"namespace": "other"}),
    "a cron job": _cron(),
    "a cron job of an interval": _cron(schedule="@every 1h30m", timeZone="Europe/Berlin"),
    "a cron job of no schedule": _cron(schedule=""),
    "a cron job of too few fields": _cron(schedule="* * *"),
    "a cron job of too many minutes": _cron(schedule="0-60 * * * *"),
    "a cron job of a Sunday that is the seventh day": _cron(schedule="* * * * 7"),
    "a cron job of a zone in its schedule": _cron(schedule="TZ=UTC * * * * *"),
    "a cron job of a strange word": _cron(schedule="@whim"),
    "a cron job of a strange interval": _cron(schedule="@every whim"),
    "a cron job of a strange zone": _cron(timeZone="Nowhere"),
    "a cron job of a zone outside": _cron(timeZone="../etc"),
    "a cron job of no zone": _cron(timeZone=""),
    "a cron job of the local zone": _cron(timeZone="Local"),
    "a cron job of a strange policy": _cron(concurrencyPolicy="Whim"),
    "a cron job of negative numbers": _cron(
        startingDeadlineSeconds=-1, successfulJobsHistoryLimit=-1, failedJobsHistoryLimit=-1
    ),
    "a cron job of a bad job": _cron(job={"parallelism": -1, "completionMode": "Whim"}),
    "a cron job of a long name": _cron("c" * 53),
    "a job": _job(),
    "a job of negative parallelism": _job(parallelism=-1),
    "a job of negative completions": _job(completions=-1),
    "a job of a negative limit": _job(backoffLimit=-1),
    "a job of a negative deadline": _job(activeDeadlineSeconds=-1),
    "a job of a negative life": _job(ttlSecondsAfterFinished=-1),
    "an indexed job without completions": _job(completionMode="Indexed"),
    "a job of a strange mode": _job(completionMode="Random", completions=1),
    "a job without a template": _document("Job", spec={}),
    "a job that restarts always": _job(template={"spec": {**_POD, "restartPolicy": "Always"}}),
    "a job without a restart policy": _job(template={"spec": {"containers": [_CONTAINER]}}),
    "a job without containers": _job(template={"spec": {"restartPolicy": "Never", "containers": []}}),
    "a job with a selector from the client": _job(selector={"matchLabels": {"a": "b"}}),
    "a job of a selector by hand": _job(
        manualSelector=True,
        selector={"matchLabels": {"a": "b"}},
        template={"metadata": {"labels": {"a": "b", "c": "d"}}, "spec": _POD},
    ),
    "a job of a selector by hand that misses its pods": _job(
        manualSelector=True,
        selector={"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]},
        template={"metadata": {"labels": {"a": "b"}}, "spec": _POD},
    ),
    "a job of no selector by hand": _job(manualSelector=True),
    "a job managed by another controller": _job(managedBy="example.com/other"),
    "a job managed by a bad name": _job(managedBy="no domain"),
    "a job of limits per index": _job(backoffLimitPerIndex=1),
    "an indexed job of limits": _job(
        completionMode="Indexed", completions=3, backoffLimitPerIndex=1, maxFailedIndexes=4
    ),
    "a job with a failure policy": _job(
        podFailurePolicy={"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]}
    ),
    "a job with a strange failure policy": _job(
        podFailurePolicy={"rules": [{"action": "Dance", "onExitCodes": {"operator": "In", "values": [0]}}]}
    ),
    "a job with an empty failure rule": _job(podFailurePolicy={"rules": [{"action": "Ignore"}]}),
    "a job of a long name": _document("Job", "j" * 64, spec={"template": {"spec": _POD}}),
    "an indexed job of a name that makes no hostname": _document(
        "Job", "a.b", spec={"template": {"spec": _POD}, "completionMode": "Indexed", "completions": 2}
    ),
    "a job of a bad name": _document("Job", "A_b", spec={"template": {"spec": _POD}}),
    "a job of strange replacement": _job(podReplacementPolicy="Maybe"),
    "a pod": _pod(),
    "a pod without containers": _document("Pod", spec={"containers": []}),
    "a pod without anything": _document("Pod"),
    "a pod of a strange restart policy": _pod(restartPolicy="Sometimes"),
    "a pod of a strange dns policy": _pod(dnsPolicy="Guess"),
    "a pod of a negative deadline": _pod(activeDeadlineSeconds=0),
    "a pod of a negative grace": _pod(terminationGracePeriodSeconds=-1),
    "a pod of a bad node selector": _pod(nodeSelector={"a b": "c"}),
    "a pod of a strange toleration": _pod(tolerations=[{"operator": "Like", "key": "a"}]),
    "a pod of a toleration of everything of one value": _pod(tolerations=[{"operator": "Exists", "value": "a"}]),
    "a pod of a toleration for some seconds": _pod(
        tolerations=[{"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}]
    ),
    "a pod of a gate twice": _pod(schedulingGates=[{"name": "a.b/c"}, {"name": "a.b/c"}]),
    "a pod of a bad gate": _pod(schedulingGates=[{"name": "a b"}]),
    "a pod of an unknown class": _pod(priorityClassName="none-such"),
    "a pod of an unknown account": _pod(serviceAccountName="none-such"),
    "a pod with its name twice": _pod(containers=[_CONTAINER, _CONTAINER]),
    "a container without a name": _container(name=""),
    "a container of a bad name": _container(name="A_b"),
    "a container without an image": _container(image=""),
    "a container of a strange pull policy": _container(imagePullPolicy="Perhaps"),
    "a container of bad quantities": _container(resources={"requests": {"cpu": "x"}}),
    "a container that requests more than its limit": _container(
        resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    ),
    "a container with a negative request": _container(resources={"requests": {"cpu": "-1"}}),
    "a container of strange resources": _container(resources={"limits": {"a b": "1"}}),
    "a container of half a card": _container(resources={"limits": {"nvidia.com/gpu": "0.5"}}),
    "a container that requests an extended resource without a limit": _container(
        resources={"requests": {"nvidia.com/gpu": "1"}}
    ),
    "a container of a port out of range": _container(ports=[{"containerPort": 70000}]),
    "a container of a port twice": _container(
        ports=[{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]
    ),
    "a container of a strange protocol": _container(ports=[{"containerPort": 1, "protocol": "SMOKE"}]),
    "a container of a nameless variable": _container(env=[{"name": "", "value": "a"}]),
    "a container of a variable of two sources": _container(
        env=[{"name": "a", "value": "b", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    ),
    "a container that mounts nothing": _container(volumeMounts=[{"name": "gone", "mountPath": "/x"}]),
    "a pod of a user out of range": _pod(securityContext={"runAsUser": 2**31}),
    "a pod of groups out of range": _pod(
        securityContext={"runAsGroup": -1, "fsGroup": 2**31, "supplementalGroups": [1, -1]}
    ),
    "a pod of bad names": _pod(hostname="A_b", subdomain="a.b"),
    "a job of a user out of range": _job(template={"spec": {**_POD, "securityContext": {"runAsUser": 2**31}}}),
    "a job of a container's user out of range": _job_of(securityContext={"runAsUser": 2**31, "runAsGroup": -1}),
    "a job of a bad account": _job(template={"spec": {**_POD, "serviceAccountName": "A_b"}}),
    "a job of a bad priority class": _job(template={"spec": {**_POD, "priorityClassName": "A_b"}}),
    "a job of a secret without a name": _job_of(
        env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "", "key": "k"}}}]
    ),
    "a job of a secret without a key": _job_of(
        env=[{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": ""}}}]
    ),
    "a job of a config map of a bad key": _job_of(
        env=[{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "A_b", "key": "a b"}}}]
    ),
    "a job of an environment of a nameless secret": _job_of(envFrom=[{"secretRef": {"name": ""}}]),
    "a job of an environment of a badly named config map": _job_of(envFrom=[{"configMapRef": {"name": "A_b"}}]),
    "a job of a probe with negative numbers": _job_of(
        readinessProbe={"exec": {"command": ["a"]}, "initialDelaySeconds": -1, "periodSeconds": -1}
    ),
    "a job of a probe without a handler": _job_of(livenessProbe={"periodSeconds": 5}),
    "a job of a liveness probe with two successes": _job_of(
        livenessProbe={"exec": {"command": ["a"]}, "successThreshold": 2}
    ),
    "a node": _document("Node"),
    "a node of taints twice": _document("Node", spec={"taints": [{"key": "a", "effect": "NoSchedule"}] * 2}),
    "a node of a strange taint": _document("Node", spec={"taints": [{"key": "a", "effect": "Whatever"}]}),
    "a node of a bad name": _document("Node", "A_b"),
    "a node of some capacity": _document("Node", status={"capacity": {"cpu": "4", "memory": "1Gi"}}),
    "a node of bad capacity": _document("Node", status={"capacity": {"cpu": "-1"}}),
    "a namespace": _document("Namespace", "x-{id}"),
    "a namespace of a bad name": _document("Namespace", "a.b"),
    "a namespace of bad labels": _document("Namespace") | {"metadata": {"name": "y-{id}", "labels": {"a b": "c"}}},
    "a lease": _document("Lease", spec={"holderIdentity": "a", "leaseDurationSeconds": 5}),
    "a lease of no time": _document("Lease", spec={"leaseDurationSeconds": 0}),
    "a lease of negative transitions": _document("Lease", spec={"leaseTransitions": -1}),
    "a lease of an empty holder": _document("Lease", spec={"holderIdentity": ""}),
    "a lease of a strange strategy": _document("Lease", spec={"strategy": "Wild"}),
    "a config map": _document("ConfigMap", data={"a": "b"}),
    "a config map of bad keys": _document("ConfigMap", data={"a b": "c", "..": "d"}),
    "a config map of a key twice": _document("ConfigMap", data={"a": "b"}, binaryData={"a": "YQ=="}),
    "a secret": _document("Secret", stringData={"a": "b"}),
    "a secret of bad keys": _document("Secret", data={"a b": "YQ=="}),
    "a secret of a token": _document("Secret", type="kubernetes.io/service-account-token"),
    "a secret of certificates": _document("Secret", type="kubernetes.io/tls", data={"tls.crt": "YQ=="}),
    "a secret of a registry": _document("Secret", type="kubernetes.io/dockerconfigjson", data={}),
    "a priority class": _document("PriorityClass", value=5),
    "a priority class of the system": _document("PriorityClass", "system-{id}", value=5),
    "a priority class of too much": _document("PriorityClass", value=2_000_000_000),
    "a priority class of a strange policy": _document("PriorityClass", value=1, preemptionPolicy="Ask"),
    "a quota": _document("ResourceQuota", spec={"hard": {"pods": "2", "requests.cpu": "1"}}),
    "a quota of bad amounts": _document("ResourceQuota", spec={"hard": {"pods": "1.5", "requests.cpu": "-1"}}),
    "a quota of strange things": _document("ResourceQuota", spec={"hard": {"a b": "1"}}),
    "a limit range": _document(
        "LimitRange", spec={"limits": [{"type": "Container", "default": {"cpu": "1"}, "max": {"cpu": "2"}}]}
    ),
    "a limit range upside down": _document(
        "LimitRange", spec={"limits": [{"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]}
    ),
    "a limit range of defaults beyond": _document(
        "LimitRange", spec={"limits": [{"type": "Container", "default": {"cpu": "3"}, "max": {"cpu": "2"}}]}
    ),
    "an account": _document("ServiceAccount"),
}

_CHANGED: Final[dict[str, tuple[Document, Document]]] = {
    "the template of a job": (
        _job(),
        {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "other"}]}}}},
    ),
    "the template of a suspended job": (
        _job(suspend=True),
        {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}},
    ),
    "the image of a suspended job": (
        _job(suspend=True),
        {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "other"}]}}}},
    ),
    "the completions of a job": (_job(completions=2), {"spec": {"completions": 3}}),
    "the completions of an indexed job": (
        _job(completions=2, parallelism=2, completionMode="Indexed"),
        {"spec": {"completions": 3, "parallelism": 3}},
    ),
    "the parallelism of a job": (_job(), {"spec": {"parallelism": 5}}),
    "the manager of a job": (_job(managedBy="a.b/c"), {"spec": {"managedBy": "a.b/d"}}),
    "the manager of a suspended job": (_job(suspend=True), {"spec": {"managedBy": "a.b/d"}}),
    "the mode of a job": (_job(completions=1), {"spec": {"completionMode": "Indexed"}}),
    "the suspension of a job": (_job(suspend=True), {"spec": {"suspend": False}}),
    "the image of a pod": (_pod(), {"spec": {"containers": [{"name": "c", "image": "other"}]}}),
    "the node of a pod": (_pod(), {"spec": {"nodeName": "n"}}),
    "the restart policy of a pod": (_pod(), {"spec": {"restartPolicy": "Always"}}),
    "the gates of a pod": (_pod(schedulingGates=[{"name": "a.b/c"}]), {"spec": {"schedulingGates": []}}),
    "a new gate of a pod": (_pod(), {"spec": {"schedulingGates": [{"name": "a.b/c"}]}}),
    "the deadline of a pod": (_pod(activeDeadlineSeconds=5), {"spec": {"activeDeadlineSeconds": 9}}),
    "the value of a class": (_document("PriorityClass", value=5), {"value": 6}),
    "an immutable config map": (_document("ConfigMap", immutable=True, data={"a": "b"}), {"data": {"a": "c"}}),
    "immutability": (_document("ConfigMap", immutable=True), {"immutable": False}),
    "the type of a secret": (_document("Secret", type="a.b/c"), {"type": "a.b/d"}),
    "a lease": (_document("Lease", spec={"leaseTransitions": 3}), {"spec": {"leaseTransitions": 2}}),
    "the unschedulable node": (_document("Node"), {"spec": {"unschedulable": True}}),
    "the provider of a node": (_document("Node", spec={"providerID": "a"}), {"spec": {"providerID": "b"}}),
}


def _sized(requests: Document, limits: Document | None = None) -> Document:
    return _container(resources={"requests": requests, **({"limits": limits} if limits else {})})


_ONE: Final[Document] = {"cpu": "1", "memory": "1Gi"}
_RESIZED: Final[dict[str, tuple[Document, Document]]] = {
    "a pod that grows": (_sized({"cpu": "1"}), _sized({"cpu": "8"})),
    "a pod that shrinks": (_sized(_ONE, {"cpu": "2"}), _sized({"cpu": "100m", "memory": "1Gi"}, {"cpu": "1"})),
    "a pod without an amount that it had": (_sized(_ONE), _sized({"cpu": "1"})),
    "a pod without a limit that it had": (_sized(_ONE, {"cpu": "2"}), _sized(_ONE)),
    "a pod with another resource": (_sized(_ONE), _sized({**_ONE, "ephemeral-storage": "1Gi"})),
    "a pod of another quality": (_sized(_ONE), _sized(_ONE, _ONE)),
    "a pod that requests more than its limit": (_sized(_ONE, {"cpu": "2"}), _sized({**_ONE, "cpu": "3"}, {"cpu": "2"})),
    "a pod with another image and name": (
        _sized({"cpu": "1"}),
        {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "other"}]}},
    ),
    "a pod with a container more": (_sized({"cpu": "1"}), _pod(containers=[_CONTAINER, {**_CONTAINER, "name": "d"}])),
}


async def _prepare(side: Side) -> None:
    """No controllers run that would make a namespace's account."""
    body = {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "default"}}
    await side.quietly(Exchange("POST", _PLACES["ServiceAccount"], body))


def _add(name: str, body: Document, patch: Document | None, subresource: str = "") -> None:
    async def play(side: Side) -> None:
        await _prepare(side)
        place = _PLACES[body["kind"]]
        await side.post(place, body)
        if patch is not None:
            exchange = Exchange("PATCH", f"{place}/{{id}}{subresource}", patch, "application/merge-patch+json")
            found = (await side.server.send(side.filled(exchange))).body
            causes = found.get("details", {}).get("causes", ())
            # What is refused is shown in the form that it has inside of a real server.
            shown_causes = [
                [cause["field"], cause["reason"], re.split(r"[{\n]", cause["message"])[0]] for cause in causes
            ]
            side.note("changed", [found.get("code", 200), found.get("reason"), shown_causes, found.get("spec")])

    CASES.add(name, play)


for _name, _body in _CREATED.items():
    _add(f"{_name} is made", _body, None)
for _name, (_body, _patch) in _CHANGED.items():
    _add(f"{_name} is changed", _body, _patch)
for _name, (_body, _patch) in _RESIZED.items():
    _add(f"{_name} is resized", _body, _patch, "/resize")


@pytest.mark.parametrize("case", CASES.params())
async def test_a_kind_refuses_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """What is refused, and what is let in."""
    await judge(case)
