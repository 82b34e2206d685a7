# SPDX-License-Identifier: Apache-2.0
"""Strategic merge patch: lists merged by key or as sets, and every directive."""

from __future__ import annotations

import pytest

from tests.conformance.api.patched import (
    ACCOUNT,
    ACCOUNTS,
    CONFIG_MAP,
    DEPLOYMENT,
    DEPLOYMENTS,
    MAPS,
    SERVICE,
    SERVICES,
    patches,
    pod,
)
from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases

pytestmark = pytest.mark.binaries

CASES = Cases("strategic")

# strategic merge patch

patches(
    CASES,
    "a strategic patch merges lists of maps by their key",
    DEPLOYMENTS,
    DEPLOYMENT,
    "strategic",
    pod(containers=[{"name": "c1", "image": "i:2"}]),
    pod(containers=[{"name": "c3", "image": "i:3"}]),
    pod(containers=[{"name": "c1", "env": [{"name": "E1", "value": "new"}, {"name": "E3", "value": "3"}]}]),
    pod(containers=[{"name": "c1", "command": ["x"]}]),
    pod(containers=[{"name": "c1", "ports": [{"containerPort": 80, "name": "http"}, {"containerPort": 82}]}]),
    pod(containers=[{"name": "c1", "volumeMounts": [{"mountPath": "/v", "name": "w"}]}]),
    pod(volumes=[{"name": "x", "emptyDir": {}}]),
    pod(volumes=[{"name": "v", "emptyDir": None, "configMap": {"name": "m"}}]),
    pod(tolerations=[{"key": "l", "operator": "Exists"}]),
    pod(nodeSelector={"m": "y"}),
    pod(nodeSelector={"n": None}),
    {"metadata": {"labels": {"l1": None, "l2": "y"}}},
    {"spec": {"replicas": 3}},
    {"spec": {"replicas": None}},
)
patches(
    CASES,
    "a strategic patch deletes by directive",
    DEPLOYMENTS,
    DEPLOYMENT,
    "strategic",
    pod(containers=[{"name": "c1", "env": [{"name": "E1", "$patch": "delete"}]}]),
    pod(containers=[{"name": "c1", "ports": [{"containerPort": 81, "$patch": "delete"}]}]),
    pod(containers=[{"name": "c2", "$patch": "delete"}]),
    pod(containers=[{"name": "absent", "$patch": "delete"}]),
    pod(nodeSelector={"$patch": "delete"}),
    pod(volumes=[{"$patch": "delete", "name": "w"}]),
    {"metadata": {"annotations": {"$patch": "delete"}}},
    pod(containers=[{"name": "c1", "$patch": "delete"}]),
)
patches(
    CASES,
    "a strategic patch replaces by directive",
    DEPLOYMENTS,
    DEPLOYMENT,
    "strategic",
    pod(containers=[{"name": "c1", "env": [{"$patch": "replace"}, {"name": "E9", "value": "9"}]}]),
    pod(containers=[{"$patch": "replace"}, {"name": "only", "image": "i:1"}]),
    pod(nodeSelector={"$patch": "replace", "o": "z"}),
    pod(volumes=[{"$patch": "replace"}]),
    {"metadata": {"labels": {"$patch": "replace", "new": "label"}}},
    {"metadata": {"annotations": {"$patch": "merge", "a2": "y"}}},
    {"metadata": {"labels": {"$patch": "invent"}}},
    pod(containers=[{"$patch": "invent"}]),
    pod(containers=[{"name": "only", "$patch": "invent"}]),
)
patches(
    CASES,
    "a strategic patch sets the order of elements",
    DEPLOYMENTS,
    DEPLOYMENT,
    "strategic",
    pod(**{"$setElementOrder/containers": [{"name": "c2"}, {"name": "c1"}]}),
    pod(
        **{"$setElementOrder/containers": [{"name": "c3"}, {"name": "c2"}, {"name": "c1"}]},
        containers=[{"name": "c3", "image": "i:3"}],
    ),
    pod(**{"$setElementOrder/containers": [{"name": "c1"}]}, containers=[{"name": "c1", "image": "i:4"}]),
    pod(**{"$setElementOrder/containers": [{"name": "c1"}]}, containers=[{"name": "c2", "image": "i:4"}]),
    pod(**{"$setElementOrder/volumes": [{"name": "w"}, {"name": "v"}]}),
    pod(**{"$setElementOrder/containers": "text"}),
    {"metadata": {"$setElementOrder/finalizers": ["conformance.test/b"], "finalizers": ["conformance.test/b"]}},
)
patches(
    CASES,
    "a strategic patch keeps only the keys of retainKeys",
    DEPLOYMENTS,
    DEPLOYMENT,
    "strategic",
    {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
    {"spec": {"strategy": {"$retainKeys": ["type", "rollingUpdate"], "type": "RollingUpdate"}}},
    pod(volumes=[{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "m"}}]),
    {"spec": {"strategy": {"$retainKeys": ["other"], "type": "Recreate"}}},
    {"spec": {"strategy": {"$retainKeys": "type", "type": "Recreate"}}},
)
patches(
    CASES,
    "a strategic patch that does not fit is refused",
    DEPLOYMENTS,
    DEPLOYMENT,
    "strategic",
    pod(containers=[{"image": "i:2"}]),
    pod(containers={"name": "c1"}),
    pod(containers="text"),
    {"spec": "text"},
    {"spec": []},
    {"spec": {"replicas": "x"}},
    {"spec": {"replicas": {"a": 1}}},
    {"spec": {"replicas": -1}},
    {"metadata": {"labels": {"a": 1}}},
    {"metadata": {"labels": []}},
    {"metadata": {"name": "other"}},
    {"metadata": {"uid": "00000000-0000-4000-8000-000000000000"}},
    {"metadata": {"resourceVersion": "1"}},
    {"kind": "Other"},
    {"apiVersion": "x/v1"},
    {"unknown": 1},
    [],
    "text",
    None,
    b"{",
    b"",
)
patches(
    CASES,
    "a strategic patch merges lists of plain values",
    ACCOUNTS,
    ACCOUNT,
    "strategic",
    {"metadata": {"finalizers": ["conformance.test/c"]}},
    {"metadata": {"finalizers": ["conformance.test/a", "conformance.test/d"]}},
    {"metadata": {"$deleteFromPrimitiveList/finalizers": ["conformance.test/b", "conformance.test/absent"]}},
    {
        "metadata": {
            "$deleteFromPrimitiveList/finalizers": ["conformance.test/a"],
            "$setElementOrder/finalizers": ["conformance.test/e", "conformance.test/c"],
            "finalizers": ["conformance.test/e"],
        }
    },
    {"metadata": {"finalizers": None}},
    {"metadata": {"finalizers": ["conformance.test/z"]}},
    {"secrets": [{"name": "s3"}]},
    {"secrets": [{"name": "s1", "$patch": "delete"}]},
    {"$setElementOrder/secrets": [{"name": "s3"}, {"name": "s2"}], "secrets": [{"name": "s2"}]},
    {"imagePullSecrets": [{"name": "i2"}, {"name": "i1"}]},
)
patches(
    CASES,
    "a strategic patch of a service's ports",
    SERVICES,
    SERVICE,
    "strategic",
    {"spec": {"ports": [{"port": 80, "targetPort": 8080}]}},
    {"spec": {"ports": [{"port": 8443, "name": "more"}]}},
    {"spec": {"ports": [{"port": 443, "$patch": "delete"}]}},
    {"spec": {"selector": {"app": None, "tier": "x"}}},
    {"spec": {"selector": None}},
    {"spec": {"$setElementOrder/ports": [{"port": 8443}, {"port": 80}], "ports": [{"port": 80, "name": "web"}]}},
)
patches(
    CASES,
    "a strategic patch of a config map is like a merge patch",
    MAPS,
    CONFIG_MAP,
    "strategic",
    {"data": {"a": None, "c": "3"}},
    {"data": {"$patch": "replace", "d": "4"}},
    {"data": {"$patch": "delete"}},
    {"data": {"e": "5"}},
    {"metadata": {"ownerReferences": [{"uid": "u1", "$patch": "delete"}]}},
    {
        "metadata": {
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Secret", "name": "t", "uid": "u2"},
                {"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "u1"},
            ]
        }
    },
    {"metadata": {"ownerReferences": [{"uid": "u2", "name": "renamed"}]}},
    {"metadata": {"ownerReferences": None, "finalizers": None}},
    {"$patch": "merge", "data": {"f": "6"}},
    {"$patch": "replace", "data": {"f": "7"}},
    {"$patch": "delete"},
)


@pytest.mark.parametrize("case", CASES.params())
async def test_strategic(judge: Judge, case: Case) -> None:
    await judge(case)
