# SPDX-License-Identifier: Apache-2.0
"""Table rows of built-in kinds without a `KindBehaviour` of their own.

One function for each kind, with the cells in the order of columns.json. A kind in neither place is shown with name and
time of creation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, TypeAlias

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.codec.times import span
from devcluster.apiserver.kinds.batch import selector_text
from devcluster.apiserver.kinds.behaviour import age

Row: TypeAlias = Callable[[JsonObject, datetime], list[JsonValue]]
_HOSTS: Final = 3
"""The number of hosts or metrics that are listed; the rest is counted."""


def _name(value: JsonObject) -> str:
    return str(value["metadata"]["name"])


def budget(value: JsonObject, now: datetime) -> list[JsonValue]:
    """Name, Min Available, Max Unavailable, Allowed Disruptions, Age."""
    spec = documents.child(value, "spec")
    least, most = (str(spec[field]) if field in spec else "N/A" for field in ("minAvailable", "maxUnavailable"))
    allowed = documents.child(value, "status").get("disruptionsAllowed", 0)
    return [_name(value), least, most, allowed, age(value, now)]


def ingress(value: JsonObject, now: datetime) -> list[JsonValue]:
    """Name, Class, Hosts, Address, Ports, Age."""
    spec = documents.child(value, "spec")
    hosts = [rule["host"] for rule in documents.items(spec, "rules") if rule.get("host")]
    shown = ",".join(hosts[:_HOSTS]) or "*"
    if len(hosts) > _HOSTS:
        shown += f" + {len(hosts) - _HOSTS} more..."
    entries = documents.items(value, "status", "loadBalancer", "ingress")
    address = ",".join(entry.get("ip") or entry.get("hostname") or "" for entry in entries)
    ports = "80, 443" if spec.get("tls") else "80"
    return [_name(value), spec.get("ingressClassName") or "<none>", shown, address, ports, age(value, now)]


def autoscaler(value: JsonObject, now: datetime) -> list[JsonValue]:
    """Name, Reference, Targets, MinPods, MaxPods, Replicas, Age."""
    spec, status = documents.child(value, "spec"), documents.child(value, "status")
    reference = documents.child(spec, "scaleTargetRef")
    current = documents.items(status, "currentMetrics")
    targets = []
    for index, metric in enumerate(documents.items(spec, "metrics")):
        source = documents.child(metric, _source(metric))
        resource = metric.get("type") in ("Resource", "ContainerResource")
        found = documents.child(current[index], _source(current[index]), "current") if index < len(current) else {}
        text = f"{_amount(found) or '<unknown>'}/{_amount(documents.child(source, 'target'))}"
        targets.append(f"{source.get('name', '')}: {text}" if resource else text)
    shown = ", ".join(targets[:_HOSTS]) or "<none>"
    if len(targets) > _HOSTS:
        shown += f" + {len(targets) - _HOSTS} more..."
    least = spec.get("minReplicas")
    return [
        _name(value),
        f"{reference.get('kind', '')}/{reference.get('name', '')}",
        shown,
        "<unset>" if least is None else str(least),
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        age(value, now),
    ]


def _source(metric: JsonObject) -> str:
    kind = str(metric.get("type", ""))
    return kind[:1].lower() + kind[1:]


def _amount(target: JsonObject) -> str:
    if "averageUtilization" in target:
        return f"{target['averageUtilization']}%"
    if "averageValue" in target:
        return f"{target['averageValue']} (avg)"
    return str(target.get("value", ""))


def network_policy(value: JsonObject, now: datetime) -> list[JsonValue]:
    """Name, Pod-Selector, Age."""
    selector = documents.child(value, "spec", "podSelector")
    return [_name(value), selector_text(selector) if selector else "<none>", age(value, now)]


def runtime_class(value: JsonObject, now: datetime) -> list[JsonValue]:
    """Name, Handler, Age."""
    return [_name(value), value.get("handler", ""), age(value, now)]


def ingress_class(value: JsonObject, now: datetime) -> list[JsonValue]:
    """Name, Controller, Parameters, Age."""
    spec = documents.child(value, "spec")
    found = documents.child(spec, "parameters")
    kind = f"{found.get('kind', '')}.{found['apiGroup']}" if found.get("apiGroup") else found.get("kind", "")
    shown = f"{kind}/{found.get('name', '')}" if found else "<none>"
    return [_name(value), spec.get("controller", ""), shown, age(value, now)]


def storage_class(value: JsonObject, now: datetime) -> list[JsonValue]:
    """Name, Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion, Age."""
    name = _name(value)
    marks = documents.strings(value["metadata"].get("annotations"))
    if marks.get("storageclass.kubernetes.io/is-default-class") == "true":
        name += " (default)"
    return [
        name,
        value.get("provisioner", ""),
        value.get("reclaimPolicy") or "Delete",
        value.get("volumeBindingMode") or "<unset>",
        bool(value.get("allowVolumeExpansion")),
        age(value, now),
    ]


def certificate_request(value: JsonObject, now: datetime) -> list[JsonValue]:
    """Name, Age, SignerName, Requestor, RequestedDuration, Condition."""
    spec, status = documents.child(value, "spec"), documents.child(value, "status")
    seconds = spec.get("expirationSeconds")
    given = [entry.get("type") for entry in documents.items(status, "conditions")]
    shown = next((mark for mark in ("Denied", "Approved") if mark in given), "Pending")
    if "Failed" in given:
        shown += ",Failed"
    if status.get("certificate"):
        shown += ",Issued"
    return [
        _name(value),
        age(value, now),
        spec.get("signerName") or "<none>",
        spec.get("username", ""),
        "<none>" if seconds is None else span(seconds),
        shown,
    ]


def aged(value: JsonObject, now: datetime) -> list[JsonValue]:
    """Name, Age."""
    return [_name(value), age(value, now)]


ROWS: Final[Mapping[tuple[str, str], Row]] = {
    ("policy", "poddisruptionbudgets"): budget,
    ("networking.k8s.io", "ingresses"): ingress,
    ("networking.k8s.io", "ingressclasses"): ingress_class,
    ("networking.k8s.io", "networkpolicies"): network_policy,
    ("certificates.k8s.io", "certificatesigningrequests"): certificate_request,
    ("autoscaling", "horizontalpodautoscalers"): autoscaler,
    ("node.k8s.io", "runtimeclasses"): runtime_class,
    ("storage.k8s.io", "storageclasses"): storage_class,
    ("resource.k8s.io", "deviceclasses"): aged,
    ("resource.k8s.io", "resourceclaimtemplates"): aged,
}
