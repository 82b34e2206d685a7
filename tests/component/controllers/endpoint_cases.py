# SPDX-License-Identifier: Apache-2.0
"""What a cluster does with Services: EndpointSlices and Endpoints of the pods that they select."""

from __future__ import annotations

from typing import Any, Final

from devcluster.resources import ENDPOINT_SLICES, ENDPOINTS
from multikueue.api.objects import JsonObject
from multikueue.api.resource import PODS, SERVICES, Resource
from tests.component.controllers.cluster_cases import Case, Place, case

ENDPOINT_CASES: Final[list[Case]] = []
_LISTS: Final = ("endpoints", "ports", "subsets")
_PORTS: Final = [{"name": "http", "port": 80, "targetPort": "web"}, {"name": "raw", "port": 81, "targetPort": 9000}]


async def _pod(place: Place, name: str, **annotations: str) -> None:
    told = {f"multikueue.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
    metadata = {"name": name, "labels": {"app": "a"}, "annotations": {"multikueue.io/run-for": "forever", **told}}
    container = {"name": "main", "image": "x", "ports": [{"name": "web", "containerPort": 8080}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    await place.client.create(PODS, body, namespace=place.namespace)


async def _service(place: Place, **spec: Any) -> None:
    metadata = {"name": "svc", "labels": {"of": "us"}}
    made = {"selector": {"app": "a"}, "ports": _PORTS, **spec}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": made}
    await place.client.create(SERVICES, body, namespace=place.namespace)


async def _listed(place: Place, resource: Resource) -> list[JsonObject]:
    items = (await place.client.request("GET", resource.path(place.namespace))).json()["items"]
    return [item for item in items if item["metadata"]["name"].startswith("svc")]


async def _seen(place: Place, *, addresses: int, ready: int = 0) -> Any:
    """Slices and Endpoints, which two controllers write, once both show so many addresses and how many are ready."""
    found: list[Any] = []

    async def told() -> bool:
        slices, endpoints = await _listed(place, ENDPOINT_SLICES), await _listed(place, ENDPOINTS)
        found[:] = [[_plain(one) for one in slices], [_plain(one) for one in endpoints]]
        in_slices = [entry for one in slices for entry in one.get("endpoints") or ()]
        subsets = [subset for one in endpoints for subset in one.get("subsets") or ()]
        served = sum(len(subset.get("addresses") or ()) for subset in subsets)
        waiting = sum(len(subset.get("notReadyAddresses") or ()) for subset in subsets)
        of_slices = len(in_slices), sum(entry["conditions"]["ready"] for entry in in_slices)
        shown = {of_slices, (served + waiting, served)}
        return bool(slices) and bool(endpoints) and shown == {(addresses, ready)}

    await place.until(told, f"with {addresses} addresses, {ready} of them ready")
    return found


def _plain(value: Any) -> Any:
    """Without what no two runs share; addresses and pods in the order of pods' names."""
    if isinstance(value, dict):
        if "metadata" in value:
            kept = {"labels": value["metadata"].get("labels")}
            # A real server writes null for a list that is empty.
            rest = {key: _plain(entry) for key, entry in value.items() if key in _LISTS and entry}
            owners = [one["kind"] for one in value["metadata"].get("ownerReferences") or ()]
            return {**kept, "owners": owners, **rest}
        shared = {key: entry for key, entry in value.items() if key not in ("uid", "namespace", "nodeName")}
        return {key: "address" if key == "ip" else _plain(entry) for key, entry in shared.items()}
    if isinstance(value, list):
        if value and isinstance(value[0], dict) and "targetRef" in value[0]:
            value = sorted(value, key=lambda one: str(one["targetRef"]["name"]))
        if value and all(isinstance(entry, str) and entry.startswith("10.") for entry in value):
            return ["address"] * len(value)
        ports = value and all(isinstance(entry, dict) and "port" in entry for entry in value)
        return [_plain(entry) for entry in (sorted(value, key=lambda one: int(one["port"])) if ports else value)]
    return value


@case("a Service has the pods that it selects, ready or not", ENDPOINT_CASES)
async def _(place: Place) -> Any:
    await _service(place)
    await _pod(place, "one")
    await _pod(place, "two", never_ready="true")
    return await _seen(place, addresses=2, ready=1)


@case("a Service that selects nothing has an empty slice", ENDPOINT_CASES)
async def _(place: Place) -> Any:
    await _service(place, selector={"app": "nobody"})
    return await _seen(place, addresses=0)


@case("a headless Service without ports has its pods, also those that are not ready", ENDPOINT_CASES)
async def _(place: Place) -> Any:
    await _service(place, clusterIP="None", ports=[], publishNotReadyAddresses=True)
    await _pod(place, "one", never_ready="true")
    return await _seen(place, addresses=1, ready=1)


@case("a pod that has ended is no endpoint", ENDPOINT_CASES)
async def _(place: Place) -> Any:
    await _service(place)
    await _pod(place, "one")
    await _seen(place, addresses=1, ready=1)
    await place.client.delete(PODS, "one", namespace=place.namespace)
    return await _seen(place, addresses=0)


@case("what a Service had goes with it", ENDPOINT_CASES)
async def _(place: Place) -> Any:
    await _service(place)
    await _seen(place, addresses=0)
    await place.client.delete(SERVICES, "svc", namespace=place.namespace)

    async def gone() -> bool:
        return not await _listed(place, ENDPOINT_SLICES) and not await _listed(place, ENDPOINTS)

    await place.until(gone, "without endpoints")
