# SPDX-License-Identifier: Apache-2.0
"""What the API says of Deployments, ReplicaSets, StatefulSets and DaemonSets: defaults, refusals, scale, generations.

No controllers run on the embedded side; objects have no replicas, so that those of the real one change little.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("apps")
Document = dict[str, Any]

_LABELS: Final = {"app": "web"}
_PLURALS: Final = {"Deployment": "deployments", "ReplicaSet": "replicasets", "StatefulSet": "statefulsets"}


def _place(kind: str) -> str:
    return f"/apis/apps/v1/namespaces/{{ns}}/{_PLURALS[kind]}"


def _template(**pod: Any) -> Document:
    return {"metadata": {"labels": _LABELS}, "spec": {"containers": [{"name": "c", "image": "i"}], **pod}}


def _app(kind: str, **spec: Any) -> Document:
    made = {"replicas": 0, "selector": {"matchLabels": _LABELS}, "template": _template(), **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web"}, "spec": made}


def _rolling(**limits: Any) -> Document:
    return {"type": "RollingUpdate", "rollingUpdate": limits}


_REFUSED: Final[dict[str, Document]] = {
    "a Deployment of pods that end": _app("Deployment", template=_template(restartPolicy="Never")),
    "a ReplicaSet of pods that end": _app("ReplicaSet", template=_template(restartPolicy="OnFailure")),
    "a StatefulSet of pods that end": _app("StatefulSet", template=_template(restartPolicy="Never")),
    "a Deployment with a deadline for its pods": _app("Deployment", template=_template(activeDeadlineSeconds=5)),
    "a Deployment that selects other pods": _app("Deployment", selector={"matchLabels": {"app": "other"}}),
    "a ReplicaSet that selects other pods": _app("ReplicaSet", selector={"matchLabels": {"app": "other"}}),
    "a StatefulSet that selects all pods": _app("StatefulSet", selector={}),
    "a Deployment that selects all pods": _app("Deployment", selector={}),
    "a ReplicaSet that selects all pods": _app("ReplicaSet", selector={}),
    "a Deployment of fewer than no pods": _app("Deployment", replicas=-1, minReadySeconds=-1, revisionHistoryLimit=-1),
    "a StatefulSet of fewer than no pods": _app(
        "StatefulSet", replicas=-1, minReadySeconds=-1, revisionHistoryLimit=-1
    ),
    "a ReplicaSet of fewer than no pods": _app("ReplicaSet", replicas=-1, minReadySeconds=-1),
    "a Deployment of a strange strategy": _app("Deployment", strategy={"type": "Whim"}),
    "a Deployment that recreates and rolls": _app(
        "Deployment", strategy={"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}
    ),
    "a Deployment that cannot move": _app("Deployment", strategy=_rolling(maxSurge=0, maxUnavailable=0)),
    "a Deployment of strange limits": _app("Deployment", strategy=_rolling(maxSurge="x", maxUnavailable=-1)),
    "a Deployment of more than all pods unavailable": _app("Deployment", strategy=_rolling(maxUnavailable="101%")),
    "a Deployment whose deadline is too early": _app("Deployment", progressDeadlineSeconds=5, minReadySeconds=5),
    "a StatefulSet of a strange policy": _app("StatefulSet", podManagementPolicy="Whim"),
    "a StatefulSet of a strange strategy": _app("StatefulSet", updateStrategy={"type": "Whim"}),
    "a StatefulSet with OnDelete and a partition": _app(
        "StatefulSet", updateStrategy={"type": "OnDelete", "rollingUpdate": {"partition": 1}}
    ),
    "a StatefulSet of a negative partition": _app("StatefulSet", updateStrategy=_rolling(partition=-1)),
    "a StatefulSet that starts below zero": _app("StatefulSet", ordinals={"start": -1}),
    "a StatefulSet of a strange retention": _app(
        "StatefulSet", persistentVolumeClaimRetentionPolicy={"whenDeleted": "Whim", "whenScaled": "Retain"}
    ),
}
for _title, _body in _REFUSED.items():

    async def _create(side: Side, body: Document = _body) -> None:
        await side.post(_place(body["kind"]), body)

    CASES.add(f"{_title} is refused", _create)


@CASES.case("defaults of a Deployment, a ReplicaSet and a StatefulSet")
async def _(side: Side) -> None:
    for kind in _PLURALS:
        made = _app(kind)
        made["metadata"]["name"] = kind.lower()
        await side.post(f"{_place(kind)}?dryRun=All", made)


@CASES.case("a StatefulSet drops the limit of unavailable pods")
async def _(side: Side) -> None:
    made = _app("StatefulSet", updateStrategy=_rolling(maxUnavailable=2))
    await side.post(f"{_place('StatefulSet')}?dryRun=All", made)


_CHANGES: Final[dict[str, tuple[str, Document]]] = {
    "the selector of a Deployment": ("Deployment", {"selector": {"matchLabels": {"more": "x"}}}),
    "the service of a StatefulSet": ("StatefulSet", {"serviceName": "other"}),
    "the policy of a StatefulSet": ("StatefulSet", {"podManagementPolicy": "Parallel"}),
    "the ordinals of a StatefulSet": ("StatefulSet", {"ordinals": {"start": 1}}),
    "the history limit of a StatefulSet": ("StatefulSet", {"revisionHistoryLimit": 1}),
}
for _title, (_kind, _spec) in _CHANGES.items():

    async def _change(side: Side, kind: str = _kind, spec: Document = _spec) -> None:
        await side.quietly(_exchange("POST", _place(kind), _app(kind)))
        exchange = _exchange("PATCH", f"{_place(kind)}/web", {"spec": spec}, media="application/merge-patch+json")
        body = (await side.server.send(side.filled(exchange))).body
        side.note("changed", [body.get("code", 200), body.get("reason"), body.get("message")])

    CASES.add(f"{_title} changes", _change)


def _exchange(method: str, path: str, body: Document, *, media: str = "application/json") -> Exchange:
    return Exchange(method, path, body, media)


@CASES.case("the size of each kind through its subresource")
async def _(side: Side) -> None:
    for kind in _PLURALS:
        made = _app(kind)
        made["metadata"]["name"] = kind.lower()
        await side.quietly(_exchange("POST", _place(kind), made))
        where = f"{_place(kind)}/{kind.lower()}/scale"
        found = (await side.server.send(side.filled(_exchange("GET", where, {})))).body
        found["metadata"].pop("resourceVersion")
        side.note(f"scale of {kind}", found)


_DAEMON_SETS: Final = "/apis/apps/v1/namespaces/{ns}/daemonsets"
_TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"


def _daemon_set(*, annotations: Document | None = None, **spec: Any) -> Document:
    made = {"selector": {"matchLabels": _LABELS}, "template": _template(nodeSelector={"no": "where"}), **spec}
    metadata = {"name": "web", **({"annotations": annotations} if annotations is not None else {})}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": made}


_DAEMON_SETS_WRITTEN: Final[dict[str, Document]] = {
    "without a strategy": _daemon_set(),
    "with OnDelete and a limit": _daemon_set(updateStrategy={"type": "OnDelete", "rollingUpdate": {"maxSurge": 2}}),
    "that surges": _daemon_set(updateStrategy=_rolling(maxSurge="10%", maxUnavailable=0)),
    "of a strange strategy": _daemon_set(updateStrategy={"type": "Whim"}),
    "that cannot move": _daemon_set(updateStrategy=_rolling(maxSurge="0%", maxUnavailable=0)),
    "that surges and has unavailable pods": _daemon_set(updateStrategy=_rolling(maxSurge=1)),
    "of strange limits": _daemon_set(updateStrategy=_rolling(maxSurge=-1, maxUnavailable="x")),
    "of more than all pods unavailable": _daemon_set(updateStrategy=_rolling(maxUnavailable="101%")),
    "of less than no seconds": _daemon_set(minReadySeconds=-1, revisionHistoryLimit=-1),
    "that selects all pods": _daemon_set(selector={}),
    "with a generation of its template": _daemon_set(annotations={_TEMPLATE_GENERATION: "5"}),
    "with a generation below one": _daemon_set(annotations={_TEMPLATE_GENERATION: "-3"}),
    "with a generation that is no number": _daemon_set(annotations={_TEMPLATE_GENERATION: "x"}),
}
for _title, _body in _DAEMON_SETS_WRITTEN.items():

    async def _write(side: Side, body: Document = _body) -> None:
        await side.post(f"{_DAEMON_SETS}?dryRun=All", body)

    CASES.add(f"a DaemonSet {_title}", _write)


@CASES.case("the template of a DaemonSet has a generation that only the server changes")
async def _(side: Side) -> None:
    await side.quietly(_exchange("POST", _DAEMON_SETS, _daemon_set()))
    changes: dict[str, Document] = {
        "template": {"spec": {"template": {"metadata": {"annotations": {"a": "1"}}}}},
        "spec": {"spec": {"minReadySeconds": 1}},
        "set": {"metadata": {"annotations": {_TEMPLATE_GENERATION: "9"}}},
        "removed": {"metadata": {"annotations": {_TEMPLATE_GENERATION: None}}},
        "selector": {"spec": {"selector": {"matchLabels": {"more": "x"}}}},
    }
    for title, change in changes.items():
        exchange = _exchange("PATCH", f"{_DAEMON_SETS}/web", change, media="application/merge-patch+json")
        body = (await side.server.send(side.filled(exchange))).body
        metadata = body.get("metadata", {})
        side.note(title, [body.get("message"), metadata.get("annotations"), metadata.get("generation")])


@pytest.mark.parametrize("case", CASES.params())
async def test_the_api_of_apps_is_that_of_a_real_server(judge: Judge, case: Case) -> None:
    """Bodies and refusals."""
    await judge(case)
