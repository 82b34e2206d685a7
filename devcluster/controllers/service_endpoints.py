# SPDX-License-Identifier: Apache-2.0
"""Computes the EndpointSlices and Endpoints of a Service from the pods that it selects. Pure.

Not implemented: zones, topology hints, IPv6, and the annotation with the time of the triggering change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Final

from devcluster.controllers import pod_facts
from devcluster.resources import MANAGED_BY_LABEL, SERVICE_NAME_LABEL
from multikueue.api.objects import JsonObject

SLICE_MANAGER: Final = "endpointslice-controller.k8s.io"
_HEADLESS: Final = "service.kubernetes.io/headless"
_ENDPOINTS_MANAGED_BY: Final = "endpoints.kubernetes.io/managed-by"
_ENDPOINTS_MANAGER: Final = "endpoint-controller"
_MOST_IN_A_SLICE: Final = 100
_MOST_IN_ENDPOINTS: Final = 1000
_NAME_SPACE: Final = 57

Ports = tuple[tuple[str, int, str], ...]
"""Name, number and protocol of each port."""


def selects(service: JsonObject, labels: Mapping[str, str]) -> bool:
    """Whether the Service has a selector that matches these labels."""
    spec = service["spec"]
    selector: Mapping[str, str] | None = spec.get("selector")
    if selector is None or spec.get("type") == "ExternalName":
        return False
    return all(labels.get(key) == value for key, value in selector.items())


def slices_of(service: JsonObject, pods: Iterable[JsonObject]) -> list[JsonObject]:
    """The desired slices, without names; one empty slice if there are no pods."""
    by_ports: dict[Ports, list[JsonObject]] = {}
    for pod in _addressed(pods, terminating=True):
        by_ports.setdefault(_ports(service, pod), []).append(_endpoint(service, pod))
    found = [
        _slice(service, ports, endpoints[start : start + _MOST_IN_A_SLICE])
        for ports, endpoints in sorted(by_ports.items())
        for start in range(0, len(endpoints), _MOST_IN_A_SLICE)
    ]
    return found or [_slice(service, (), [])]


def endpoints_of(service: JsonObject, pods: Iterable[JsonObject]) -> JsonObject:
    """The desired Endpoints."""
    publish_unready = bool(service["spec"].get("publishNotReadyAddresses"))
    by_ports: dict[Ports, list[JsonObject]] = {}
    for pod in list(_addressed(pods, terminating=publish_unready))[:_MOST_IN_ENDPOINTS]:
        by_ports.setdefault(_ports(service, pod), []).append(pod)
    subsets = []
    for ports, members in sorted(by_ports.items()):
        ready = [_address(pod) for pod in members if publish_unready or pod_facts.ready(pod)]
        unready = [_address(pod) for pod in members if not publish_unready and not pod_facts.ready(pod)]
        subset = {
            "addresses": ready,
            "notReadyAddresses": unready,
            "ports": [{**_named(name), "port": number, "protocol": protocol} for name, number, protocol in ports],
        }
        subsets.append({key: value for key, value in subset.items() if value})
    metadata = service["metadata"]
    labels = {**(metadata.get("labels") or {}), **_headless(service), _ENDPOINTS_MANAGED_BY: _ENDPOINTS_MANAGER}
    made: JsonObject = {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], "labels": labels},
    }
    return {**made, "subsets": subsets} if subsets else made


def _addressed(pods: Iterable[JsonObject], *, terminating: bool) -> Sequence[JsonObject]:
    """The pods with an IPv4 address, in address order."""
    found = [
        pod for pod in pods if not pod_facts.ended(pod) and _shown(pod) and (terminating or not pod_facts.deleting(pod))
    ]
    return sorted(found, key=lambda pod: int(ip_address(_shown(pod))))


def _shown(pod: JsonObject) -> str:
    text = (pod.get("status") or {}).get("podIP") or ""
    try:
        return text if ip_address(text).version == 4 else ""
    except ValueError:
        return ""


def _ports(service: JsonObject, pod: JsonObject) -> Ports:
    """The Service ports that the pod serves."""
    found = []
    for port in service["spec"].get("ports") or ():
        number = _target(port, pod)
        if number is not None:
            found.append((port.get("name", ""), number, port.get("protocol", "TCP")))
    return tuple(found)


def _target(port: JsonObject, pod: JsonObject) -> int | None:
    target = port.get("targetPort")
    if isinstance(target, int):
        return target or int(port["port"])
    for container in pod["spec"]["containers"]:
        for own in container.get("ports") or ():
            if own.get("name") == target and own.get("protocol", "TCP") == port.get("protocol", "TCP"):
                return int(own["containerPort"])
    return None


def _endpoint(service: JsonObject, pod: JsonObject) -> JsonObject:
    serving, terminating = pod_facts.ready(pod), pod_facts.deleting(pod)
    ready = bool(service["spec"].get("publishNotReadyAddresses")) or (serving and not terminating)
    found: JsonObject = {
        "addresses": [_shown(pod)],
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "targetRef": _reference(pod),
    }
    hostname = pod["spec"].get("hostname")
    if hostname and pod["spec"].get("subdomain") == service["metadata"]["name"]:
        found["hostname"] = hostname
    return {**found, **_node(pod)}


def _address(pod: JsonObject) -> JsonObject:
    return {"ip": _shown(pod), **_node(pod), "targetRef": _reference(pod)}


def _node(pod: JsonObject) -> JsonObject:
    name = pod["spec"].get("nodeName")
    return {"nodeName": name} if name else {}


def _reference(pod: JsonObject) -> JsonObject:
    metadata = pod["metadata"]
    return {
        "kind": "Pod",
        "namespace": metadata["namespace"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }


def _slice(service: JsonObject, ports: Ports, endpoints: list[JsonObject]) -> JsonObject:
    metadata = service["metadata"]
    labels = {
        **(metadata.get("labels") or {}),
        **_headless(service),
        SERVICE_NAME_LABEL: metadata["name"],
        MANAGED_BY_LABEL: SLICE_MANAGER,
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": f"{metadata['name'][:_NAME_SPACE]}-",
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "Service",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": [{"name": name, "port": number, "protocol": protocol} for name, number, protocol in ports],
    }


def _headless(service: JsonObject) -> dict[str, str]:
    return {_HEADLESS: ""} if service["spec"].get("clusterIP") in (None, "", "None") else {}


def _named(name: str) -> JsonObject:
    return {"name": name} if name else {}
