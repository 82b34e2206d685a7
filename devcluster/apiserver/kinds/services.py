# SPDX-License-Identifier: Apache-2.0
"""Services: defaults, addresses, validation and table cells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds.batch import selector_text
from devcluster.apiserver.kinds.behaviour import KindBehaviour, RequestContext, age

_PROTOCOLS: Final = ["SCTP", "TCP", "UDP"]
_TYPES: Final = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]
_AFFINITIES: Final = ["ClientIP", "None"]
_LONGEST: Final = 86_400
_NAME: Final = re.compile("[-a-z0-9]+")
_RANGE: Final = "must be between 1 and 65535, inclusive"
_AFFINITY_SECONDS: Final = 10_800
_OUTSIDE: Final = frozenset({"NodePort", "LoadBalancer"})
_ADDRESSES: Final = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
_NOT_HEADLESS: Final = ("loadBalancerIP", "externalIPs")
_NODE_PORTS: Final = (30_000, 2_768)
"""The first node port, and their number."""


class ServiceBehaviour(KindBehaviour):
    """Services; addresses and node ports are derived from the UID."""

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
        if spec["type"] in _OUTSIDE or (spec["type"] == "ClusterIP" and spec.get("externalIPs")):
            spec.setdefault("externalTrafficPolicy", "Cluster")
        if spec["type"] == "LoadBalancer":
            spec.setdefault("allocateLoadBalancerNodePorts", True)

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Set the address and the node ports."""
        value["status"] = {"loadBalancer": {}}
        self._allocate(value)

    def _allocate(self, value: JsonObject) -> None:
        """Set the address and the node ports that are not set."""
        spec = value["spec"]
        if spec.get("type") != "ExternalName":
            number = sum(byte * 31**index for index, byte in enumerate(value["metadata"]["uid"].encode())) % 65_000 + 10
            address = spec.get("clusterIP") or f"10.96.{number // 256}.{number % 256}"
            spec.update({"clusterIP": address, "clusterIPs": [address]})
            if spec["type"] in _OUTSIDE and spec.get("allocateLoadBalancerNodePorts") is not False:
                for index, port in enumerate(documents.items(spec, "ports")):
                    port.setdefault("nodePort", _NODE_PORTS[0] + (number + index) % _NODE_PORTS[1])
            # The endpoints of a headless service without a selector may have any address.
            any_family = address == "None" and not spec.get("selector") and "ipFamilies" not in spec
            spec.setdefault("ipFamilyPolicy", "RequireDualStack" if any_family else "SingleStack")
            spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if any_family else ["IPv4"])

    def prepare_update(self, value: JsonObject, old: JsonObject, request_context: RequestContext) -> None:
        """Keep its address."""
        super().prepare_update(value, old, request_context)
        spec, before_spec = value["spec"], old["spec"]
        _drop_unused(spec, before_spec)
        if spec.get("type") != "ExternalName":
            for name in _ADDRESSES:
                if name in before_spec:
                    spec.setdefault(name, before_spec[name])
            self._allocate(value)
        if value["spec"].get("type") in _OUTSIDE:
            kept = {(port.get("port"), port.get("protocol")): port for port in documents.items(old, "spec", "ports")}
            for port in documents.items(value, "spec", "ports"):
                before = kept.get((port.get("port"), port.get("protocol")), {})
                if before.get("nodePort"):
                    port.setdefault("nodePort", before["nodePort"])

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        if request_context.subresource == "status":
            return _status_problems(value)
        return _problems(value["spec"], new=old is None)

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


def _drop_unused(spec: JsonObject, before: JsonObject) -> None:
    """Drop in place what the type of a changed service has no use for, if the client has not changed it as well."""

    def drop(*names: str) -> None:
        for name in names:
            if name in spec and spec[name] == before.get(name):
                del spec[name]

    kind, former = spec.get("type"), before.get("type")
    if kind == "ExternalName" and former != "ExternalName":
        drop(*_ADDRESSES, "internalTrafficPolicy")
    if former in _OUTSIDE and kind not in _OUTSIDE:
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


def _problems(spec: JsonObject, *, new: bool) -> list[StatusCause]:
    """The problems of a service's spec."""
    found = [*_kind(spec), *_ports(documents.items(spec, "ports")), *_affinity(spec)]
    if new and spec.get("type") == "ClusterIP":
        for index, port in enumerate(documents.items(spec, "ports")):
            if port.get("nodePort"):
                text = "may not be used when `type` is 'ClusterIP'"
                found.append(field_errors.forbidden(f"spec.ports[{index}].nodePort", text))
    return found


def _kind(spec: JsonObject) -> Iterator[StatusCause]:
    kind = spec.get("type")
    if kind not in _TYPES:
        yield field_errors.not_supported("spec.type", kind, sorted(_TYPES))
    elif kind == "ExternalName":
        if not spec.get("externalName"):
            yield field_errors.required("spec.externalName")
    elif not spec.get("ports") and spec.get("clusterIP") != "None":
        yield field_errors.required("spec.ports")


def _affinity(spec: JsonObject) -> Iterator[StatusCause]:
    affinity = spec.get("sessionAffinity")
    if affinity not in _AFFINITIES:
        yield field_errors.not_supported("spec.sessionAffinity", affinity, sorted(_AFFINITIES))
    seconds = documents.child(spec, "sessionAffinityConfig", "clientIP").get("timeoutSeconds")
    if affinity == "ClientIP" and isinstance(seconds, int) and not 0 < seconds <= _LONGEST:
        text = f"must be greater than 0 and less than {_LONGEST}"
        yield field_errors.invalid("spec.sessionAffinityConfig.clientIP.timeoutSeconds", seconds, text)


def _ports(ports: list[JsonObject]) -> Iterator[StatusCause]:
    names: set[JsonValue] = set()
    taken: set[tuple[JsonValue, JsonValue]] = set()
    for index, port in enumerate(ports):
        path, name, number, protocol = f"spec.ports[{index}]", port.get("name"), port.get("port"), port.get("protocol")
        if name:
            yield from field_errors.name_problems(f"{path}.name", name, label=True)
            if name in names:
                yield field_errors.duplicate(f"{path}.name", name)
            names.add(name)
        elif len(ports) > 1:
            yield field_errors.required(f"{path}.name")
        for field in ("port", "targetPort"):
            value = port.get(field)
            if isinstance(value, int) and not 0 < value < 1 << 16:
                yield field_errors.invalid(f"{path}.{field}", value, _RANGE)
        target = port.get("targetPort")
        if isinstance(target, str) and not _NAME.fullmatch(target):
            text = "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
            yield field_errors.invalid(f"{path}.targetPort", target, text)
        if protocol not in _PROTOCOLS:
            yield field_errors.not_supported(f"{path}.protocol", protocol, sorted(_PROTOCOLS))
        if (protocol, number) in taken:
            shown = (
                f'{{"Name":"","Protocol":"{protocol}","AppProtocol":null,"Port":{number},"TargetPort":0,"NodePort":0}}'
            )
            yield StatusCause("FieldValueDuplicate", f"Duplicate value: {shown}", path)
        taken.add((protocol, number))
