# SPDX-License-Identifier: Apache-2.0
"""The address of an aggregated API's backend, and the credentials to call it with.

Owns the TLS trust in the backend, and how it learns the user: the front proxy's client certificate and the `X-Remote-*`
headers.
"""

from __future__ import annotations

import os
import re
import ssl
from base64 import b64decode
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import aiohttp

from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.http.requests import User
from devcluster.apiserver.service_addresses import ServiceAddresses, Unavailable
from devcluster.pki import FrontProxy
from multikueue.core.certificate_trust import client_context

_FAILED: Final = re.compile(r"\[Errno (\d+)\] Connect call failed \('([^']+)', (\d+)")
_UNTRUSTED: Final = frozenset({18, 19, 20, 21})
"""OpenSSL's codes for a chain without a trusted root."""


@dataclass(frozen=True, slots=True)
class Backend:
    """One address of a backend."""

    host: str
    port: int
    server_name: str
    """The name that its certificate must have."""
    tls: ssl.SSLContext

    @property
    def url(self) -> str:
        """Its address."""
        return f"https://{self.host}:{self.port}"


class Backends:
    """Finds backends."""

    def __init__(self, addresses: ServiceAddresses, *, proxy: FrontProxy | None) -> None:
        self._addresses = addresses
        self._proxy = proxy
        self._trust: dict[str, ssl.SSLContext] = {}

    def find(self, spec: JsonObject) -> Backend:
        """One of the addresses that serve an APIService. Raises `Unavailable`."""
        reference = spec["service"]
        namespace, name, port = reference["namespace"], reference["name"], reference.get("port", 443)
        host, number = self._addresses.find(namespace, name, port)
        insecure = bool(spec.get("insecureSkipTLSVerify"))
        return Backend(host, number, f"{name}.{namespace}.svc", self._context(spec.get("caBundle", ""), insecure))

    def _context(self, bundle: str, insecure: bool) -> ssl.SSLContext:
        key = "insecure" if insecure else bundle
        found = self._trust.get(key)
        if found is None:
            try:
                found = client_context(b64decode(bundle).decode() if bundle else None)
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


def identity(user: User) -> list[tuple[str, str]]:
    """The headers that name the user to a backend."""
    found = [("X-Remote-User", user.name)]
    if user.uid:
        found.append(("X-Remote-Uid", user.uid))
    found += [("X-Remote-Group", group) for group in user.groups]
    for key, values in user.extra.items():
        found += [(f"X-Remote-Extra-{quote(key.lower(), safe='')}", value) for value in values]
    return found


def why(error: Exception) -> str:
    """Why a backend could not be called, in a real server's words."""
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
