# SPDX-License-Identifier: Apache-2.0
"""The address of the process behind a Service, for webhooks and aggregated APIs.

A devcluster has no service network, so the address is that of the map that the server was started with, of an
ExternalName, or of the Service's EndpointSlices, where 127.0.0.1 is a process on this machine. Addresses of virtual
pods are ignored: no process is behind them.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.context import ServerContext
from devcluster.kubelet.pod_addresses import POD_RANGE

_SLICES: Final = "endpointslices.discovery.k8s.io"
_SERVICE_LABEL: Final = "kubernetes.io/service-name"


class Unavailable(Exception):
    """A backend has no address; `reason` is for the condition `Available` of an APIService."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ServiceAddresses:
    """Finds addresses; `services` maps `namespace/name` to `host:port`."""

    def __init__(self, context: ServerContext, *, services: Mapping[str, str]) -> None:
        self._context = context
        self.services: Final = services

    def find(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        """Host and port of one of the addresses. Raises `Unavailable`."""
        shown = f'service/{name} in "{namespace}"'
        service = self._context.get("services", f"{namespace}/{name}")
        if service is None:
            raise Unavailable("ServiceNotFound", f"{shown} is not present")
        spec = documents.child(service, "spec")
        mapped = self.services.get(f"{namespace}/{name}")
        if mapped:
            host, _, number = mapped.rpartition(":")
            return host, int(number)
        if spec.get("type") == "ExternalName":
            return spec.get("externalName", ""), port
        named = next((entry.get("name", "") for entry in documents.items(spec, "ports") if entry["port"] == port), None)
        if named is None:
            raise Unavailable("ServicePortError", f"{shown} is not listening on port {port}")
        slices = [
            value
            for value in self._context.objects(_SLICES, namespace=namespace)
            if documents.strings(value["metadata"].get("labels")).get(_SERVICE_LABEL) == name
        ]
        if not slices:
            raise Unavailable("EndpointsNotFound", f"cannot find endpointslices for {shown}")
        found = [address for value in slices for address in _ready(value, named)]
        if not found:
            text = f'endpointslices for {shown} have no addresses with port name "{named}"'
            raise Unavailable("MissingEndpoints", text)
        return random.choice(found)


def _ready(value: JsonObject, port_name: str) -> list[tuple[str, int]]:
    numbers = [port["port"] for port in documents.items(value, "ports") if port.get("name", "") == port_name]
    return [
        (address, number)
        for endpoint in documents.items(value, "endpoints")
        if documents.child(endpoint, "conditions").get("ready") is not False
        for address in endpoint.get("addresses", ())
        for number in numbers
        if not _virtual(address)
    ]


def _virtual(address: str) -> bool:
    try:
        return ip_address(address) in POD_RANGE
    except ValueError:
        return False
