# SPDX-License-Identifier: Apache-2.0
"""The addresses and node ports of Services: each is given to one Service at a time.

A devcluster has one range of IPv4 addresses. Which of it a Service gets follows from its UID, and the next free one is
taken if that has been given away; the Services in the store are what has been given away.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.errors import StatusCause, StatusError
from devcluster.apiserver.kinds.service_rules import OUTSIDE
from devcluster.ports import SERVICE_RANGE

SERVICES: Final = "services"
_NETWORK: Final = ip_network(SERVICE_RANGE)
_PORTS: Final = range(30_000, 32_768)
_RESERVED: Final = 10
"""The first addresses are left to the API server and to DNS."""


class ServiceAllocation:
    """Allocates for the Services of one API server."""

    def __init__(self, context: ServerContext) -> None:
        self._context = context

    def allocate(self, value: JsonObject, old: JsonObject | None) -> list[StatusCause]:
        """Set in place what a valid Service does not have yet; else why it cannot have what it asks for.

        What it has already, in `old`, is its own. Raises `StatusError` if nothing is free.
        """
        spec = value["spec"]
        if spec.get("type") == "ExternalName":
            return []
        before = documents.child(old or {}, "spec")
        found = list(_families(spec))
        uid = value["metadata"]["uid"]
        others = [each for each in self._context.objects(SERVICES) if each["metadata"]["uid"] != uid]
        start = sum(byte * 31**index for index, byte in enumerate(uid.encode()))
        if not spec.get("clusterIP") or spec["clusterIP"] != before.get("clusterIP"):
            found += _address(spec, {each["spec"].get("clusterIP") for each in others}, start)
        if spec.get("type") in OUTSIDE and spec.get("allocateLoadBalancerNodePorts") is not False:
            taken = {number for each in others for number in _node_ports(each["spec"])}
            found += _allocate_ports(spec, taken - _node_ports(before), own=_node_ports(before), start=start)
        return found


def _address(spec: JsonObject, taken: set[str], start: int) -> Iterator[StatusCause]:
    address = spec.get("clusterIP")
    if address == "None":
        return
    if not address:
        size = _NETWORK.num_addresses - _RESERVED - 1
        numbers = (_RESERVED + (start + step) % size for step in range(size))
        address = next((text for number in numbers if (text := str(_NETWORK[number])) not in taken), None)
        if address is None:
            raise _full("a serviceIP")
        spec.update({"clusterIP": address, "clusterIPs": [address]})
    elif ip_address(address) not in _NETWORK:
        yield _not_allocated(spec, address, "the provided network does not match the current range")
    elif address in taken:
        yield _not_allocated(spec, address, "provided IP is already allocated")


def _node_ports(spec: JsonObject) -> set[int]:
    return {port["nodePort"] for port in documents.items(spec, "ports") if port.get("nodePort")}


def _allocate_ports(spec: JsonObject, taken: set[int], *, own: set[int], start: int) -> Iterator[StatusCause]:
    used = taken | _node_ports(spec)
    for index, port in enumerate(documents.items(spec, "ports")):
        number, path = port.get("nodePort"), f"spec.ports[{index}].nodePort"
        if not number:
            numbers = (_PORTS[(start + step) % len(_PORTS)] for step in range(len(_PORTS)))
            number = next((each for each in numbers if each not in used), None)
            if number is None:
                raise _full("a nodePort")
            port["nodePort"] = number
            used.add(number)
        elif number in own:
            continue
        elif number not in _PORTS:
            text = f"provided port is not in the valid range. The range of valid ports is {_PORTS[0]}-{_PORTS[-1]}"
            yield field_errors.invalid(path, number, text)
        elif number in taken:
            yield field_errors.invalid(path, number, "provided port is already allocated")


def _full(what: str) -> StatusError:
    return StatusError(500, "InternalError", f"Internal error occurred: failed to allocate {what}: range is full")


def _families(spec: JsonObject) -> Iterator[StatusCause]:
    """What needs addresses of IPv6; a headless Service without a selector needs none."""
    if spec.get("clusterIP") == "None" and not spec.get("selector"):
        return
    if spec.get("ipFamilyPolicy") == "RequireDualStack":
        text = "this cluster is not configured for dual-stack services"
        yield field_errors.invalid("spec.ipFamilyPolicy", spec["ipFamilyPolicy"], text)
    for index, family in enumerate(spec.get("ipFamilies") or ()):
        if family != "IPv4":
            yield field_errors.invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster")


def _not_allocated(spec: JsonObject, address: str, why: str) -> StatusCause:
    return field_errors.invalid("spec.clusterIPs", spec.get("clusterIPs"), f"failed to allocate IP {address}: {why}")
