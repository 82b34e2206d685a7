# SPDX-License-Identifier: Apache-2.0
"""Deletion: grace periods, finalizers, policies and preconditions."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.conformance.api.widgets import GADGETS, WIDGETS, gadget, widget
from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("delete")
MAPS: Final = "/api/v1/namespaces/{ns}/configmaps"
PODS: Final = "/api/v1/namespaces/{ns}/pods"
JOBS: Final = "/apis/batch/v1/namespaces/{ns}/jobs"
ACCOUNTS: Final = "/api/v1/namespaces/{ns}/serviceaccounts"
DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/{ns}/deployments"
NAMESPACES: Final = "/api/v1/namespaces"
FINALIZERS: Final = ["conformance.test/one", "conformance.test/two"]
KINDS: Final = (("built-in", MAPS), ("custom", WIDGETS))


def thing(path: str, name: str = "o", **metadata: Any) -> dict[str, Any]:
    """An object of the kind at the path."""
    found = {"name": name, **metadata}
    if path == WIDGETS:
        return widget(name, {"size": 1}, metadata=found)
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": found, "data": {"k": "v"}}


def pod(name: str = "p", **spec: Any) -> dict[str, Any]:
    """A pod that needs nothing."""
    base = {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": name}, "spec": {**base, **spec}}


def options(**fields: Any) -> dict[str, Any]:
    """The body of a deletion."""
    return {"kind": "DeleteOptions", "apiVersion": "v1", **fields}


for what, place in KINDS:

    @CASES.case(f"a {what} object goes at once")
    async def _(side: Side, place: str = place) -> None:
        await side.post(place, thing(place))
        await side.delete(f"{place}/o")
        await side.delete(f"{place}/o")
        await side.get(f"{place}/o")
        await side.post(place, thing(place))
        await side.delete(f"{place}/o", options())
        await side.post(place, thing(place))
        await side.delete(f"{place}/o", {})

    @CASES.case(f"a {what} object stays until its finalizers are gone")
    async def _(side: Side, place: str = place) -> None:
        path = f"{place}/o"
        await side.post(place, thing(place, finalizers=FINALIZERS))
        await side.delete(path)
        await side.delete(path)
        await side.get(path)
        await side.post(place, thing(place))
        await side.patch("merge", path, {"metadata": {"labels": {"still": "here"}}})
        await side.patch("merge", path, {"metadata": {"finalizers": [*FINALIZERS, "conformance.test/three"]}})
        await side.patch("merge", path, {"metadata": {"finalizers": FINALIZERS[:1]}})
        await side.patch("merge", path, {"metadata": {"finalizers": FINALIZERS}})
        await side.patch("merge", path, {"metadata": {"deletionTimestamp": None}})
        await side.delete(path, options(gracePeriodSeconds=0))
        await side.patch("json", path, [{"op": "remove", "path": "/metadata/finalizers"}])
        await side.get(path)

    @CASES.case(f"an update takes the last finalizer of a {what} object")
    async def _(side: Side, place: str = place) -> None:
        path = f"{place}/o"
        await side.post(place, thing(place, finalizers=FINALIZERS))
        found = (await side.delete(path)).body
        metadata = {name: entry for name, entry in found["metadata"].items() if name != "finalizers"}
        await side.put(path, {**found, "metadata": metadata})
        await side.get(path)

    @CASES.case(f"finalizers of a {what} object are taken by those who applied them")
    async def _(side: Side, place: str = place) -> None:
        path = f"{place}/o"
        await side.patch("apply", f"{path}?fieldManager=m", thing(place, finalizers=FINALIZERS))
        await side.delete(path)
        await side.patch("apply", f"{path}?fieldManager=m", thing(place))
        await side.get(path)

    @CASES.case(f"a {what} object is deleted by its policy")
    async def _(side: Side, place: str = place) -> None:
        for policy in ("Background", "Foreground", "Orphan"):
            name = policy.lower()
            await side.post(place, thing(place, name))
            await side.delete(f"{place}/{name}", options(propagationPolicy=policy))
            await side.get(f"{place}/{name}")
            await side.delete(f"{place}/{name}", options(propagationPolicy="Background"))
            await side.get(f"{place}/{name}")
        await side.post(place, thing(place))
        await side.delete(f"{place}/o?propagationPolicy=Foreground")
        await side.delete(f"{place}/o?propagationPolicy=Orphan")
        await side.delete(f"{place}/o?orphanDependents=true")
        await side.patch("merge", f"{place}/o", {"metadata": {"finalizers": []}})

    @CASES.case(f"unknown policies are refused for {what} objects")
    async def _(side: Side, place: str = place) -> None:
        await side.post(place, thing(place))
        await side.delete(f"{place}/o", options(propagationPolicy="Sideways"))
        await side.delete(f"{place}/o?propagationPolicy=Sideways")
        await side.delete(f"{place}/o", options(propagationPolicy="Foreground", orphanDependents=True))
        await side.delete(f"{place}/o", options(gracePeriodSeconds="x"))
        await side.delete(f"{place}/o?gracePeriodSeconds=x")
        await side.delete(f"{place}/o", options(gracePeriodSeconds=-5))

    @CASES.case(f"what is no options for a deletion is refused for {what} objects")
    async def _(side: Side, place: str = place) -> None:
        await side.post(place, thing(place))
        await side.delete(f"{place}/o", b"{")
        await side.delete(f"{place}/o", b"[]")
        await side.delete(f"{place}/o", b"hello")
        await side.delete(f"{place}/o", {"kind": "ConfigMap", "apiVersion": "v1"})
        await side.delete(f"{place}/o", {"kind": "DeleteOptions", "apiVersion": "v9"})
        await side.delete(f"{place}/o", b"x", content_type="text/plain")
        await side.delete(f"{place}/o", {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"]})
        await side.get(f"{place}/o")
        await side.delete(f"{place}/o", {"kind": "DeleteOptions", "apiVersion": "batch/v1", "unknown": 1})

    @CASES.case(f"a {what} object is deleted under preconditions")
    async def _(side: Side, place: str = place) -> None:
        made = (await side.post(place, thing(place))).body["metadata"]
        other = "00000000-0000-4000-8000-000000000000"
        await side.delete(f"{place}/o", options(preconditions={"uid": other}))
        await side.delete(f"{place}/o", options(preconditions={"resourceVersion": "1"}))
        await side.delete(f"{place}/o", options(preconditions={"uid": made["uid"], "resourceVersion": "1"}))
        await side.delete(f"{place}/o", options(preconditions={"uid": made["uid"]}, dryRun=["All"]))
        version = made["resourceVersion"]
        await side.delete(f"{place}/o", options(preconditions={"uid": made["uid"], "resourceVersion": version}))
        await side.delete(f"{place}/o", options(preconditions={"uid": made["uid"]}))

    @CASES.case(f"a dry run deletes no {what} object")
    async def _(side: Side, place: str = place) -> None:
        await side.post(place, thing(place))
        await side.post(place, thing(place, "f", finalizers=FINALIZERS))
        await side.delete(f"{place}/o", options(dryRun=["All"]))
        await side.delete(f"{place}/f", options(dryRun=["All"]))
        await side.delete(f"{place}/o", options(dryRun=["All"], propagationPolicy="Foreground"))
        await side.delete(f"{place}?dryRun=All")
        await side.get(place)

    @CASES.case(f"a collection of {what} objects is deleted as it is selected")
    async def _(side: Side, place: str = place) -> None:
        for name, labels in (("a", {"x": "1"}), ("b", {"x": "1"}), ("c", {"x": "2"}), ("d", {})):
            await side.quietly(Exchange("POST", place, thing(place, name, labels=labels)))
        await side.delete(f"{place}?labelSelector=x%3D1")
        await side.get(place)
        await side.delete(f"{place}?labelSelector=x%3D9")
        await side.delete(f"{place}?fieldSelector=metadata.name%3Dc")
        await side.get(place)
        await side.delete(f"{place}?labelSelector=a%20b")
        await side.quietly(Exchange("POST", place, thing(place, "f", finalizers=FINALIZERS)))
        await side.delete(place)
        await side.get(place)
        await side.delete(place)
        await side.delete(place, options(propagationPolicy="Orphan"))

    @CASES.case(f"deleting a collection of {what} objects takes options")
    async def _(side: Side, place: str = place) -> None:
        for name in ("a", "b", "c"):
            await side.quietly(Exchange("POST", place, thing(place, name)))
        await side.delete(place, options(propagationPolicy="Foreground"))
        await side.get(place)
        await side.delete(place, options(propagationPolicy="Sideways"))
        await side.delete(f"{place}?limit=1")


@CASES.case("a pod that no node runs goes at once")
async def _(side: Side) -> None:
    await side.quietly(Exchange("POST", ACCOUNTS, {"metadata": {"name": "default"}}))
    await side.post(PODS, pod())
    await side.delete(f"{PODS}/p")
    await side.get(f"{PODS}/p")


@CASES.case("a pod that a node runs is given its grace")
async def _(side: Side) -> None:
    await side.quietly(Exchange("POST", ACCOUNTS, {"metadata": {"name": "default"}}))
    await side.post(PODS, pod(nodeName="n1"))
    await side.delete(f"{PODS}/p")
    await side.get(f"{PODS}/p")
    await side.delete(f"{PODS}/p", options(gracePeriodSeconds=60))
    await side.delete(f"{PODS}/p", options(gracePeriodSeconds=5))
    await side.get(f"{PODS}/p")
    await side.patch("merge", f"{PODS}/p", {"metadata": {"labels": {"a": "b"}}})
    await side.delete(f"{PODS}/p", options(gracePeriodSeconds=0))
    await side.get(f"{PODS}/p")


@CASES.case("a pod has its grace period")
async def _(side: Side) -> None:
    await side.quietly(Exchange("POST", ACCOUNTS, {"metadata": {"name": "default"}}))
    await side.post(PODS, pod(nodeName="n1", terminationGracePeriodSeconds=0))
    await side.delete(f"{PODS}/p")
    await side.get(f"{PODS}/p")
    await side.post(PODS, pod("q", nodeName="n1", terminationGracePeriodSeconds=7))
    await side.delete(f"{PODS}/q?gracePeriodSeconds=3")
    await side.delete(f"{PODS}/q?gracePeriodSeconds=1")
    await side.delete(f"{PODS}/q", options(gracePeriodSeconds=0))
    await side.get(f"{PODS}/q")


@CASES.case("a pod that has ended goes at once")
async def _(side: Side) -> None:
    await side.quietly(Exchange("POST", ACCOUNTS, {"metadata": {"name": "default"}}))
    await side.post(PODS, pod(nodeName="n1"))
    await side.patch("merge", f"{PODS}/p/status", {"status": {"phase": "Succeeded"}})
    await side.delete(f"{PODS}/p")
    await side.get(f"{PODS}/p")


@CASES.case("a pod with finalizers outlives its grace")
async def _(side: Side) -> None:
    await side.quietly(Exchange("POST", ACCOUNTS, {"metadata": {"name": "default"}}))
    body = pod(nodeName="n1")
    body["metadata"]["finalizers"] = FINALIZERS[:1]
    await side.post(PODS, body)
    await side.delete(f"{PODS}/p")
    await side.delete(f"{PODS}/p", options(gracePeriodSeconds=0))
    await side.get(f"{PODS}/p")
    await side.patch("merge", f"{PODS}/p", {"metadata": {"finalizers": None}})
    await side.get(f"{PODS}/p")


@CASES.case("a collection of pods is given its grace")
async def _(side: Side) -> None:
    await side.quietly(Exchange("POST", ACCOUNTS, {"metadata": {"name": "default"}}))
    await side.post(PODS, pod("a", nodeName="n1"))
    await side.post(PODS, pod("b"))
    await side.delete(PODS)
    await side.get(PODS)
    await side.delete(PODS, options(gracePeriodSeconds=0))
    await side.get(PODS)


@CASES.case("a job orphans its pods by default")
async def _(side: Side) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    for name in ("a", "b", "c"):
        body = {"kind": "Job", "apiVersion": "batch/v1", "metadata": {"name": name}, "spec": {"template": template}}
        await side.quietly(Exchange("POST", JOBS, body))
    await side.delete(f"{JOBS}/a")
    await side.get(f"{JOBS}/a")
    await side.delete(f"{JOBS}/b", options(propagationPolicy="Background"))
    await side.get(f"{JOBS}/b")
    await side.delete(f"{JOBS}/c", options(propagationPolicy="Foreground"))
    await side.get(f"{JOBS}/c")


@CASES.case("kinds differ in what their deletion answers")
async def _(side: Side) -> None:
    for path, kind, version, more in (
        ("/api/v1/namespaces/{ns}/secrets", "Secret", "v1", {}),
        (ACCOUNTS, "ServiceAccount", "v1", {}),
        (
            "/api/v1/namespaces/{ns}/services",
            "Service",
            "v1",
            {"spec": {"clusterIP": "None", "ports": [{"port": 80}], "selector": {"a": "b"}}},
        ),
        ("/api/v1/namespaces/{ns}/resourcequotas", "ResourceQuota", "v1", {"spec": {"hard": {"pods": "1"}}}),
        ("/api/v1/namespaces/{ns}/limitranges", "LimitRange", "v1", {"spec": {"limits": []}}),
        (
            "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles",
            "Role",
            "rbac.authorization.k8s.io/v1",
            {"rules": []},
        ),
        ("/apis/coordination.k8s.io/v1/namespaces/{ns}/leases", "Lease", "coordination.k8s.io/v1", {"spec": {}}),
        ("/apis/scheduling.k8s.io/v1/priorityclasses", "PriorityClass", "scheduling.k8s.io/v1", {"value": 1}),
        (GADGETS, "Gadget", "conformance.test/v1", {}),
    ):
        body = {"kind": kind, "apiVersion": version, "metadata": {"name": "{id}"}, **more}
        await side.quietly(Exchange("POST", path, body))
        await side.delete(f"{path}/{{id}}")
        await side.get(f"{path}/{{id}}")


@CASES.case("a namespace terminates, and takes in nothing more")
async def _(side: Side) -> None:
    body = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "{id}-n"}}
    await side.post(NAMESPACES, body)
    path = f"{NAMESPACES}/{{id}}-n"
    await side.post(f"{path}/configmaps", thing(MAPS, "before"))
    await side.delete(path)
    await side.get(path)
    await side.delete(path)
    await side.post(f"{path}/configmaps", thing(MAPS, "after"))
    await side.post("/apis/conformance.test/v1/namespaces/{id}-n/widgets", widget())
    await side.patch("merge", f"{path}/configmaps/before", {"data": {"k": "changed"}})
    await side.patch("apply", f"{path}/configmaps/new?fieldManager=m", thing(MAPS, "new"))
    await side.delete(f"{path}/configmaps/before")
    found = (await side.get(path)).body
    await side.put(f"{path}/finalize", {**found, "spec": {"finalizers": []}})
    await side.get(path)


@CASES.case("some namespaces may not be deleted")
async def _(side: Side) -> None:
    for name in ("default", "kube-system", "kube-public"):
        await side.delete(f"{NAMESPACES}/{name}")
    await side.delete(f"{NAMESPACES}/{{id}}-absent")


@CASES.case("a cluster-scoped custom object goes by its collection")
async def _(side: Side) -> None:
    await side.quietly(Exchange("POST", GADGETS, gadget(metadata={"name": "{id}-a", "labels": {"case": "{id}"}})))
    await side.quietly(Exchange("POST", GADGETS, gadget(metadata={"name": "{id}-b", "labels": {"case": "{id}"}})))
    await side.delete(f"{GADGETS}?labelSelector=case%3D{{id}}")
    await side.get(f"{GADGETS}?labelSelector=case%3D{{id}}")


@CASES.case("a deployment's deletion is counted")
async def _(side: Side) -> None:
    body = {
        "kind": "Deployment",
        "apiVersion": "apps/v1",
        "metadata": {"name": "d", "finalizers": FINALIZERS[:1]},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    }
    await side.post(DEPLOYMENTS, body)
    await side.delete(f"{DEPLOYMENTS}/d")
    await side.patch("merge", f"{DEPLOYMENTS}/d", {"spec": {"replicas": 3}})
    await side.patch("merge", f"{DEPLOYMENTS}/d", {"metadata": {"finalizers": []}})


@pytest.mark.parametrize("case", CASES.params())
async def test_delete(judge: Judge, case: Case) -> None:
    await judge(case)
