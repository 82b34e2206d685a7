# SPDX-License-Identifier: Apache-2.0
"""Containers that are added to a pod, as `kubectl debug` does."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("ephemeral containers")
Document = dict[str, Any]

_PODS: Final = "/api/v1/namespaces/{ns}/pods"
_PLACE: Final = f"{_PODS}/p/ephemeralcontainers"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_CONTAINER: Final[Document] = {"name": "d", "image": "i"}
_ADDED: Final[dict[str, list[Document]]] = {
    "one container": [_CONTAINER],
    "two containers": [_CONTAINER, {**_CONTAINER, "name": "e"}],
    "a container for another": [{**_CONTAINER, "targetContainerName": "c"}],
    "a container for none": [{**_CONTAINER, "targetContainerName": "x"}],
    "a container with the name of another": [{**_CONTAINER, "name": "c"}],
    "a container without a name": [{"image": "i"}],
    "a container without an image": [{"name": "d"}],
    "a container with ports": [{**_CONTAINER, "ports": [{"containerPort": 80}]}],
    "a container with resources": [{**_CONTAINER, "resources": {"requests": {"cpu": "1"}}}],
    "a container with a probe": [{**_CONTAINER, "livenessProbe": {"exec": {"command": ["a"]}}}],
    "a container with a hook": [{**_CONTAINER, "lifecycle": {"preStop": {"exec": {"command": ["a"]}}}}],
    "a container with a restart policy": [{**_CONTAINER, "restartPolicy": "Always"}],
    "a container with a terminal": [{**_CONTAINER, "stdin": True, "tty": True}],
    "a container with a capability": [{**_CONTAINER, "securityContext": {"capabilities": {"add": ["SYS_PTRACE"]}}}],
    "a container with a pull policy of no kind": [{**_CONTAINER, "imagePullPolicy": "Now"}],
}


def _pod() -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False},
    }


async def _prepare(side: Side) -> None:
    account = {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "default"}}
    await side.quietly(Exchange("POST", "/api/v1/namespaces/{ns}/serviceaccounts", account))
    await side.quietly(Exchange("POST", _PODS, _pod()))


async def _note(side: Side, what: str, exchange: Exchange) -> Document:
    found = await side.server.send(side.filled(exchange))
    body = dict(found.body)
    causes = [
        [each["field"], each["reason"], re.split(r"[{\n]", each["message"])[0]]
        for each in body.get("details", {}).get("causes", ())
    ]
    metadata = body.get("metadata", {})
    shown = [found.status, body.get("reason"), causes, body.get("spec"), metadata.get("generation")]
    side.note(what, [*shown, metadata.get("labels"), [each["manager"] for each in metadata.get("managedFields", ())]])
    return body


def _patch(containers: list[Document]) -> Exchange:
    return Exchange("PATCH", _PLACE, {"spec": {"ephemeralContainers": containers}}, content_type=_STRATEGIC)


for _name, _containers in _ADDED.items():

    @CASES.case(f"{_name} is added")
    async def _(side: Side, containers: list[Document] = _containers) -> None:
        await _prepare(side)
        await _note(side, "added", _patch(containers))
        await _note(side, "read", Exchange("GET", _PLACE))


@CASES.case("a second one is added, and none can be changed or removed")
async def _(side: Side) -> None:
    await _prepare(side)
    await _note(side, "first", _patch([_CONTAINER]))
    await _note(side, "second", _patch([{**_CONTAINER, "name": "e"}]))
    await _note(side, "changed", _patch([{**_CONTAINER, "image": "other"}]))
    stored = await _note(side, "stored", Exchange("GET", f"{_PODS}/p"))
    fewer = {**stored, "spec": {**stored["spec"], "ephemeralContainers": []}}
    await _note(side, "removed", Exchange("PUT", _PLACE, fewer))


@CASES.case("nothing else of the pod is changed")
async def _(side: Side) -> None:
    await _prepare(side)
    stored = await _note(side, "stored", Exchange("GET", f"{_PODS}/p"))
    stored["metadata"]["labels"] = {"a": "other"}
    stored["spec"]["containers"][0]["image"] = "other"
    stored["spec"]["ephemeralContainers"] = [_CONTAINER]
    await _note(side, "put", Exchange("PUT", _PLACE, stored))


@CASES.case("a pod is not made with one, and none is added by an update")
async def _(side: Side) -> None:
    await _prepare(side)
    body = _pod()
    body["metadata"]["name"] = "q"
    body["spec"]["ephemeralContainers"] = [_CONTAINER]
    await _note(side, "made", Exchange("POST", _PODS, body))
    patch = {"spec": {"ephemeralContainers": [_CONTAINER]}}
    await _note(side, "updated", Exchange("PATCH", f"{_PODS}/p", patch, content_type=_STRATEGIC))


@CASES.case("a dry run adds nothing")
async def _(side: Side) -> None:
    await _prepare(side)
    exchange = Exchange(
        "PATCH", f"{_PLACE}?dryRun=All", {"spec": {"ephemeralContainers": [_CONTAINER]}}, content_type=_STRATEGIC
    )
    await _note(side, "dry run", exchange)
    await _note(side, "stored", Exchange("GET", f"{_PODS}/p"))


@CASES.case("a pod that is not there gets none")
async def _(side: Side) -> None:
    await _note(side, "added", _patch([_CONTAINER]))


@pytest.mark.parametrize("case", CASES.params())
async def test_a_container_is_added_to_a_pod_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """What is refused, and what is stored."""
    await judge(case)
