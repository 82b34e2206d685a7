# SPDX-License-Identifier: Apache-2.0
"""Pods of a RuntimeClass: their overhead, and the nodes on which they run."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("runtime classes")
Document = dict[str, Any]

_CLASSES: Final = "/apis/node.k8s.io/v1/runtimeclasses"
_PODS: Final = "/api/v1/namespaces/{ns}/pods"
_FIXED: Final[Document] = {"overhead": {"podFixed": {"cpu": "10m", "memory": "1Mi"}}}
_TAINTED: Final[Document] = {"key": "special", "operator": "Exists", "effect": "NoSchedule"}
_NODES: Final[Document] = {"scheduling": {"nodeSelector": {"kind": "special"}, "tolerations": [_TAINTED]}}


def _pod(**spec: Any) -> Document:
    container = {"name": "c", "image": "i"}
    shown = {"containers": [container], "automountServiceAccountToken": False, "runtimeClassName": "{id}", **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": shown}


def _add(name: str, runtime_class: Document | None, pod: Document) -> None:
    @CASES.case(name)
    async def _(side: Side) -> None:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        await side.quietly(Exchange("POST", "/api/v1/namespaces/{ns}/serviceaccounts", account))
        if runtime_class is not None:
            meta = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "{id}"}}
            await side.quietly(Exchange("POST", _CLASSES, {**meta, "handler": "h", **runtime_class}))
        await side.post(_PODS, pod)


_add("a class that does not exist is refused", None, _pod())
_add("a class without overhead", {}, _pod())
_add("the overhead of a class is that of its pods", _FIXED, _pod())
_add("a pod may have the overhead of its class", _FIXED, _pod(overhead={"cpu": "0.01", "memory": "1Mi"}))
_add("another overhead than that of the class is refused", _FIXED, _pod(overhead={"cpu": "20m"}))
_add("overhead that the class does not have is refused", {}, _pod(overhead={"cpu": "20m"}))
_add("overhead without a class is refused", None, _pod(runtimeClassName=None, overhead={"cpu": "20m"}))
_add("a pod gets the selector and tolerations of its class", _NODES, _pod())
_add("a pod adds to the selector of its class", _NODES, _pod(nodeSelector={"zone": "a", "kind": "special"}))
_add("a selector that contradicts the class is refused", _NODES, _pod(nodeSelector={"kind": "plain"}))
_add(
    "tolerations of pod and class are joined",
    _NODES,
    _pod(tolerations=[{"key": "own", "operator": "Exists"}, _TAINTED]),
)


@pytest.mark.parametrize("case", CASES.params())
async def test_a_runtime_class_is_applied_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """What a pod gets of its class, and what is refused."""
    await judge(case)
