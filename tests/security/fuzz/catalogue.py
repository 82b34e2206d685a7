# SPDX-License-Identifier: Apache-2.0
"""What each identity may write, with a valid body of each: the targets of the fuzz.

A path has a name in braces if it is about an existing object: the federation fills it in.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from devcluster.federation.enrolment import agent_user
from multikueue.api import constants, crds
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.dispatch.protocol.enrolment import SIGNER
from multikueue.kube.rest.certificates import new_request

HUB: Final = "hub"
PULL: Final = "near"
PUSH: Final = "far"
TENANT: Final = "mallory"
WORKER_USER: Final = "worker-user"
NAMESPACE: Final = "team-mallory"
QUEUE: Final = "mallory"
SPARE_NODE: Final = "spare"
MERGE: Final = "application/merge-patch+json"
JSON: Final = "application/json"
_MAILBOX: Final = mailbox_namespace(PULL)
_BATCH: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
_KUEUE: Final = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}"
_OWN: Final = f"/apis/multikueue.io/v1alpha1/namespaces/{_MAILBOX}"
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_TIME: Final = "2026-01-31T08:00:00Z"
_LATER: Final = "2036-01-31T08:00:00Z"
_LARGE: Final = 7
"""The slot of the Job with as many indexes as there may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Something that an identity may write."""

    name: str
    cluster: str
    user: str
    path: str
    body: Callable[[int], Any]
    method: str = "PATCH"
    media: str = MERGE
    schemas: Mapping[tuple[str, ...], Any] = field(default_factory=dict)
    """Places whose contents are made from a schema now and then, so that the server takes them."""
    weight: int = 1


def _constants() -> dict[str, str]:
    return {name: value for name, value in vars(constants).items() if isinstance(value, str) and "/" in value}


LABELS: Final = {
    value: "1"
    for name, value in _constants().items()
    if name.endswith("_LABEL") and value not in (constants.QUEUE_NAME_LABEL, constants.PREBUILT_WORKLOAD_LABEL)
}
"""Every label that is read, except the two that decide whether a Job is managed."""

ANNOTATIONS: Final = {
    **{value: "1" for name, value in _constants().items() if name.endswith("_ANNOTATION")},
    constants.ADOPTS_ANNOTATION: f"{PULL} some-manager some-job 1",
    constants.ROUND_ANNOTATION: f"1 1 {_TIME}",
    constants.GATE_OPENING_ANNOTATION: f"1 {PULL} {_TIME}",
    constants.AVOIDED_ANNOTATION: f"{PULL}=2199-01-01T00:00:00Z",
    constants.CLUSTERS_ANNOTATION: f"{PULL},{PUSH}",
    constants.CLUSTER_SELECTOR_ANNOTATION: "zone in (a,b),!gpu",
    constants.PREFERRED_CLUSTERS_ANNOTATION: "zone=a",
    constants.PLACEMENT_ANNOTATION: "pack",
    constants.PARTITION_POLICY_ANNOTATION: "fenced",
    constants.CANNOT_STOP_ANNOTATION: _TIME,
    constants.RUN_FOR_ANNOTATION: "0s",
    constants.EXIT_CODE_ANNOTATION: "0",
    constants.READY_AFTER_ANNOTATION: "0s",
    constants.JOB_MIN_PARALLELISM_ANNOTATION: "1",
    constants.ELASTIC_JOB_ANNOTATION: "true",
    constants.POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS_ANNOTATION: '[{"topology":"rack","size":2}]',
    "multikueue.io/fingerprint": "a",
    "multikueue.io/stop-after": "0s",
}
"""Every annotation that is read, each with a valid value."""


def job(slot: int) -> dict[str, Any]:
    """A Job of the tenant with most fields that a Job has."""
    template = {
        "metadata": {
            "labels": {"app": "x"},
            "annotations": {constants.RUN_FOR_ANNOTATION: ("1s", "30s")[slot // 2 % 2]},
        },
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [
                {"key": "other", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "away", "operator": "Equal", "value": "x", "effect": "NoExecute", "tolerationSeconds": 1},
            ],
            "priorityClassName": "",
            "schedulerName": "default-scheduler",
            "overhead": {},
            "initContainers": [{"name": "i", "image": "none", "resources": {"requests": {"cpu": "1m"}}}],
            "containers": [
                {
                    "name": "c",
                    "image": "none",
                    "env": [{"name": "A", "value": "b"}],
                    "ports": [{"containerPort": 80}],
                    "resources": {"requests": {"cpu": "10m", "memory": "1Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
                }
            ],
            "topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
            ],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "size", "operator": "Gt", "values": ["1"]}]},
                            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "Exists"}]},
                        ]
                    }
                }
            },
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "generateName": f"m{slot}-",
            "namespace": NAMESPACE,
            "labels": {constants.QUEUE_NAME_LABEL: QUEUE},
            "annotations": {
                constants.CLUSTERS_ANNOTATION: (PULL, PUSH)[slot % 2],
                **({constants.ELASTIC_JOB_ANNOTATION: "true"} if slot % 4 == 1 else {}),
            },
            "ownerReferences": [],
            "finalizers": [],
        },
        "spec": {
            "suspend": True,
            "managedBy": constants.MULTIKUEUE_MANAGED_BY,
            "parallelism": 1,
            # As many as an index set of a status may name; the controllers of devcluster expand it.
            "completions": 100_000 if slot == _LARGE else 1,
            "completionMode": "Indexed",
            "backoffLimit": 1,
            "activeDeadlineSeconds": 600,
            "ttlSecondsAfterFinished": 600,
            "podFailurePolicy": {
                "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
            },
            "template": template,
        },
    }


def job_status(slot: int) -> dict[str, Any]:
    """What a Job's controller could say; by the slot, for no server takes all of it together."""
    parts: tuple[dict[str, Any], ...] = (
        {"active": 1, "ready": 1, "terminating": 0},
        {"active": 0, "failed": 1, "failedIndexes": "1,3-5"},
        {"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["b"]}},
        {"conditions": [_condition("Failed"), _condition("FailureTarget")], "failed": 1},
        {"conditions": [_condition("Suspended")], "active": 0},
        {"conditions": [_condition("SuccessCriteriaMet"), _condition("Complete")], "completionTime": _LATER},
        {"startTime": _TIME},
        {"completedIndexes": "0-99998", "active": 1, "succeeded": 99_999},
    )
    return {"status": parts[slot % len(parts)]}


def _condition(kind: str) -> dict[str, Any]:
    times = {"lastProbeTime": _TIME, "lastTransitionTime": _TIME}
    return {"type": kind, "status": "True", "reason": "Reported", "message": "reported", **times}


def whole_job_status() -> dict[str, Any]:
    """All of it, for who has no rules about its parts."""
    whole: dict[str, Any] = {}
    for slot in range(_LARGE + 1):
        whole |= job_status(slot)["status"]
    return {**whole, "completedIndexes": "0-99999999"}


def workload(slot: int) -> dict[str, Any]:
    """A Workload of the tenant's own, without a job."""
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"generateName": f"w{slot}-", "namespace": NAMESPACE, "labels": {}, "annotations": {}},
        "spec": {
            "queueName": QUEUE,
            "active": True,
            "priority": 1,
            "podSets": [{"name": "main", "count": 1, "template": job(slot)["spec"]["template"]}],
        },
    }


def workload_status(slot: int) -> dict[str, Any]:
    """What the manager would say of one; by the slot, for not all of it is taken together."""
    condition = {"status": "True", "reason": "Reported", "message": "reported", "lastTransitionTime": _TIME}
    assignment = {"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}, "count": 1}
    check = {"name": QUEUE, "state": "Ready", "message": "", "lastTransitionTime": _TIME, "retryCount": 1}
    parts: tuple[dict[str, Any], ...] = (
        {"conditions": [{"type": kind, **condition} for kind in ("Finished", "Evicted")]},
        {"requeueState": {"count": 1, "requeueAt": _TIME}},
        {"reclaimablePods": [{"name": "main", "count": 1}]},
        {"admissionChecks": [check]},
        {"nominatedClusterNames": [PULL]},
        {"accumulatedPastExecutionTimeSeconds": 1},
        {
            "conditions": [{"type": kind, **condition} for kind in ("QuotaReserved", "Admitted")],
            "admission": {"clusterQueue": QUEUE, "podSetAssignments": [assignment]},
        },
        {"clusterName": PULL},
    )
    return {"status": parts[slot % len(parts)]}


def _metadata(slot: int) -> dict[str, Any]:
    return {"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": []}}


def _changed_job(slot: int) -> dict[str, Any]:
    return {**_metadata(slot), "spec": {"suspend": True, "parallelism": 1, "backoffLimit": 2}}


def _changed_workload(slot: int) -> dict[str, Any]:
    return {**_metadata(slot), "spec": {"active": True, "priority": 2}}


def _assignment_status(slot: int) -> dict[str, Any]:
    phases = ("Pending", "Reserved", "Running", "Finished", "Evicted", "Refused")
    return {
        "status": {
            "epoch": 1,
            "phase": phases[slot % len(phases)],
            "reason": "NoRoom",
            "message": "reported",
            "jobUID": "u",
            "sequence": 10**6,
            "bootID": "b",
            "jobStatus": whole_job_status(),
            "finished": {"reason": "Succeeded", "message": "done", "time": _TIME},
            "conditions": [
                {
                    "type": "BlockedOnPreemptionGates",
                    "status": "True",
                    "reason": "PreemptionGated",
                    "message": "reported",
                    "lastTransitionTime": _TIME,
                }
            ],
        }
    }


def _report_status(slot: int) -> dict[str, Any]:
    amounts = {"name": "cpu", "allocatable": "8", "free": "8", "largestFree": "8", "reserved": "0", "largest": "8"}
    return {
        "status": {
            "clusterUID": "u",
            "bootID": "b",
            "sequence": 10**6,
            "agentVersion": "1",
            "kubernetesVersion": "v1.35.0",
            "kinds": [{"apiVersion": "batch/v1", "kind": "Job"}],
            "namespaces": [NAMESPACE, "team-zoe"],
            "capacity": [amounts],
            "groups": [{"labels": {"zone": "a"}, "taints": [], "nodes": 1, "capacity": [amounts]}],
            "nodes": {"ready": 1, "total": 1},
            "pending": 0,
        }
    }


def _lease(slot: int) -> dict[str, Any]:
    return {
        **_metadata(slot),
        "spec": {
            "holderIdentity": "near/b",
            "leaseDurationSeconds": 40,
            "renewTime": "2026-01-31T08:00:00.000000Z",
            "acquireTime": "2026-01-31T08:00:00.000000Z",
            "leaseTransitions": 1,
        },
    }


@cache
def _signing_request() -> str:
    return base64.b64encode(new_request(agent_user(PULL), [constants.AGENT_GROUP]).request).decode()


def _certificate_request(slot: int) -> dict[str, Any]:
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {
            "generateName": f"multikueue-{PULL}-",
            "labels": {constants.CLUSTER_LABEL: PULL},
            "annotations": {constants.CLUSTER_UID_ANNOTATION: "u"},
        },
        "spec": {
            "request": _signing_request(),
            "signerName": SIGNER,
            "expirationSeconds": 3600,
            "usages": ["client auth"],
        },
    }


def _copy(slot: int) -> dict[str, Any]:
    made = job(slot)
    made["metadata"]["labels"] = {constants.ORIGIN_LABEL: "multikueue", constants.MANAGED_LABEL: "true"}
    made["metadata"]["annotations"] = {
        constants.EPOCH_ANNOTATION: "1",
        constants.MANAGER_UID_ANNOTATION: "u",
        constants.ASSIGNMENT_ANNOTATION: "job-x-12345",
        constants.WORKLOAD_ANNOTATION: "job-x",
        constants.ORIGIN_UID_ANNOTATION: "u",
    }
    del made["spec"]["managedBy"]
    return made


def _clone(slot: int) -> dict[str, Any]:
    made = workload(slot)
    made["metadata"]["labels"] = {constants.ORIGIN_LABEL: "multikueue"}
    made["metadata"]["annotations"] = dict(_copy(slot)["metadata"]["annotations"])
    return made


def _pod(slot: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": f"p{slot}-", "namespace": NAMESPACE, "labels": {"a": "b"}, "annotations": {}},
        "spec": {**job(slot)["spec"]["template"]["spec"], "nodeName": SPARE_NODE},
    }


def _pod_status(slot: int) -> dict[str, Any]:
    return {
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": _TIME}],
            "startTime": _TIME,
            "containerStatuses": [
                {"name": "c", "image": "x", "imageID": "", "ready": True, "restartCount": 0, "started": True}
            ],
        }
    }


def _node_status(slot: int) -> dict[str, Any]:
    return {
        "status": {
            "allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"},
            "capacity": {"cpu": "1", "memory": "1Gi", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": _TIME}],
        }
    }


def _namespace(slot: int) -> dict[str, Any]:
    return {"metadata": {"labels": {"team": f"n{slot}"}, "annotations": {"a": "b"}}}


def _schema(kind: str, section: str) -> Any:
    for definition in crds.manifests():
        if definition["spec"]["names"]["kind"] != kind:
            continue
        stored = next(version for version in definition["spec"]["versions"] if version.get("storage"))
        return stored["schema"]["openAPIV3Schema"]["properties"][section]
    raise LookupError(f"no CustomResourceDefinition of kind {kind}")


def _on_worker(cluster: str) -> list[Target]:
    def target(name: str, path: str, body: Callable[[int], Any], **more: Any) -> Target:
        return Target(name=f"{cluster}/{name}", cluster=cluster, user=WORKER_USER, path=path, body=body, **more)

    made = [
        target("copies", _BATCH, _copy, method="POST", media=JSON),
        target("copy", f"{_BATCH}/{{copy}}", lambda slot: {"metadata": _copy(slot)["metadata"]}, weight=3),
        target("copy-spec", f"{_BATCH}/{{copy}}", _changed_job),
        target("copy-status", f"{_BATCH}/{{copy}}/status", job_status, weight=3),
        target("pods", _PODS, _pod, method="POST", media=JSON),
        target("pod", f"{_PODS}/{{pod}}", _metadata),
        target("pod-status", f"{_PODS}/{{pod}}/status", _pod_status),
        target("node", f"/api/v1/nodes/{SPARE_NODE}", _metadata),
        target("node-status", f"/api/v1/nodes/{SPARE_NODE}/status", _node_status),
        target("namespace", "/api/v1/namespaces/spare", _namespace),
    ]
    if cluster == PUSH:
        schemas = {("status",): _schema("Workload", "status")}
        made += [
            target("clones", f"{_KUEUE}/workloads", _clone, method="POST", media=JSON),
            target("clone", f"{_KUEUE}/workloads/{{clone}}", _changed_workload, weight=2),
            target("clone-status", f"{_KUEUE}/workloads/{{clone}}/status", workload_status, schemas=schemas, weight=2),
        ]
    return made


def targets() -> dict[str, Target]:
    """All of them, by name."""
    spec, status = _schema("Workload", "spec"), _schema("Workload", "status")

    def by_tenant(name: str, path: str, body: Callable[[int], Any], **more: Any) -> Target:
        return Target(name=f"tenant/{name}", cluster=HUB, user=TENANT, path=path, body=body, **more)

    def by_agent(name: str, path: str, body: Callable[[int], Any], **more: Any) -> Target:
        return Target(name=f"agent/{name}", cluster=HUB, user=agent_user(PULL), path=path, body=body, **more)

    found = [
        by_tenant("jobs", _BATCH, job, method="POST", media=JSON, weight=8),
        by_tenant("job", f"{_BATCH}/{{job}}", _changed_job, weight=4),
        by_tenant("job-status", f"{_BATCH}/{{job}}/status", job_status, weight=2),
        by_tenant(
            "workloads", f"{_KUEUE}/workloads", workload, method="POST", media=JSON, schemas={("spec",): spec}, weight=3
        ),
        by_tenant("workload", f"{_KUEUE}/workloads/{{workload}}", _changed_workload, weight=3),
        by_tenant(
            "workload-status",
            f"{_KUEUE}/workloads/{{workload}}/status",
            workload_status,
            schemas={("status",): status},
            weight=4,
        ),
        by_agent(
            "assignment-status",
            f"{_OWN}/remoteassignments/{{assignment}}/status",
            _assignment_status,
            schemas={("status",): _schema("RemoteAssignment", "status")},
            weight=6,
        ),
        by_agent(
            "report-status",
            f"{_OWN}/clusterreports/agent/status",
            _report_status,
            schemas={("status",): _schema("ClusterReport", "status")},
            weight=5,
        ),
        by_agent("lease", f"/apis/coordination.k8s.io/v1/namespaces/{_MAILBOX}/leases/agent", _lease, weight=3),
        by_agent(
            "certificate-requests",
            "/apis/certificates.k8s.io/v1/certificatesigningrequests",
            _certificate_request,
            method="POST",
            media=JSON,
        ),
        *_on_worker(PULL),
        *_on_worker(PUSH),
    ]
    return {target.name: target for target in found}
