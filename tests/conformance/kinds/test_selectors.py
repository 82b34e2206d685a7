# SPDX-License-Identifier: Apache-2.0
"""Label selectors that no server takes, wherever an object of a built-in kind has one."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Side

pytestmark = pytest.mark.binaries

CASES = Cases("selectors")
Document = dict[str, Any]

_LABELS: Final = {"app": "web"}
_POD: Final[Document] = {"containers": [{"name": "c", "image": "i"}]}


def _selector(*terms: Document, **labels: str) -> Document:
    return {"matchLabels": labels, "matchExpressions": [{"key": "k", "operator": "In", **term} for term in terms]}


_WRONG: Final[dict[str, Document]] = {
    "without values": _selector({}),
    "with no values": _selector({"operator": "NotIn", "values": []}),
    "with values of a key that only has to exist": _selector({"operator": "Exists", "values": ["v"]}),
    "with values of a key that must not exist": _selector({"operator": "DoesNotExist", "values": ["v"]}),
    "of an unknown operator": _selector({"operator": "Near", "values": ["v"]}),
    "without an operator": _selector({"operator": ""}),
    "of a key that is none": _selector({"key": "!", "operator": "Exists"}),
    "of a value that is none": _selector({"values": ["v", "!"]}),
    "of labels that are none": {"matchLabels": {"!": "!"}},
    "with all of that": {
        "matchLabels": {"!": "!"},
        "matchExpressions": [
            {"key": "k", "operator": "In"},
            {"key": "!", "operator": "Exists", "values": ["v"]},
            {"key": "", "operator": "Near"},
        ],
    },
}


def _object(version: str, kind: str, spec: Document | None = None, **more: Any) -> Document:
    made = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, **more}
    return made if spec is None else made | {"spec": spec}


def _template(**pod: Any) -> Document:
    return {"metadata": {"labels": _LABELS}, "spec": _POD | pod}


def _hook(**selectors: Document) -> Document:
    service = {"name": "s", "namespace": "n"}
    return {
        "name": "a.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"service": service},
        **selectors,
    }


def _affinity(selector: Document) -> Document:
    term = {"topologyKey": "zone", "labelSelector": selector}
    other = {"topologyKey": "zone", "namespaceSelector": selector}
    return {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": other}]
        },
    }


def _owners(selector: Document) -> dict[str, tuple[str, Document]]:
    """Objects with that selector, by what it is of, and where they are created."""
    apps, namespaced = "/apis/apps/v1/namespaces/{ns}", "/namespaces/{ns}"
    admission = "/apis/admissionregistration.k8s.io/v1"
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}]
    spread = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    templates = f"/api/v1{namespaced}/podtemplates"
    return {
        "a Deployment": (
            f"{apps}/deployments",
            _object("apps/v1", "Deployment", {"replicas": 0, "selector": selector, "template": _template()}),
        ),
        "a ReplicaSet": (
            f"{apps}/replicasets",
            _object("apps/v1", "ReplicaSet", {"replicas": 0, "selector": selector, "template": _template()}),
        ),
        "a StatefulSet": (
            f"{apps}/statefulsets",
            _object("apps/v1", "StatefulSet", {"replicas": 0, "selector": selector, "template": _template()}),
        ),
        "a DaemonSet": (
            f"{apps}/daemonsets",
            _object("apps/v1", "DaemonSet", {"selector": selector, "template": _template()}),
        ),
        "a Job": (
            f"/apis/batch/v1{namespaced}/jobs",
            _object(
                "batch/v1",
                "Job",
                {"manualSelector": True, "selector": selector, "template": _template(restartPolicy="Never")},
            ),
        ),
        "a PodDisruptionBudget": (
            f"/apis/policy/v1{namespaced}/poddisruptionbudgets",
            _object("policy/v1", "PodDisruptionBudget", {"selector": selector, "minAvailable": 1}),
        ),
        "a NetworkPolicy": (
            f"/apis/networking.k8s.io/v1{namespaced}/networkpolicies",
            _object(
                "networking.k8s.io/v1",
                "NetworkPolicy",
                {
                    "podSelector": selector,
                    "ingress": [{"from": [{"podSelector": selector, "namespaceSelector": selector}]}],
                },
            ),
        ),
        "a claim": (
            f"/api/v1{namespaced}/persistentvolumeclaims",
            _object(
                "v1",
                "PersistentVolumeClaim",
                {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                    "selector": selector,
                },
            ),
        ),
        "pods that spread": (
            templates,
            _object("v1", "PodTemplate", template=_template(topologySpreadConstraints=[spread])),
        ),
        "pods that go together": (
            templates,
            _object("v1", "PodTemplate", template=_template(affinity=_affinity(selector))),
        ),
        "a webhook": (
            f"{admission}/validatingwebhookconfigurations",
            _object(
                "admissionregistration.k8s.io/v1",
                "ValidatingWebhookConfiguration",
                webhooks=[_hook(namespaceSelector=selector, objectSelector=selector)],
            ),
        ),
        "a policy": (
            f"{admission}/validatingadmissionpolicies",
            _object(
                "admissionregistration.k8s.io/v1",
                "ValidatingAdmissionPolicy",
                {
                    "matchConstraints": {
                        "resourceRules": rules,
                        "namespaceSelector": selector,
                        "objectSelector": selector,
                    },
                    "validations": [{"expression": "true"}],
                },
            ),
        ),
        "a binding of a policy": (
            f"{admission}/validatingadmissionpolicybindings",
            _object(
                "admissionregistration.k8s.io/v1",
                "ValidatingAdmissionPolicyBinding",
                {
                    "policyName": "p",
                    "validationActions": ["Deny"],
                    "matchResources": {"namespaceSelector": selector},
                    "paramRef": {"selector": selector, "parameterNotFoundAction": "Deny"},
                },
            ),
        ),
        "a role of roles": (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            _object(
                "rbac.authorization.k8s.io/v1",
                "ClusterRole",
                aggregationRule={"clusterRoleSelectors": [selector]},
                rules=[],
            ),
        ),
    }


for _title, _selects in _WRONG.items():

    async def _refused(side: Side, selector: Document = _selects) -> None:
        for path, body in _owners(selector).values():
            await side.post(f"{path}?dryRun=All", body)

    CASES.add(f"a selector {_title}", _refused)


@pytest.mark.parametrize("case", CASES.params())
async def test_a_selector_is_refused_as_by_a_real_server(judge: Judge, case: Case) -> None:
    """Every place that has a selector, and all that can be wrong with one."""
    await judge(case)
