# SPDX-License-Identifier: Apache-2.0
"""Validation of Services: types, ports, session affinity, addresses, and what may not change.

Whether an address or a node port is free is known by `service_allocation`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from ipaddress import ip_address, ip_network
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause

OUTSIDE: Final = frozenset({"NodePort", "LoadBalancer"})
"""The types that are reached from outside of the cluster."""
_PROTOCOLS: Final = ["SCTP", "TCP", "UDP"]
_TYPES: Final = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]
_AFFINITIES: Final = ["ClientIP", "None"]
_POLICIES: Final = ["Cluster", "Local"]
_FAMILIES: Final = ["IPv4", "IPv6"]
_FAMILY_POLICIES: Final = ["PreferDualStack", "RequireDualStack", "SingleStack"]
_LONGEST: Final = 86_400
_NAME: Final = re.compile("[-a-z0-9]+")
_RANGE: Final = "must be between 1 and 65535, inclusive"
_ONCE: Final = "may not change once set"
_BALANCED: Final = "may only be used when `type` is 'LoadBalancer'"


def problems(spec: JsonObject, before: JsonObject | None) -> list[StatusCause]:
    """The problems of a service's spec; `before` is the spec that it replaces."""
    found = [*_kind(spec), *_ports(documents.items(spec, "ports")), *_affinity(spec), *_outside(spec)]
    found += _addresses(spec)
    if before is not None:
        found += _changed(spec, before)
    if before is None and spec.get("type") == "ClusterIP":
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


def _outside(spec: JsonObject) -> Iterator[StatusCause]:
    """The problems of what makes a service reachable from outside of the cluster."""
    kind, policy = spec.get("type"), spec.get("externalTrafficPolicy")
    for index, address in enumerate(spec.get("externalIPs") or ()):
        yield from _external_address(f"spec.externalIPs[{index}]", address)
    if policy is not None:
        if policy not in _POLICIES:
            yield field_errors.not_supported("spec.externalTrafficPolicy", policy, _POLICIES)
        elif kind not in OUTSIDE and not spec.get("externalIPs"):
            text = "may only be set for externally-accessible services"
            yield field_errors.invalid("spec.externalTrafficPolicy", policy, text)
    ranges = spec.get("loadBalancerSourceRanges") or ()
    if ranges and kind != "LoadBalancer":
        yield field_errors.forbidden("spec.LoadBalancerSourceRanges", _BALANCED)
    else:
        for index, text in enumerate(ranges):
            if not _is_range(text):
                wrong = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
                yield field_errors.invalid(f"spec.LoadBalancerSourceRanges[{index}]", text, wrong)
    if spec.get("loadBalancerClass") and kind != "LoadBalancer":
        yield field_errors.forbidden("spec.loadBalancerClass", _BALANCED)


def _is_range(text: str) -> bool:
    try:
        ip_network(text.strip(), strict=False)
    except ValueError:
        return False
    return "/" in text


def _external_address(path: str, text: str) -> list[StatusCause]:
    """What is wrong with an address that traffic from outside comes to."""
    found = field_errors.address_problems(path, text)
    if found:
        return found
    address = ip_address(text)
    wrong = []
    if address.is_unspecified:
        wrong.append(f"may not be unspecified ({address})")
    if address.is_loopback:
        wrong.append("may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if address.is_link_local:
        wrong.append("may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    return [field_errors.invalid(path, text, each) for each in wrong]


def _addresses(spec: JsonObject) -> list[StatusCause]:
    """The problems of addresses and families among themselves."""
    first, addresses = spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    families, policy = spec.get("ipFamilies") or [], spec.get("ipFamilyPolicy")
    if spec.get("type") == "ExternalName":
        return [field_errors.forbidden("spec.clusterIPs", "may not be set for ExternalName services")] if first else []
    found = []
    if addresses and not first:
        text = "must be empty when `clusterIP` is not specified"
        found.append(field_errors.invalid("spec.clusterIPs", addresses, text))
    elif addresses and addresses[0] != first:
        found.append(field_errors.invalid("spec.clusterIPs", addresses, "first value must match `clusterIP`"))
    for index, family in enumerate(families):
        path = f"spec.ipFamilies[{index}]"
        if family not in _FAMILIES:
            found.append(field_errors.not_supported(path, family, _FAMILIES))
        elif family in families[:index]:
            found.append(field_errors.duplicate(path, family))
    if policy is not None and policy not in _FAMILY_POLICIES:
        found.append(field_errors.not_supported("spec.ipFamilyPolicy", policy, _FAMILY_POLICIES))
    return found + _each_address(spec, addresses, families)


def _each_address(spec: JsonObject, addresses: Sequence[str], families: Sequence[str]) -> list[StatusCause]:
    found: list[StatusCause] = []
    seen = []
    for index, text in enumerate(addresses):
        path = f"spec.clusterIPs[{index}]"
        if text == "None":
            if spec.get("type") in OUTSIDE:
                wrong = f"may not be set to 'None' for {spec['type']} services"
                found.append(field_errors.invalid(path, text, wrong))
            continue
        problems_of_one = field_errors.address_problems(path, text)
        found += problems_of_one
        if problems_of_one:
            continue
        seen.append(f"IPv{ip_address(text).version}")
        if index < len(families) and families[index] != seen[-1]:
            wrong = f"expected an {families[index]} value as indicated by `ipFamilies[{index}]`"
            found.append(field_errors.invalid(path, text, wrong))
    if len(seen) != len(set(seen)):
        text = "may specify no more than one IP for each IP family"
        found.append(field_errors.invalid("spec.clusterIPs", list(addresses), text))
    return found


def _changed(spec: JsonObject, before: JsonObject) -> Iterator[StatusCause]:
    """What may not be changed."""
    kinds = {spec.get("type"), before.get("type")}
    if "ExternalName" not in kinds and before.get("clusterIP") and spec.get("clusterIP") != before["clusterIP"]:
        yield field_errors.invalid("spec.clusterIPs[0]", spec.get("clusterIPs"), _ONCE)
    balancer = spec.get("loadBalancerClass")
    if kinds == {"LoadBalancer"} and balancer != before.get("loadBalancerClass"):
        yield field_errors.invalid("spec.loadBalancerClass", balancer, _ONCE)


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
