# SPDX-License-Identifier: Apache-2.0
"""Where the backend of an aggregated API is, and how it is asked.

Owns the way from a Service to an address, trust in the backend, and what tells the backend who asks: the front proxy's
client certificate and the `X-Remote-*` headers. A devcluster has no network of services, so addresses are those of an
ExternalName, of EndpointSlices, or of the map that webhooks go by, too.
"""

from __future__ import annotations

import os
import random
import re
import ssl
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import aiohttp

from multikueue.devcluster.apiserver import documents
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.requests import User
from multikueue.devcluster.apiserver.world import World
from multikueue.devcluster.pki import FrontProxy

_SLICES: Final = "endpointslices.discovery.k8s.io"
_SERVICE_LABEL: Final = "kubernetes.io/service-name"
_FAILED: Final = re.compile(r"\[Errno (\d+)\] Connect call failed \('([^']+)', (\d+)")
_UNTRUSTED: Final = frozenset({18, 19, 20, 21})
"""What OpenSSL calls a chain that ends with nobody we trust."""


@dataclass(frozen=True, slots=True)
class Backend:
    """One address of a backend."""

    host: str
    port: int
    server_name: str
    """Whose certificate it has to show."""
    tls: ssl.SSLContext

    @property
    def url(self) -> str:
        """Its address."""
        return f"https://{self.host}:{self.port}"


class Unavailable(Exception):
    """A backend cannot be asked; `reason` is that of the condition `Available`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Backends:
    """Finds backends."""

    def __init__(self, world: World, *, services: Mapping[str, str], proxy: FrontProxy | None) -> None:
        self._world = world
        self._services = services
        self._proxy = proxy
        self._trust: dict[str, ssl.SSLContext] = {}

    def find(self, spec: JsonObject) -> Backend:
        """One of the addresses that serve an APIService. Raises `Unavailable`."""
        reference = spec["service"]
        namespace, name, port = reference["namespace"], reference["name"], reference.get("port", 443)
        host, number = self._address(namespace, name, port)
        insecure = bool(spec.get("insecureSkipTLSVerify"))
        return Backend(host, number, f"{name}.{namespace}.svc", self._context(spec.get("caBundle", ""), insecure))

    def _address(self, namespace: str, name: str, port: int) -> tuple[str, int]:
        shown = f'service/{name} in "{namespace}"'
        service = self._world.get("services", f"{namespace}/{name}")
        if service is None:
            raise Unavailable("ServiceNotFound", f"{shown} is not present")
        spec = documents.child(service, "spec")
        mapped = self._services.get(f"{namespace}/{name}")
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
            for value in self._world.objects(_SLICES, namespace=namespace)
            if documents.strings(value["metadata"].get("labels")).get(_SERVICE_LABEL) == name
        ]
        if not slices:
            raise Unavailable("EndpointsNotFound", f"cannot find endpointslices for {shown}")
        found = [address for value in slices for address in _ready(value, named)]
        if not found:
            text = f'endpointslices for {shown} have no addresses with port name "{named}"'
            raise Unavailable("MissingEndpoints", text)
        return random.choice(found)

    def _context(self, bundle: str, insecure: bool) -> ssl.SSLContext:
        key = "insecure" if insecure else bundle
        found = self._trust.get(key)
        if found is None:
            try:
                found = ssl.create_default_context(cadata=b64decode(bundle).decode() if bundle else None)
            except (ValueError, ssl.SSLError) as error:
                text = f"unable to load root certificates: unable to parse bytes as PEM block: {error}"
                raise Unavailable("FailedDiscoveryCheck", text) from error
            if insecure:
                found.check_hostname = False
                found.verify_mode = ssl.CERT_NONE
            if self._proxy is not None:
                found.load_cert_chain(self._proxy.certificate, self._proxy.key)
            self._trust[key] = found
        return found


def _ready(value: JsonObject, port_name: str) -> list[tuple[str, int]]:
    numbers = [port["port"] for port in documents.items(value, "ports") if port.get("name", "") == port_name]
    return [
        (address, number)
        for endpoint in documents.items(value, "endpoints")
        if documents.child(endpoint, "conditions").get("ready") is not False
        for address in endpoint.get("addresses", ())
        for number in numbers
    ]


def identity(user: User) -> list[tuple[str, str]]:
    """The headers that tell a backend who asks."""
    found = [("X-Remote-User", user.name)]
    if user.uid:
        found.append(("X-Remote-Uid", user.uid))
    found += [("X-Remote-Group", group) for group in user.groups]
    for key, values in user.extra.items():
        found += [(f"X-Remote-Extra-{quote(key.lower(), safe='')}", value) for value in values]
    return found


def why(error: Exception) -> str:
    """Why a backend could not be asked, as a real server says it."""
    cause = error.__cause__ if isinstance(error.__cause__, OSError) else None
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        cause = error.certificate_error if isinstance(error.certificate_error, OSError) else cause
    if isinstance(cause, ssl.SSLCertVerificationError):
        text = "certificate signed by unknown authority" if cause.verify_code in _UNTRUSTED else cause.verify_message
        return f"tls: failed to verify certificate: x509: {text}"
    if isinstance(error, TimeoutError):
        return "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
    failed = _FAILED.findall(str(cause if cause is not None else error))
    if failed:
        number, host, port = failed[-1]
        return f"dial tcp {host}:{port}: connect: {os.strerror(int(number)).lower()}"
    return str(error) or type(error).__name__
