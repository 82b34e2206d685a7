# SPDX-License-Identifier: Apache-2.0
"""Sources of bearer tokens.

Owns where a token comes from and when it is read again: a fixed one, a file that is rotated in place (projected service
account tokens), an exec plug-in with an expiry. `refresh()` is called once after a 401. The client certificate of a
plug-in is passed to the `TlsSource`. Exec plug-ins are not left to kubernetes_asyncio: ADR 0015.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
import orjson

from multikueue.core.clock import Clock, SystemClock
from multikueue.core.errors import BadInput
from multikueue.core.timestamps import parse_time
from multikueue.kube.rest.tls import TlsSource

_CHECK_SECONDS: Final = 10.0  # between two checks of a token file
_EXPIRY_SKEW: Final = timedelta(seconds=60)  # renewed this long before it expires
_EXEC_TIMEOUT: Final = 30.0
_PLUGIN_EXTENSION: Final = "client.authentication.k8s.io/exec"  # configuration of an administrator for the plug-in
_CLUSTER_FIELDS: Final = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression")


class TokenSource(Protocol):
    """A source of the token of each request."""

    async def token(self) -> str | None:
        """The token; None to send none. Raises `BadInput` if it cannot be obtained."""

    async def refresh(self) -> bool:
        """Drop the cached token after a 401. False if there can be no other token."""


@dataclass(frozen=True, slots=True)
class FixedToken:
    """A token that never changes."""

    value: str

    async def token(self) -> str | None:
        """The token."""
        return self.value

    async def refresh(self) -> bool:
        """False: there is no other token."""
        return False


class FileToken:
    """A token in a file, which is read again when it changes."""

    def __init__(self, path: Path, *, clock: Clock | None = None) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._value: str | None = None
        self._version = (0, 0)
        self._checked = float("-inf")

    async def token(self) -> str | None:
        """The token in the file; the last one while the file is being replaced."""
        now = self._clock.monotonic()
        if self._value is not None and now - self._checked < _CHECK_SECONDS:
            return self._value
        self._checked = now
        try:
            found = self._path.stat()
            version = (found.st_mtime_ns, found.st_size)
            if self._value is None or version != self._version:
                self._value, self._version = self._path.read_text().strip(), version
        except OSError as error:
            if self._value is None:
                raise BadInput(f"cannot read the token file {self._path}: {error.strerror}") from error
        return self._value

    async def refresh(self) -> bool:
        """Read the file at the next request."""
        self._checked = float("-inf")
        self._version = (0, 0)
        return True


def exec_cluster(cluster: Mapping[str, Any], authority: bytes) -> dict[str, Any]:
    """The cluster in the input of a plug-in: with the contents of files, and only the extension for plug-ins."""
    found = {name: cluster[name] for name in _CLUSTER_FIELDS if cluster.get(name)}
    if authority:
        found["certificate-authority-data"] = base64.b64encode(authority).decode()
    for entry in cluster.get("extensions") or ():
        if entry.get("name") == _PLUGIN_EXTENSION:
            found["config"] = entry.get("extension")
    return found


class ExecToken:
    """An exec credential plug-in of `client.authentication.k8s.io`; concurrent requests share one run."""

    def __init__(
        self,
        spec: Mapping[str, Any],
        *,
        tls: TlsSource,
        cluster: Callable[[], Mapping[str, Any]],
        clock: Clock | None = None,
    ) -> None:
        self._spec = spec
        self._tls = tls
        self._cluster = cluster
        self._clock = clock or SystemClock()
        self._lock = anyio.Lock()
        self._value: str | None = None
        self._expires: datetime | None = None
        self._is_cached = False

    async def token(self) -> str | None:
        """The token of the plug-in; runs it if there is none or it is about to expire."""
        async with self._lock:
            if not self._is_cached or (self._expires is not None and self._clock.now() >= self._expires - _EXPIRY_SKEW):
                await self._run()
            return self._value

    async def refresh(self) -> bool:
        """Run the plug-in again at the next request."""
        self._is_cached = False
        return True

    async def _run(self) -> None:
        command = str(self._spec.get("command") or "")
        version = str(self._spec.get("apiVersion") or "client.authentication.k8s.io/v1")
        info: dict[str, Any] = {"apiVersion": version, "kind": "ExecCredential", "spec": {"interactive": False}}
        if self._spec.get("provideClusterInfo"):
            info["spec"]["cluster"] = self._cluster()
        added = {entry["name"]: entry["value"] for entry in self._spec.get("env") or ()}
        environment = {**os.environ, **added, "KUBERNETES_EXEC_INFO": orjson.dumps(info).decode()}
        try:
            process = await asyncio.create_subprocess_exec(
                command,
                *(str(argument) for argument in self._spec.get("args") or ()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
            )
        except OSError as error:
            hint = str(self._spec.get("installHint") or "").strip()
            raise BadInput(f"credential plug-in {command!r}: {error.strerror}. {hint}".rstrip()) from error
        try:
            with anyio.fail_after(_EXEC_TIMEOUT):
                output, stderr = await process.communicate()
        except TimeoutError as error:
            raise BadInput(f"credential plug-in {command!r} did not exit within {_EXEC_TIMEOUT:.0f} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                with anyio.CancelScope(shield=True):
                    await process.wait()
        if process.returncode:
            text = stderr.decode(errors="replace").strip()[-300:]
            raise BadInput(f"credential plug-in {command!r} exited with {process.returncode}: {text}")
        self._read(command, output)

    def _read(self, command: str, output: bytes) -> None:
        try:
            status = orjson.loads(output)["status"]
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise BadInput(f"credential plug-in {command!r} printed no ExecCredential with a status") from error
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
        if certificate and key:
            self._tls.replace(certificate=certificate.encode(), key=key.encode())
        elif not status.get("token"):
            raise BadInput(f"credential plug-in {command!r} returned neither a token nor a certificate with its key")
        self._value = status.get("token")
        self._expires = parse_time(status["expirationTimestamp"]) if status.get("expirationTimestamp") else None
        self._is_cached = True
