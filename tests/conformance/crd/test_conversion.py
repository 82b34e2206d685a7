# SPDX-License-Identifier: Apache-2.0
"""Our kinds in both of their versions, converted by the code of the manager's webhook."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.crd.installed import DEFINITIONS
from tests.conformance.harness import Both, Case, Cases, Exchange, Server, Side
from tests.conformance.webhooks.hookserver import HookServer, serving

pytestmark = pytest.mark.binaries

CASES = Cases("conversion")
_GROUP: Final = "/apis/kueue.x-k8s.io"
_KINDS: Final = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")
_PATIENCE: Final = 60.0
_POD_SET: Final = {
    "name": "main",
    "count": 1,
    "template": {"spec": {"containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never"}},
}
_RESOURCES: Final = [
    {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "1"}]}]}
]


def _object(kind: str, version: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"kind": kind, "apiVersion": f"kueue.x-k8s.io/{version}", "metadata": {"name": "{id}"}, "spec": spec}


_OLD: Final[dict[str, tuple[str, str, dict[str, Any], dict[str, Any]]]] = {
    "ClusterQueue": ("clusterqueues", "", {"cohort": "team", "resourceGroups": _RESOURCES}, {"cohort": "other"}),
    "Cohort": ("cohorts", "", {"parent": "root"}, {"parent": "other"}),
    "LocalQueue": ("localqueues", "/namespaces/{ns}", {"clusterQueue": "cq"}, {"stopPolicy": "Hold"}),
    "MultiKueueCluster": (
        "multikueueclusters",
        "",
        {"kubeConfig": {"location": "secret", "locationType": "Secret"}},
        {"kubeConfig": {"location": "other"}},
    ),
    "Workload": (
        "workloads",
        "/namespaces/{ns}",
        {
            "podSets": [_POD_SET],
            "priority": 5,
            "priorityClassName": "high",
            "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
        },
        {"priority": 6},
    ),
}


def _life(kind: str) -> None:
    plural, inside, spec, change = _OLD[kind]
    old, new = (f"{_GROUP}/{version}{inside}/{plural}" for version in ("v1beta1", "v1beta2"))

    async def old_first(side: Side) -> None:
        await side.post(old, _object(kind, "v1beta1", spec))
        await side.get(f"{old}/{{id}}")
        await side.get(f"{new}/{{id}}")
        await side.patch("merge", f"{old}/{{id}}", {"spec": change})
        await side.get(f"{new}/{{id}}")
        await side.get(f"{old}?fieldSelector=metadata.name%3D{side.id}")
        applied = _object(kind, "v1beta1", {**spec, **change})
        await side.patch("apply", f"{old}/{{id}}?fieldManager=m&force=true", applied)
        await side.patch("merge", f"{new}/{{id}}", {"metadata": {"labels": {"a": "b"}}})
        await side.get(f"{old}/{{id}}")
        await side.delete(f"{old}/{{id}}")

    CASES.add(f"a {kind} is written in its older version", old_first)


for _kind in _OLD:
    _life(_kind)


@CASES.case("watches convert")
async def _(side: Side) -> None:
    path = f"{_GROUP}/v1beta1/namespaces/{{ns}}/localqueues"
    body = _object("LocalQueue", "v1beta2", {"clusterQueue": "cq"})
    async with side.watching(f"{path}?watch=true") as events:
        await side.quietly(Exchange("POST", path.replace("v1beta1", "v1beta2"), body))
        side.note("event", await anext(events))
        await side.quietly(Exchange("DELETE", f"{path}/{{id}}"))
        side.note("event", await anext(events))


@CASES.case("the status is written in the older version")
async def _(side: Side) -> None:
    old, new = (f"{_GROUP}/{version}/namespaces/{{ns}}/workloads" for version in ("v1beta1", "v1beta2"))
    await side.post(old, _object("Workload", "v1beta1", _OLD["Workload"][2]))
    condition = {"type": "Finished", "status": "True", "reason": "R", "message": "m"}
    moment = {"lastTransitionTime": "2026-01-02T03:04:05Z"}
    await side.patch("merge", f"{old}/{{id}}/status", {"status": {"conditions": [{**condition, **moment}]}})
    await side.get(f"{new}/{{id}}/status")
    await side.patch("merge", f"{new}/{{id}}/status", {"status": {"clusterName": "w1"}})
    await side.get(f"{old}/{{id}}")


@CASES.case("an error of the older version has its text")
async def _(side: Side) -> None:
    await side.post(f"{_GROUP}/v1beta1/clusterqueues", _object("ClusterQueue", "v1beta1", {"cohort": 1}))
    await side.post(f"{_GROUP}/v1beta1/clusterqueues", _object("ClusterQueue", "v1beta1", {"cohortName": "x"}))
    await side.post(
        f"{_GROUP}/v1beta1/clusterqueues?fieldValidation=Strict",
        _object("ClusterQueue", "v1beta1", {"cohortName": "x"}),
    )


@pytest.fixture(scope="module")
def converter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HookServer]:
    """The manager's conversion, served to both servers."""
    with serving(tmp_path_factory.mktemp("converter")) as server:
        yield server


@pytest.fixture(scope="module")
async def converted(both: Both, our_definitions: None, converter: HookServer) -> AsyncIterator[None]:
    """Our kinds of two versions convert by webhook while these tests run."""
    client = {"url": f"{converter.url}/convert", "caBundle": converter.bundle}
    webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
    await _switch(both, {"strategy": "Webhook", "webhook": webhook})
    await asyncio.gather(*(_converting(server) for server in (both.embedded, both.real)))
    yield
    await _switch(both, {"strategy": "None", "webhook": None})


async def _switch(both: Both, conversion: dict[str, Any]) -> None:
    body = {"spec": {"conversion": conversion}}
    for server in (both.embedded, both.real):
        for plural in _KINDS:
            path = f"{DEFINITIONS}/{plural}.kueue.x-k8s.io"
            found = await server.send(Exchange("PATCH", path, body, "application/merge-patch+json"))
            assert found.status == 200, found.body


async def _converting(server: Server) -> None:
    """Wait until each kind converts."""
    namespace = "/namespaces/default"
    async with asyncio.timeout(_PATIENCE):
        for kind, (plural, inside, spec, _) in _OLD.items():
            where = f"{_GROUP}/v1beta1{namespace if inside else ''}/{plural}?dryRun=All"
            body = {**_object(kind, "v1beta1", spec), "metadata": {"name": "probe"}}
            while "managedFields" not in str((await server.send(Exchange("POST", where, body))).body):
                await asyncio.sleep(0.05)
        where, spec = f"{_GROUP}/v1beta2/clusterqueues", {"cohortName": "x"}
        probe = {**_object("ClusterQueue", "v1beta2", spec), "metadata": {"name": "probe"}}
        await server.send(Exchange("POST", where, probe))
        old = where.replace("v1beta2", "v1beta1")
        while "cohort" not in (await server.send(Exchange("GET", f"{old}/probe"))).body.get("spec", {}):
            await asyncio.sleep(0.05)
        await server.send(Exchange("DELETE", f"{where}/probe"))


@pytest.mark.parametrize("case", CASES.params())
async def test_an_object_is_converted_as_by_a_real_server(judge: Judge, converted: None, case: Case) -> None:
    """Read and written in either version."""
    await judge(case)
