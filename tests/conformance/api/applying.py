# SPDX-License-Identifier: Apache-2.0
"""Cases of server-side apply, made from a seed.

Owns drawing what two or three managers do to one object: they apply, with and without force, what overlaps and what
does not, leave out what they applied before, and others update, patch and write the status in between. A seed always
makes the same case.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tests.conformance.api.widgets import GROUP, WIDGETS
from tests.conformance.harness import Exchange, Play, Side

Fields: TypeAlias = dict[str, Any]
MANAGERS: Final = ("alpha", "beta", "gamma")
_STEPS: Final = (4, 7)
_LATE: Final = 0.6


@dataclass(frozen=True, slots=True)
class Subject:
    """A kind to apply, and how to draw what is applied."""

    path: str
    head: Fields
    draw: Callable[[random.Random], Fields]
    status: Callable[[random.Random], Fields] | None = None
    needs_version: bool = False
    puts: bool = True
    """Whether it can be replaced by what is drawn."""


def _some(rng: random.Random, values: list[Any], most: int) -> list[Any]:
    return rng.sample(values, rng.randint(0, min(most, len(values))))


def _metadata(rng: random.Random) -> Fields:
    found: Fields = {}
    if rng.random() < 0.4:
        found["labels"] = {key: rng.choice("xy") for key in _some(rng, ["l1", "l2", "l3"], 2)}
    if rng.random() < 0.3:
        found["annotations"] = {key: rng.choice("xy") for key in _some(rng, ["a1", "a2"], 2)}
    if rng.random() < 0.15:
        found["finalizers"] = _some(rng, ["conformance.test/one", "conformance.test/two"], 2)
    if rng.random() < 0.15:
        owners = [{"apiVersion": "v1", "kind": "ConfigMap", "name": n, "uid": f"u-{n}"} for n in ("o1", "o2")]
        found["ownerReferences"] = _some(rng, owners, 2)
    return found


def _widget_part(rng: random.Random) -> Fields:
    part: Fields = {"name": rng.choice(["p1", "p2", "p3"])}
    if rng.random() < 0.6:
        part["value"] = rng.choice(["v1", "v2"])
    if rng.random() < 0.3:
        part["count"] = rng.randint(1, 3)
    if rng.random() < 0.3:
        part["tags"] = _some(rng, ["t1", "t2", "t3"], 3)
    if rng.random() < 0.3:
        part["limits"] = {key: rng.choice("12") for key in _some(rng, ["cpu", "memory"], 2)}
    return part


def _unique(items: list[Fields], *keys: str) -> list[Fields]:
    seen: dict[tuple[Any, ...], Fields] = {}
    for item in items:
        seen.setdefault(tuple(item.get(key) for key in keys), item)
    return list(seen.values())


def _port(rng: random.Random) -> Fields:
    port: Fields = {"port": rng.choice([80, 443])}
    if rng.random() < 0.6:
        port["protocol"] = rng.choice(["TCP", "UDP"])
    if rng.random() < 0.5:
        port["label"] = rng.choice(["x", "y"])
    return port


_WIDGET_FIELDS: Final[dict[str, Callable[[random.Random], Any]]] = {
    "size": lambda rng: rng.randint(1, 3),
    "color": lambda rng: rng.choice(["red", "green"]),
    "level": lambda rng: rng.choice([3, 4]),
    "nothing": lambda rng: rng.choice([None, "x"]),
    "plain": lambda rng: _some(rng, ["a", "b", "c"], 3),
    "set": lambda rng: _some(rng, ["s1", "s2", "s3"], 3),
    "numbers": lambda rng: _some(rng, [1, 2, 3], 3),
    "parts": lambda rng: _unique([_widget_part(rng) for _ in range(rng.randint(0, 3))], "name"),
    "ports": lambda rng: _unique(
        [{"protocol": "TCP", **_port(rng)} for _ in range(rng.randint(0, 2))], "port", "protocol"
    ),
    "atomicList": lambda rng: _some(rng, ["a", "b"], 2),
    "atomicItems": lambda rng: [{"a": rng.choice("xy")} for _ in range(rng.randint(0, 2))],
    "labels": lambda rng: {key: rng.choice("xy") for key in _some(rng, ["k1", "k2", "k3"], 3)},
    "atomicMap": lambda rng: {key: rng.choice("xy") for key in _some(rng, ["k1", "k2"], 2)},
    "deep": lambda rng: {
        key: ({"x": 1, "y": rng.randint(1, 2)} if key == "inner" else rng.choice("xy"))
        for key in _some(rng, ["a", "b", "inner"], 3)
    },
    "atomicStruct": lambda rng: {key: rng.randint(1, 2) for key in _some(rng, ["x", "y"], 2)},
    "free": lambda rng: {key: rng.choice([1, [1, 2], {"z": 1}, "s"]) for key in _some(rng, ["f1", "f2"], 2)},
}


def _widget(rng: random.Random) -> Fields:
    names = rng.sample(sorted(_WIDGET_FIELDS), rng.randint(1, 6))
    return {"metadata": _metadata(rng), "spec": {name: _WIDGET_FIELDS[name](rng) for name in names}}


def _widget_status(rng: random.Random) -> Fields:
    status: Fields = {}
    if rng.random() < 0.6:
        status["phase"] = rng.choice(["a", "b"])
    if rng.random() < 0.4:
        status["replicas"] = rng.randint(0, 2)
    kinds = _some(rng, ["Ready", "Done"], 2)
    if kinds:
        status["conditions"] = [{"type": kind, "status": rng.choice(["True", "False"])} for kind in kinds]
    return status


def _config_map(rng: random.Random) -> Fields:
    found: Fields = {"metadata": _metadata(rng)}
    if rng.random() < 0.9:
        found["data"] = {key: rng.choice("xyz") for key in _some(rng, ["d1", "d2", "d3"], 3)}
    if rng.random() < 0.3:
        found["binaryData"] = {"b1": rng.choice(["AAAA", "BBBB"])}
    return found


def _container(rng: random.Random, name: str) -> Fields:
    found: Fields = {"name": name, "image": rng.choice(["i:1", "i:2"])}
    if rng.random() < 0.5:
        names = _some(rng, ["E1", "E2", "E3"], 3)
        found["env"] = [{"name": entry, "value": rng.choice("xy")} for entry in names]
    if rng.random() < 0.3:
        first = 80 if name == "c1" else 8080  # a port that two containers have is warned of
        found["ports"] = [{"containerPort": port, "protocol": "TCP"} for port in _some(rng, [first, first + 1], 2)]
    if rng.random() < 0.3:
        found["resources"] = {"requests": {"cpu": rng.choice(["1", "1000m", "500m"])}}
    if rng.random() < 0.3:
        found["command"] = _some(rng, ["a", "b"], 2)
    return found


def _deployment(rng: random.Random) -> Fields:
    spec: Fields = {
        "selector": {"matchLabels": {"app": "d"}},
        "template": {
            "metadata": {"labels": {"app": "d"}},
            "spec": {"containers": [_container(rng, name) for name in rng.sample(["c1", "c2"], rng.randint(1, 2))]},
        },
    }
    if rng.random() < 0.6:
        spec["replicas"] = rng.randint(0, 2)
    pod = spec["template"]["spec"]
    if rng.random() < 0.3:
        pod["tolerations"] = [{"key": "k", "operator": "Exists"}]
    if rng.random() < 0.3:
        pod["nodeSelector"] = {"n": rng.choice("xy")}
    return {"metadata": _metadata(rng), "spec": spec}


def _role(rng: random.Random) -> Fields:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": _some(rng, ["get", "list"], 2) or ["watch"]}]
    return {"metadata": _metadata(rng), "rules": rules * rng.randint(1, 2)}


def _service(rng: random.Random) -> Fields:
    ports = [
        {
            "name": f"{protocol}{port}".lower(),
            "port": port,
            **({"protocol": protocol} if protocol == "UDP" or rng.random() < 0.7 else {}),
        }
        for port, protocol in rng.sample([(80, "TCP"), (80, "UDP"), (443, "TCP")], rng.randint(1, 2))
    ]
    unique = _unique([{"protocol": "TCP", **port} for port in ports], "port", "protocol")
    spec: Fields = {"clusterIP": "None", "selector": {"app": rng.choice("xy")}, "ports": unique}
    if rng.random() < 0.3:
        spec["publishNotReadyAddresses"] = rng.choice([True, False])
    return {"metadata": _metadata(rng), "spec": spec}


def _job(rng: random.Random) -> Fields:
    spec: Fields = {
        "suspend": True,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}},
    }
    spec["template"]["metadata"] = {"labels": {"app": "x"}}
    for name, values in (
        ("parallelism", [1, 2]),
        ("backoffLimit", [0, 6]),
        ("activeDeadlineSeconds", [10, 20]),
        ("ttlSecondsAfterFinished", [0, 5]),
        ("suspend", [True, False]),
    ):
        if rng.random() < 0.4:
            spec[name] = rng.choice(values)
    return {"metadata": _metadata(rng), "spec": spec}


def _job_status(rng: random.Random) -> Fields:
    status: Fields = {}
    for name in ("active", "terminating"):
        if rng.random() < 0.4:
            status[name] = rng.randint(0, 2)
    if rng.random() < 0.4:
        status["uncountedTerminatedPods"] = {"succeeded": _some(rng, ["u1", "u2"], 2)}
    return status


def _account(rng: random.Random) -> Fields:
    found: Fields = {"metadata": _metadata(rng)}
    if rng.random() < 0.6:
        found["secrets"] = [{"name": name} for name in _some(rng, ["s1", "s2", "s3"], 3)]
    if rng.random() < 0.6:
        found["imagePullSecrets"] = [{"name": name} for name in _some(rng, ["i1", "i2"], 2)]
    if rng.random() < 0.3:
        found["automountServiceAccountToken"] = rng.choice([True, False])
    return found


def _secret(rng: random.Random) -> Fields:
    found: Fields = {"metadata": _metadata(rng), "type": "Opaque"}
    if rng.random() < 0.7:
        found["data"] = {key: rng.choice(["AAAA", "BBBB"]) for key in _some(rng, ["k1", "k2"], 2)}
    if rng.random() < 0.5:
        found["stringData"] = {key: rng.choice("xy") for key in _some(rng, ["k2", "k3"], 2)}
    return found


def _quota(rng: random.Random) -> Fields:
    hard = {key: rng.choice(["1", "1000m", "2Gi", "2048Mi"]) for key in _some(rng, ["pods", "cpu", "memory"], 3)}
    return {"metadata": _metadata(rng), "spec": {"hard": hard}}


def _lease(rng: random.Random) -> Fields:
    spec: Fields = {}
    if rng.random() < 0.7:
        spec["holderIdentity"] = rng.choice(["x", "y", ""])
    if rng.random() < 0.5:
        spec["leaseDurationSeconds"] = rng.choice([5, 10])
    if rng.random() < 0.5:
        spec["renewTime"] = rng.choice(["2026-01-01T00:00:00.000000Z", "2026-01-01T00:00:01.500000Z"])
    return {"metadata": _metadata(rng), "spec": spec}


def _namespaced(group_version: str, plural: str, kind: str) -> tuple[str, Fields]:
    """The path of a kind's object, and its type."""
    root = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
    return f"{root}/namespaces/{{ns}}/{plural}/o", {"apiVersion": group_version, "kind": kind}


SUBJECTS: Final = {
    "service": Subject(*_namespaced("v1", "services", "Service"), _service),
    "job": Subject(*_namespaced("batch/v1", "jobs", "Job"), _job, _job_status, puts=False),
    "service account": Subject(*_namespaced("v1", "serviceaccounts", "ServiceAccount"), _account),
    "secret": Subject(*_namespaced("v1", "secrets", "Secret"), _secret),
    "resource quota": Subject(*_namespaced("v1", "resourcequotas", "ResourceQuota"), _quota),
    "lease": Subject(*_namespaced("coordination.k8s.io/v1", "leases", "Lease"), _lease, needs_version=True),
    "widget": Subject(
        f"{WIDGETS}/o", {"apiVersion": f"{GROUP}/v1", "kind": "Widget"}, _widget, _widget_status, needs_version=True
    ),
    "config map": Subject(
        "/api/v1/namespaces/{ns}/configmaps/o", {"apiVersion": "v1", "kind": "ConfigMap"}, _config_map
    ),
    "deployment": Subject(
        "/apis/apps/v1/namespaces/{ns}/deployments/o", {"apiVersion": "apps/v1", "kind": "Deployment"}, _deployment
    ),
    "role": Subject(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles/o",
        {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"},
        _role,
    ),
}


async def _early_in_a_second() -> None:
    """Wait for the next second when this one is mostly over.

    Entries of managedFields are ordered by their second first: an apply that changes nothing is a write when it comes
    in a later second than another manager's, and the two servers are not asked at the same moment.
    """
    part = time.time() % 1
    if part > _LATE:
        await asyncio.sleep(1 - part)


def sequence(subject: Subject, seed: int) -> Play:
    """A random sequence of writes of some managers to one object."""

    async def play(side: Side) -> None:
        await _early_in_a_second()
        rng = random.Random(seed)  # both sides draw the same
        managers = MANAGERS[: rng.choice([2, 2, 3])]
        last: dict[str, Fields] = {}
        for number in range(rng.randint(*_STEPS)):
            action = (
                "apply"
                if number == 0
                else rng.choices(["apply", "merge", "put", "again", "status"], [6, 1.5, 1, 1.5, 1.5])[0]
            )
            manager = rng.choice(managers)
            force = rng.random() < 0.45
            drawn = {**subject.head, **subject.draw(rng)}
            drawn["metadata"] = {"name": "o", **drawn["metadata"]}
            if action == "again" and manager in last:
                # As a person edits a file: some of it goes, the rest is as it was.
                drawn = _less(rng, last[manager])
            if action in ("apply", "again"):
                last[manager] = drawn
                query = f"?fieldManager={manager}{'&force=true' if force else ''}"
                await side.patch("apply", subject.path + query, drawn)
            elif action == "merge":
                await side.patch("merge", f"{subject.path}?fieldManager={manager}-update", drawn)
            elif action == "put" and subject.puts:
                if subject.needs_version:
                    drawn["metadata"]["resourceVersion"] = await _version(side, subject)
                await side.put(f"{subject.path}?fieldManager={manager}-update", drawn)
            elif action == "status" and subject.status is not None:
                body = {**subject.head, "metadata": {"name": "o"}, "status": subject.status(rng)}
                path = f"{subject.path}/status?fieldManager={manager}"
                if rng.random() < 0.7:
                    await side.patch("apply", f"{path}{'&force=true' if force else ''}", body)
                else:
                    await side.patch("merge", path, body)
        await side.get(subject.path)

    return play


async def _version(side: Side, subject: Subject) -> str:
    answer = await side.server.send(Exchange("GET", side.own(subject.path)))
    return str(answer.body.get("metadata", {}).get("resourceVersion", ""))


def _less(rng: random.Random, value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _less(rng, entry) for name, entry in value.items() if name in _KEPT or rng.random() < 0.75}
    if isinstance(value, list) and len(value) > 1 and rng.random() < 0.5:
        return value[1:]
    if isinstance(value, list):
        return [_less(rng, entry) for entry in value]
    return value


_KEPT: Final = frozenset(
    {"apiVersion", "kind", "metadata", "name", "spec", "selector", "template", "containers", "matchLabels", "app"}
    | {"image", "port", "protocol", "containerPort", "uid", "labels", "key", "operator", "rules", "verbs", "apiGroups"}
    | {"resources", "type", "restartPolicy"}
)
