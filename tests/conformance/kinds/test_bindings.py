# SPDX-License-Identifier: Apache-2.0
"""Bindings of pods to nodes, which schedulers write."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("bindings")
Document = dict[str, Any]

_PODS: Final = "/api/v1/namespaces/{ns}/pods"
_BINDINGS: Final = "/api/v1/namespaces/{ns}/bindings"
_PLACE: Final = f"{_PODS}/p/binding"


async def _prepare(side: Side, **spec: Any) -> None:
    account = {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "default"}}
    await side.quietly(Exchange("POST", "/api/v1/namespaces/{ns}/serviceaccounts", account))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"a": "b"}, "annotations": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False, **spec},
    }
    await side.quietly(Exchange("POST", _PODS, pod))


def _binding(**more: Any) -> Document:
    target = {"apiVersion": "v1", "kind": "Node", "name": "n"}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": target, **more}


async def _stored(side: Side) -> None:
    """The node of the pod, and what else a binding may write."""
    found = (await side.server.send(side.filled(Exchange("GET", f"{_PODS}/p")))).body
    conditions = [
        {name: value for name, value in each.items() if name != "lastTransitionTime"}
        for each in found["status"].get("conditions", ())
    ]
    metadata = {name: found["metadata"].get(name) for name in ("labels", "annotations", "generation")}
    managers = [each["manager"] for each in found["metadata"]["managedFields"]]
    side.note("stored", [found["spec"].get("nodeName"), conditions, metadata, managers])


_BODIES: Final[dict[str, Document]] = {
    "a node": _binding(),
    "labels and annotations": _binding(
        metadata={"name": "p", "labels": {"x": "y", "a": "c"}, "annotations": {"x": "y", "a": "c"}}
    ),
    "no target": _binding(target={}),
    "a target of another kind": _binding(target={"kind": "Pod", "name": "n"}),
    "a target without a kind": _binding(target={"name": "n"}),
    "another pod's name": _binding(metadata={"name": "q"}),
    "no name": _binding(metadata={}),
    "another uid": _binding(metadata={"name": "p", "uid": "x"}),
}

for _name, _body in _BODIES.items():

    @CASES.case(f"a pod is bound with {_name}")
    async def _(side: Side, body: Document = _body) -> None:
        await _prepare(side)
        await side.post(_PLACE, body)
        await _stored(side)


@CASES.case("a pod is not bound with another version")
async def _(side: Side) -> None:
    await _prepare(side)
    body = _binding(metadata={"name": "p", "resourceVersion": "1"})
    found = await side.server.send(side.filled(Exchange("POST", _PLACE, body)))
    side.note("refused", [found.status, re.sub(r"\d+$", "VERSION", found.body["message"])])
    await _stored(side)


@CASES.case("a dry run binds nothing")
async def _(side: Side) -> None:
    await _prepare(side)
    await side.post(f"{_PLACE}?dryRun=All", _binding())
    await _stored(side)
    await side.post(f"{_PLACE}?dryRun=Some", _binding())
    await _stored(side)


@CASES.case("a pod is bound once")
async def _(side: Side) -> None:
    await _prepare(side)
    await side.post(_PLACE, _binding())
    await side.post(_PLACE, _binding(target={"kind": "Node", "name": "other"}))
    await _stored(side)


@CASES.case("a pod is bound by the binding of its namespace")
async def _(side: Side) -> None:
    await _prepare(side)
    await side.post(_BINDINGS, _binding())
    await _stored(side)


@CASES.case("a gated pod is not bound")
async def _(side: Side) -> None:
    await _prepare(side, schedulingGates=[{"name": "a.b/c"}])
    await side.post(_PLACE, _binding())
    await _stored(side)


@CASES.case("a pod that is not there is not bound")
async def _(side: Side) -> None:
    await side.post(_PLACE, _binding())


@CASES.case("a binding has no other methods")
async def _(side: Side) -> None:
    await _prepare(side)
    await side.get(_PLACE)
    await side.put(_PLACE, _binding())
    await side.get(_BINDINGS)


@pytest.mark.parametrize("case", CASES.params())
async def test_a_pod_is_bound_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """What is refused, and what is stored."""
    await judge(case)
