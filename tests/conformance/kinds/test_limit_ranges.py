# SPDX-License-Identifier: Apache-2.0
"""What a LimitRange sets in pods and claims, and what it refuses."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("limit ranges")
Document = dict[str, Any]

_RANGES: Final = "/api/v1/namespaces/{ns}/limitranges"
_PODS: Final = "/api/v1/namespaces/{ns}/pods"
_CLAIMS: Final = "/api/v1/namespaces/{ns}/persistentvolumeclaims"
_DEFAULTS: Final[Document] = {
    "type": "Container",
    "default": {"cpu": "500m", "memory": "500Mi"},
    "defaultRequest": {"cpu": "100m", "memory": "200Mi"},
}


def _container(requests: Document | None = None, limits: Document | None = None, name: str = "c") -> Document:
    groups = {"requests": requests, "limits": limits}
    return {"name": name, "image": "i", "resources": {key: value for key, value in groups.items() if value}}


def _pod(*containers: Document, **spec: Any) -> Document:
    body = {"containers": [*containers], "automountServiceAccountToken": False, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": body}


def _claim(storage: str) -> Document:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "d"}, "spec": spec}


def _add(name: str, limits: list[Document], body: Document, patch: Document | None = None, suffix: str = "") -> None:
    @CASES.case(name)
    async def _(side: Side) -> None:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        await side.quietly(Exchange("POST", "/api/v1/namespaces/{ns}/serviceaccounts", account))
        ranges = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": limits}}
        if patch is None:
            await side.quietly(Exchange("POST", _RANGES, ranges))
        place = _PODS if body["kind"] == "Pod" else _CLAIMS
        await side.post(place, body)
        if patch is not None:
            await side.quietly(Exchange("POST", _RANGES, ranges))
            path = f"{place}/{body['metadata']['name']}{suffix}"
            found = await side.server.send(
                Exchange("PATCH", side.own(path), patch, content_type="application/strategic-merge-patch+json")
            )
            side.note("changed", [found.status, found.body.get("message"), found.body.get("reason")])


_BIG: Final[Document] = _container(None, {"cpu": "2"}, "first")
_SMALL: Final[Document] = {"cpu": "50m"}
_MIN: Final[Document] = {"type": "Container", "min": {"cpu": "100m"}}
_MAX: Final[Document] = {"type": "Container", "max": {"cpu": "1"}}
_RATIO: Final[Document] = {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}}
_OF_POD: Final[Document] = {"type": "Pod", "min": {"memory": "100Mi"}, "max": {"cpu": "1"}}
_STORAGE: Final[Document] = {
    "type": "PersistentVolumeClaim",
    "min": {"storage": "1Gi"},
    "max": {"storage": "5Gi"},
}

_add("containers get defaults", [_DEFAULTS], _pod(_container(), _container(name="d")))
_add("init containers get defaults", [_DEFAULTS], _pod(_container(), initContainers=[_container(name="first")]))
_add("requests that are given stay", [_DEFAULTS], _pod(_container({"memory": "150Mi"}, {"cpu": "300m"})))
_add("a default request is not above a limit that is given", [_DEFAULTS], _pod(_container(None, {"memory": "100Mi"})))
_add("a request below the minimum is refused", [_MIN], _pod(_container(_SMALL)))
_add("a limit below the minimum is refused", [_MIN], _pod(_container({"cpu": "50m"}, {"cpu": "60m"})))
_add("a minimum needs a request", [{"type": "Container", "min": {"memory": "1Mi"}}], _pod(_container(_SMALL)))
_add("a minimum gives no default", [{"type": "Container", "min": {"example.com/g": "1"}}], _pod(_container()))
_add("a request at the minimum is fine", [_MIN], _pod(_container({"cpu": "0.1"})))
_add("a limit above the maximum is refused", [_MAX], _pod(_container(None, {"cpu": "2"})))
_add("a maximum is the default limit", [_MAX], _pod(_container()))
_add("a request above the maximum is refused", [_MAX], _pod(_container({"cpu": "2"}, {"cpu": "3"})))
_add(
    "an init container above the maximum is refused",
    [_MAX],
    _pod(_container(), initContainers=[_container(None, {"cpu": "2"}, "f")]),
)
_add("a ratio above the greatest is refused", [_RATIO], _pod(_container({"cpu": "100m"}, {"cpu": "300m"})))
_add("a ratio at the greatest is fine", [_RATIO], _pod(_container({"cpu": "100m"}, {"cpu": "200m"})))
_add("a ratio needs a request", [_RATIO], _pod(_container()))
_add("a ratio needs a limit", [_RATIO], _pod(_container({"cpu": "100m"})))
_add(
    "a pod below the minimum is refused", [_OF_POD], _pod(_container({"memory": "60Mi"}, {"cpu": "1", "memory": "1Gi"}))
)
_add(
    "the containers of a pod count together",
    [_OF_POD],
    _pod(
        _container({"memory": "60Mi"}, {"cpu": "500m", "memory": "1Gi"}),
        _container({"memory": "60Mi"}, {"cpu": "500m", "memory": "1Gi"}, "d"),
    ),
)
_add(
    "a pod above the maximum is refused",
    [_OF_POD],
    _pod(
        _container({"memory": "60Mi"}, {"cpu": "700m", "memory": "1Gi"}),
        _container({"memory": "60Mi"}, {"cpu": "700m", "memory": "1Gi"}, "d"),
    ),
)
_add(
    "an init container may need more than the others",
    [_OF_POD],
    _pod(
        _container({"memory": "200Mi"}, {"cpu": "700m", "memory": "1Gi"}),
        initContainers=[_container({"memory": "10Mi"}, {"cpu": "2", "memory": "1Gi"}, "first")],
    ),
)
_add("a maximum of pods needs limits", [_OF_POD], _pod(_container({"memory": "200Mi"})))
_add("two problems are listed", [{**_MIN, **_RATIO}], _pod(_container({"cpu": "50m"}, {"cpu": "500m"})))
_add("a claim below the minimum is refused", [_STORAGE], _claim("500Mi"))
_add("a claim above the maximum is refused", [_STORAGE], _claim("6Gi"))
_add("a claim within the limits is fine", [_STORAGE], _claim("2Gi"))
_add("a range of containers is not for claims", [{**_MIN, **_MAX}], _claim("2Gi"))
_add(
    "a change of other fields is not refused",
    [_MAX],
    _pod(_container({"cpu": "2"}, {"cpu": "3"})),
    {"spec": {"activeDeadlineSeconds": 60}},
)
_add(
    "a resize above the maximum is refused",
    [_MAX],
    _pod(_container({"cpu": "500m"}, {"cpu": "500m"})),
    {"spec": {"containers": [_container({"cpu": "2"}, {"cpu": "2"})]}},
    "/resize",
)


@pytest.mark.parametrize("case", CASES.params())
async def test_a_limit_range_is_applied_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """What is set and what is refused."""
    await judge(case)
