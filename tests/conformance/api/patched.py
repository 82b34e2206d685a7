# SPDX-License-Identifier: Apache-2.0
"""What the patches of this folder change, and how a list of patches becomes a case."""

from __future__ import annotations

from typing import Any, Final

from tests.conformance.api.widgets import widget
from tests.conformance.harness import Cases, PatchType, Side

MAPS: Final = "/api/v1/namespaces/{ns}/configmaps"
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/{ns}/deployments"
SERVICES: Final = "/api/v1/namespaces/{ns}/services"
ACCOUNTS: Final = "/api/v1/namespaces/{ns}/serviceaccounts"

CONFIG_MAP: Final = {
    "kind": "ConfigMap",
    "apiVersion": "v1",
    "metadata": {
        "name": "o",
        "labels": {"l1": "x", "l2": "y"},
        "finalizers": ["conformance.test/one", "conformance.test/two"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "u1"}],
    },
    "data": {"a": "1", "b": "2"},
}
WIDGET: Final = widget(
    "o",
    {
        "size": 1,
        "plain": ["a", "b", "c"],
        "set": ["s1", "s2"],
        "parts": [{"name": "p1", "value": "v1"}, {"name": "p2", "tags": ["t1", "t2"]}],
        "atomicItems": [{"a": "1"}, {"a": "2"}],
        "labels": {"k1": "v1", "k2": "v2", "with/slash": "3", "with~tilde": "4"},
        "deep": {"a": "x", "inner": {"x": 1, "y": 2}},
        "free": {"list": [1, {"z": 2}], "n": None},
    },
)
DEPLOYMENT: Final[dict[str, Any]] = {
    "kind": "Deployment",
    "apiVersion": "apps/v1",
    "metadata": {"name": "o", "labels": {"l1": "x"}, "annotations": {"a1": "x"}},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "d"}},
        "template": {
            "metadata": {"labels": {"app": "d"}},
            "spec": {
                "containers": [
                    {
                        "name": "c1",
                        "image": "i:1",
                        "command": ["a", "b"],
                        "env": [{"name": "E1", "value": "1"}, {"name": "E2", "value": "2"}],
                        "ports": [{"containerPort": 80}, {"containerPort": 81, "name": "second"}],
                        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    },
                    {"name": "c2", "image": "i:1"},
                ],
                "tolerations": [{"key": "k", "operator": "Exists"}],
                "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "m"}}],
                "nodeSelector": {"n": "x"},
            },
        },
    },
}
SERVICE: Final = {
    "kind": "Service",
    "apiVersion": "v1",
    "metadata": {"name": "o"},
    "spec": {
        "clusterIP": "None",
        "selector": {"app": "d"},
        "ports": [{"name": "http", "port": 80}, {"name": "https", "port": 443}],
    },
}
ACCOUNT: Final = {
    "kind": "ServiceAccount",
    "apiVersion": "v1",
    "metadata": {"name": "o", "finalizers": ["conformance.test/a", "conformance.test/b"]},
    "secrets": [{"name": "s1"}, {"name": "s2"}],
    "imagePullSecrets": [{"name": "i1"}],
}


def patches(cases: Cases, name: str, path: str, body: Any, kind: PatchType, *documents: Any) -> None:
    """A case: the object is made, and each patch is tried on what the last one left."""

    async def play(side: Side) -> None:
        await side.post(path, body)
        for document in documents:
            await side.patch(kind, f"{path}/o", document)
        await side.get(f"{path}/o")

    cases.add(name, play)


def pod(**fields: Any) -> dict[str, Any]:
    """A patch of a deployment's pods."""
    return {"spec": {"template": {"spec": fields}}}


def op(name: str, path: str, *value: Any, **more: Any) -> dict[str, Any]:
    """An operation of a JSON patch."""
    return {"op": name, "path": path, **({"value": value[0]} if value else {}), **more}
