# SPDX-License-Identifier: Apache-2.0
"""Services: defaults, what a change keeps, and table cells."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds import service_rules
from devcluster.apiserver.kinds.batch import selector_text
from devcluster.apiserver.kinds.behaviour import KindBehaviour, RequestContext, age
from devcluster.apiserver.kinds.service_rules import OUTSIDE

_AFFINITY_SECONDS: Final = 10_800
_ADDRESSES: Final = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
_NOT_HEADLESS: Final = ("loadBalancerIP", "externalIPs")


class ServiceBehaviour(KindBehaviour):
    """Services; their addresses and node ports are allocated by `service_allocation`."""

    has_status = True

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        spec = value.setdefault("spec", {})
        spec.setdefault("sessionAffinity", "None")
        spec.setdefault("type", "ClusterIP")
        if spec["sessionAffinity"] == "ClientIP":
            settings = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
            settings.setdefault("timeoutSeconds", _AFFINITY_SECONDS)
        elif spec["sessionAffinity"] == "None":
            spec.pop("sessionAffinityConfig", None)
        if spec["type"] != "ExternalName":
            spec.setdefault("internalTrafficPolicy", "Cluster")
        for port in documents.items(spec, "ports"):
            port.setdefault("protocol", "TCP")
            if port.get("targetPort") in (None, 0, ""):
                port["targetPort"] = port.get("port")
        if spec["type"] in OUTSIDE or (spec["type"] == "ClusterIP" and spec.get("externalIPs")):
            spec.setdefault("externalTrafficPolicy", "Cluster")
        if spec["type"] == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Set the address families, and the list of addresses from the only one."""
        value["status"] = {"loadBalancer": {}}
        spec = value["spec"]
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        _set_families(spec)

    def prepare_update(self, value: JsonObject, old: JsonObject, request_context: RequestContext) -> None:
        """Keep addresses, families and node ports that the client does not mention."""
        super().prepare_update(value, old, request_context)
        spec, before_spec = value["spec"], old["spec"]
        _drop_unused(spec, before_spec)
        if spec.get("type") != "ExternalName":
            _keep_addresses(spec, before_spec)
            _set_families(spec)
        if spec.get("type") in OUTSIDE:
            kept = {(port.get("port"), port.get("protocol")): port for port in documents.items(old, "spec", "ports")}
            for port in documents.items(value, "spec", "ports"):
                before = kept.get((port.get("port"), port.get("protocol")), {})
                if before.get("nodePort"):
                    port.setdefault("nodePort", before["nodePort"])

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        if request_context.subresource == "status":
            return _status_problems(value)
        return service_rules.problems(value["spec"], None if old is None else old["spec"])

    def warnings(self, value: JsonObject, old: JsonObject | None) -> list[str]:
        """Fields that have no use in a headless service."""
        spec = documents.child(value, "spec")
        if spec.get("clusterIP") != "None":
            return []
        found = [f"spec.{name} is ignored for headless services" for name in _NOT_HEADLESS if spec.get(name)]
        if spec.get("sessionAffinity") not in (None, "None"):
            found.append("spec.SessionAffinity is ignored for headless services")
        return found

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Type, Cluster-IP, External-IP, Ports, Age, Selector."""
        spec = documents.child(value, "spec")
        ports = [_port(port) for port in documents.items(spec, "ports")]
        selector = spec.get("selector")
        return [
            value["metadata"]["name"],
            spec.get("type", ""),
            spec.get("clusterIP") or "<none>",
            _outside(spec, documents.child(value, "status")),
            ",".join(ports) or "<none>",
            age(value, now),
            selector_text({"matchLabels": selector}) if selector else "<none>",
        ]


def _keep_addresses(spec: JsonObject, before: JsonObject) -> None:
    """Keep the addresses of a changed service; a client may write the old field only, which has the first of them."""
    if spec.get("clusterIP") != before.get("clusterIP") and spec.get("clusterIPs") == before.get("clusterIPs"):
        spec.pop("clusterIPs", None)
        if spec.get("clusterIP"):
            spec["clusterIPs"] = [spec["clusterIP"]]
    if not spec.get("clusterIP"):
        spec.pop("clusterIP", None)
        spec.pop("clusterIPs", None)
    elif not spec.get("clusterIPs") and spec["clusterIP"] == before.get("clusterIP"):
        spec.pop("clusterIPs", None)
    for name in _ADDRESSES:
        if name in before:
            spec.setdefault(name, before[name])


def _set_families(spec: JsonObject) -> None:
    """Set the address families in place: this cluster has one, IPv4."""
    if spec.get("type") == "ExternalName":
        return
    # The endpoints of a headless service without a selector may have any address.
    any_family = spec.get("clusterIP") == "None" and not spec.get("selector") and "ipFamilies" not in spec
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if any_family else "SingleStack")
    spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if any_family else ["IPv4"])


def _drop_unused(spec: JsonObject, before: JsonObject) -> None:
    """Drop in place what the type of a changed service has no use for, if the client has not changed it as well."""

    def drop(*names: str) -> None:
        for name in names:
            if name in spec and spec[name] == before.get(name):
                del spec[name]

    kind, former = spec.get("type"), before.get("type")
    if kind == "ExternalName" and former != "ExternalName":
        drop(*_ADDRESSES, "internalTrafficPolicy")
    if former in OUTSIDE and kind not in OUTSIDE:
        drop("externalTrafficPolicy")
        kept = {port.get("port"): port.get("nodePort") for port in documents.items(before, "ports")}
        for port in documents.items(spec, "ports"):
            if port.get("nodePort") == kept.get(port.get("port")):
                port.pop("nodePort", None)
    if former == "LoadBalancer" and kind != "LoadBalancer":
        drop("allocateLoadBalancerNodePorts", "loadBalancerClass")


def _port(port: JsonObject) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port')}{node}/{port.get('protocol', 'TCP')}"


def _outside(spec: JsonObject, status: JsonObject) -> str:
    """The External-IP column."""
    if spec.get("type") == "ExternalName":
        return spec.get("externalName") or "<none>"
    found = []
    if spec.get("type") == "LoadBalancer":
        for entry in documents.items(status, "loadBalancer", "ingress"):
            found.append(entry.get("ip") or entry.get("hostname") or "")
    found += spec.get("externalIPs") or []
    return ",".join(found) or ("<pending>" if spec.get("type") == "LoadBalancer" else "<none>")


def _status_problems(value: JsonObject) -> list[StatusCause]:
    """The problems of a service's status."""
    kind = documents.child(value, "spec").get("type")
    if kind == "LoadBalancer" or not documents.items(value, "status", "loadBalancer", "ingress"):
        return []
    text = "may only be used when `spec.type` is 'LoadBalancer'"
    return [field_errors.forbidden("status.loadBalancer.ingress", text)]
