# SPDX-License-Identifier: Apache-2.0
"""What users may do, and the errors if they may not."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.conformance.access.actors import (
    BINDINGS,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    MAPS,
    ROLES,
    USER,
    acting,
    binding,
    grant,
    grant_everywhere,
    holds,
    role,
    rule,
    user,
)
from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("rbac")
AS: Final = acting()


def config_map(name: str = "a", **more: object) -> dict[str, Any]:
    """A small object."""
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": name}, **more}


@CASES.case("a user without a role may do nothing")
async def _(side: Side) -> None:
    await side.get(MAPS, headers=AS)
    await side.get(f"{MAPS}/a", headers=AS)
    await side.get(f"{MAPS}?watch=true", headers=AS)
    await side.get("/api/v1/configmaps", headers=AS)
    await side.post(MAPS, config_map(), headers=AS)
    await side.put(f"{MAPS}/a", config_map(), headers=AS)
    await side.patch("merge", f"{MAPS}/a", {}, headers=AS)
    await side.patch("apply", f"{MAPS}/a?fieldManager=m", config_map(), headers=AS)
    await side.delete(f"{MAPS}/a", headers=AS)
    await side.delete(MAPS, headers=AS)


@CASES.case("a user without a role may do nothing at the cluster's scope")
async def _(side: Side) -> None:
    await side.get("/api/v1/nodes", headers=AS)
    await side.get("/api/v1/nodes/n", headers=AS)
    await side.get("/api/v1/nodes/n/status", headers=AS)
    await side.get("/api/v1/namespaces", headers=AS)
    await side.get("/api/v1/namespaces/{ns}", headers=AS)
    await side.delete("/api/v1/namespaces/{ns}", headers=AS)
    await side.put("/api/v1/namespaces/{ns}/finalize", {}, headers=AS)
    await side.get("/apis/apps/v1/namespaces/{ns}/deployments/d/scale", headers=AS)
    await side.get("/apis/nobody.example/v1/things", headers=AS)
    await side.get("/apis/nobody.example/v1/namespaces/{ns}/things/t", headers=AS)
    await side.get("/api/v1/unknowns", headers=AS)


@CASES.case("a user without a role may read public paths")
async def _(side: Side) -> None:
    for path in ("/metrics", "/logs", "/nothing/here", "/debug/pprof"):
        await side.get(path, headers=AS)
    for path in ("/api", "/apis", "/version", "/openapi/v3", "/healthz", "/readyz", "/livez"):
        found = await side.server.send(Exchange("GET", path, headers={key: side.own(v) for key, v in AS.items()}))
        side.note(path, found.status)
    await side.post("/healthz", {}, headers=AS)


@CASES.case("a role holds in its namespace, for its verbs")
async def _(side: Side) -> None:
    await grant(side, rule("get", "list"))
    await side.get(f"{MAPS}/a", headers=AS)
    await side.get(f"{MAPS}?limit=1", headers=AS)
    await side.get(f"{MAPS}?watch=true", headers=AS)
    await side.post(MAPS, config_map(), headers=AS)
    await side.get("/api/v1/namespaces/default/configmaps", headers=AS)
    await side.get("/api/v1/configmaps", headers=AS)
    await side.get("/api/v1/namespaces/{ns}/secrets", headers=AS)


@CASES.case("a role holds for the names it names")
async def _(side: Side) -> None:
    await grant(side, rule("get", "list", "watch", "update", "delete", "create", names=("a", "b")))
    await side.get(f"{MAPS}/a", headers=AS)
    await side.get(f"{MAPS}/c", headers=AS)
    await side.get(MAPS, headers=AS)
    await side.get(f"{MAPS}?fieldSelector=metadata.name%3Da", headers=AS)
    await side.get(f"{MAPS}?fieldSelector=metadata.name%3Dc", headers=AS)
    await side.post(MAPS, config_map(), headers=AS)
    await side.delete(f"{MAPS}/b", headers=AS)
    await side.delete(f"{MAPS}/c", headers=AS)
    await side.delete(MAPS, headers=AS)


@CASES.case("a role of a subresource is no role of the resource")
async def _(side: Side) -> None:
    await grant(side, rule("get", "patch", on=("pods/status", "pods/log")))
    await side.get("/api/v1/namespaces/{ns}/pods/p", headers=AS)
    await side.get("/api/v1/namespaces/{ns}/pods/p/status", headers=AS)
    await side.get("/api/v1/namespaces/{ns}/pods/p/log", headers=AS)
    await side.post("/api/v1/namespaces/{ns}/pods/p/eviction", {}, headers=AS)


@CASES.case("a role of a resource is no role of its subresources")
async def _(side: Side) -> None:
    await grant(side, rule("*", on=("pods",)))
    await side.get("/api/v1/namespaces/{ns}/pods/p", headers=AS)
    await side.get("/api/v1/namespaces/{ns}/pods/p/status", headers=AS)


@CASES.case("a star matches every verb, resource and subresource")
async def _(side: Side) -> None:
    await grant(side, rule("get", on=("*/status",)), {"verbs": ["*"], "apiGroups": ["batch"], "resources": ["*"]})
    await side.get("/api/v1/namespaces/{ns}/pods/p/status", headers=AS)
    await side.get("/api/v1/namespaces/{ns}/pods/p", headers=AS)
    await side.get("/apis/batch/v1/namespaces/{ns}/jobs/j", headers=AS)
    await side.get("/apis/batch/v1/namespaces/{ns}/jobs/j/status", headers=AS)
    await side.get("/apis/apps/v1/namespaces/{ns}/deployments/j/status", headers=AS)


@CASES.case("a cluster role bound in a namespace holds in it")
async def _(side: Side) -> None:
    await side.post(CLUSTER_ROLES, role(rule("list"), kind="ClusterRole"))
    await side.post(BINDINGS, binding(to="ClusterRole"))
    await holds(side, rule("list"), namespace="{ns}")
    await side.get(f"{MAPS}?limit=1", headers=AS)
    await side.get("/api/v1/namespaces/default/configmaps", headers=AS)
    await side.get("/api/v1/configmaps", headers=AS)


@CASES.case("a cluster role bound to the cluster holds everywhere")
async def _(side: Side) -> None:
    await grant_everywhere(side, rule("get", on=("nodes", "configmaps")))
    await side.get("/api/v1/nodes/n-{id}", headers=AS)
    await side.get("/api/v1/namespaces/default/configmaps/x", headers=AS)
    await side.get("/api/v1/nodes", headers=AS)


@CASES.case("paths that are no resources are granted too")
async def _(side: Side) -> None:
    paths = {"verbs": ["get"], "nonResourceURLs": ["/exact-{id}", "/tree-{id}/*"]}
    await grant_everywhere(side, paths)
    for path in ("/exact-{id}", "/exact-{id}/more", "/tree-{id}", "/tree-{id}/a/b"):
        await side.get(path, headers=AS)
    await side.post("/exact-{id}", {}, headers=AS)


@CASES.case("groups and service accounts are subjects")
async def _(side: Side) -> None:
    group = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "team-{id}"}
    account = {"kind": "ServiceAccount", "namespace": "{ns}", "name": "robot"}
    await grant(side, rule("get"), subjects=(group, account))
    await side.get(f"{MAPS}/a", headers=acting(USER, "team-{id}"))
    await side.get(f"{MAPS}/a", headers=acting(USER, "other-{id}"))
    await side.get(f"{MAPS}/a", headers=acting("system:serviceaccount:{ns}:robot"))
    await side.get(f"{MAPS}/a", headers=acting("system:serviceaccount:default:robot"))
    await side.get(f"{MAPS}/a", headers=acting("system:serviceaccount:{ns}:other"))


@CASES.case("a binding of an absent role is reported")
async def _(side: Side) -> None:
    await grant(side, rule("get"))
    await side.post(BINDINGS, binding(name="gone", of="gone"))
    await side.quietly(Exchange("POST", ROLES, role(rule("watch"), name="marker")))
    await side.quietly(Exchange("POST", BINDINGS, binding(name="marker", of="marker")))
    await holds(side, rule("watch"), namespace="{ns}")
    await side.get(f"{MAPS}/a", headers=AS)
    await side.get(MAPS, headers=AS)


@CASES.case("a role cannot grant more than the writer has")
async def _(side: Side) -> None:
    own = rule("create", "update", "patch", "get", on=("roles", "rolebindings"), group="rbac.authorization.k8s.io")
    await grant(side, own, rule("get", "list"))
    await side.post(ROLES, role(rule("get"), name="fine"), headers=AS)
    await side.post(ROLES, role(rule("get", "delete"), name="more"), headers=AS)
    await side.post(ROLES, role(rule("*", on=("*",), group="*"), name="all"), headers=AS)
    await side.post(ROLES, role(rule("get", names=("x",)), rule("get", on=("secrets",)), name="two"), headers=AS)
    await side.post(ROLES, role(rule("get", on=("pods", "nodes/status"), group="apps"), name="three"), headers=AS)
    await side.patch("merge", f"{ROLES}/fine", {"rules": [rule("delete")]}, headers=AS)
    await side.patch("merge", f"{ROLES}/fine", {"metadata": {"labels": {"a": "b"}}}, headers=AS)


@CASES.case("a binding cannot grant more than the writer has")
async def _(side: Side) -> None:
    own = rule("create", on=("rolebindings",), group="rbac.authorization.k8s.io")
    await grant(side, own, rule("get", "list"))
    await side.post(ROLES, role(rule("get"), name="fine"))
    await side.post(ROLES, role(rule("delete"), name="more"))
    await side.post(BINDINGS, binding(name="b1", of="fine"), headers=AS)
    await side.post(BINDINGS, binding(name="b2", of="more"), headers=AS)
    await side.post(BINDINGS, binding(name="b3", of="gone"), headers=AS)
    await side.post(BINDINGS, binding(name="b4", of="system:volume-scheduler", to="ClusterRole"), headers=AS)


@CASES.case("the verbs escalate and bind let them")
async def _(side: Side) -> None:
    group = "rbac.authorization.k8s.io"
    names = ("r1", "{id}")
    own = rule("create", "update", on=("roles", "rolebindings"), group=group)
    await grant(
        side,
        own,
        rule("escalate", on=("roles",), group=group),
        rule("bind", on=("roles",), group=group, names=names),
    )
    await side.post(ROLES, role(rule("*", on=("*",), group="*"), name="r1"), headers=AS)
    await side.post(ROLES, role(rule("*", on=("secrets",)), name="r2"), headers=AS)
    await side.post(BINDINGS, binding(name="b1", of="r1"), headers=AS)
    await side.post(BINDINGS, binding(name="b2", of="r2"), headers=AS)


@CASES.case("cluster roles are not escalated either")
async def _(side: Side) -> None:
    group = "rbac.authorization.k8s.io"
    await grant_everywhere(side, rule("create", "update", on=("clusterroles", "clusterrolebindings"), group=group))
    paths = {"verbs": ["get"], "nonResourceURLs": ["/metrics"]}
    await side.post(CLUSTER_ROLES, role(rule("get"), kind="ClusterRole", name="x-{id}"), headers=AS)
    await side.post(CLUSTER_ROLES, role(paths, kind="ClusterRole", name="y-{id}"), headers=AS)
    body = binding(kind="ClusterRoleBinding", to="ClusterRole", of="cluster-admin", name="z-{id}")
    await side.post(CLUSTER_BINDINGS, body, headers=AS)
    aggregated = {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}
    await side.post(CLUSTER_ROLES, role(kind="ClusterRole", name="a-{id}", **aggregated), headers=AS)


@CASES.case("an update that creates needs the right to create")
async def _(side: Side) -> None:
    await grant(side, rule("patch", "update", "get", on=("configmaps", "leases")), rule("patch", on=("roles",)))
    await side.patch("apply", f"{MAPS}/a?fieldManager=m", config_map(), headers=AS)
    await side.patch("merge", f"{MAPS}/a", {"data": {}}, headers=AS)
    await side.put(f"{MAPS}/a", config_map(), headers=AS)
    lease = {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": "l"}}
    await grant_everywhere(side, rule("update", group="coordination.k8s.io", on=("leases",)))
    await side.put("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases/l", lease, headers=AS)


@CASES.case("what a binding refers to does not change")
async def _(side: Side) -> None:
    await side.post(BINDINGS, binding(of="a"))
    await side.patch("merge", f"{BINDINGS}/{{id}}", {"roleRef": {"name": "b"}})
    await side.patch("merge", f"{BINDINGS}/{{id}}", {"subjects": [user("someone")]})
    await side.patch("merge", f"{BINDINGS}/{{id}}", {"subjects": None})


_WRONG: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "a rule without verbs": (ROLES, role({"apiGroups": [""], "resources": ["pods"]})),
    "a rule without resources": (ROLES, role({"apiGroups": [""], "verbs": ["get"]})),
    "a rule without groups": (ROLES, role({"resources": ["pods"], "verbs": ["get"]})),
    "a path in a role": (ROLES, role({"nonResourceURLs": ["/x"], "verbs": ["get"]})),
    "a path and resources": (
        CLUSTER_ROLES,
        role({**rule("get"), "nonResourceURLs": ["/x"]}, kind="ClusterRole"),
    ),
    "a role without rules": (ROLES, {**role(), "rules": None}),
    "a role of a strange name": (ROLES, role(rule("get"), name="system:a/b")),
    "a role with a colon": (ROLES, role(rule("get"), name="system:a")),
    "a binding without a role": (BINDINGS, {**binding(), "roleRef": {}}),
    "a binding of a strange kind": (BINDINGS, binding(to="Whatever")),
    "a binding to a cluster of a role": (CLUSTER_BINDINGS, binding(kind="ClusterRoleBinding")),
    "a binding without subjects": (BINDINGS, {**binding(), "subjects": []}),
    "a subject without a name": (BINDINGS, binding({"kind": "User", "name": ""})),
    "a subject of a strange kind": (BINDINGS, binding({"kind": "What", "name": "x"})),
    "a subject of a strange group": (BINDINGS, binding({"kind": "User", "apiGroup": "x", "name": "x"})),
    "an account without a namespace": (BINDINGS, binding({"kind": "ServiceAccount", "name": "x"})),
    "an account of a bad name": (BINDINGS, binding({"kind": "ServiceAccount", "name": "X Y", "namespace": "z"})),
    "a user without a group": (BINDINGS, binding({"kind": "User", "name": "x"})),
    "an aggregation of nothing": (
        CLUSTER_ROLES,
        role(kind="ClusterRole", aggregationRule={"clusterRoleSelectors": []}),
    ),
    "an aggregation of a bad selector": (
        CLUSTER_ROLES,
        role(kind="ClusterRole", aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a b": "c"}}]}),
    ),
}
for _name, (_path, _body) in _WRONG.items():
    CASES.exchanges(f"{_name} is judged", Exchange("POST", _path, _body))


@pytest.mark.parametrize("case", CASES.params())
async def test_access_is_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """Granted, refused, and written down."""
    await judge(case)
