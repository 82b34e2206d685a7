# SPDX-License-Identifier: Apache-2.0
"""The stored identity of an agent on the hub: a kubeconfig with its certificate and key.

Owns the document and its two stores: a file for a process, a Secret of the worker cluster for a pod. Promises that it
is replaced atomically: a reader finds the old or the new one.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path
from typing import Final, Protocol

from multikueue.api import yaml_text
from multikueue.api.meta import JsonObject
from multikueue.api.resource import SECRETS
from multikueue.core.errors import BadInput
from multikueue.kube.errors import NotFound
from multikueue.kube.rest import credentials
from multikueue.kube.rest.certificates import CertificateLife, ClientRequest, life_of
from multikueue.kube.rest.client import KubeClient

_SECRET_KEY: Final = "kubeconfig"
_FIELD_MANAGER: Final = "multikueue-agent"


class IdentityStore(Protocol):
    """A store of the identity."""

    async def load(self) -> JsonObject | None:
        """The kubeconfig; None if there is none. Raises `BadInput` if it is malformed, `KubeError`."""

    async def save(self, kubeconfig: JsonObject) -> None:
        """Replace it. Raises `BadInput`, `KubeError`."""


class FileStore:
    """A file that only its owner can read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def load(self) -> JsonObject | None:
        """Read the file."""
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BadInput(f"cannot read {self._path}: {error.strerror}") from error
        return credentials.parse(text, source=str(self._path))

    async def save(self, kubeconfig: JsonObject) -> None:
        """Write beside it and rename."""
        try:
            _replace(self._path, yaml_text.dump(kubeconfig).encode())
        except OSError as error:
            raise BadInput(f"cannot write {self._path}: {error.strerror}") from error


class SecretStore:
    """A Secret of the worker cluster, so that a new pod has the identity of the former one."""

    def __init__(self, worker: KubeClient, *, namespace: str, name: str) -> None:
        self._worker = worker
        self._namespace = namespace
        self._name = name

    async def load(self) -> JsonObject | None:
        """Read the Secret."""
        try:
            secret = await self._worker.get_object(SECRETS, self._name, namespace=self._namespace)
        except NotFound:
            return None
        encoded = (secret.get("data") or {}).get(_SECRET_KEY)
        where = f"Secret {self._namespace}/{self._name}"
        return credentials.parse(base64.b64decode(encoded), source=where) if encoded else None

    async def save(self, kubeconfig: JsonObject) -> None:
        """Apply the Secret."""
        text = base64.b64encode(yaml_text.dump(kubeconfig).encode()).decode()
        body = {
            "apiVersion": SECRETS.api_version,
            "kind": SECRETS.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "data": {_SECRET_KEY: text},
        }
        await self._worker.apply(SECRETS, self._name, body, namespace=self._namespace, manager=_FIELD_MANAGER)


def pending(*, name: str, made: ClientRequest) -> JsonObject:
    """What is stored while a certificate request is pending, so that a restart does not lose the key."""
    return {"pending": {"name": name, "key": made.key.decode(), "request": made.request.decode()}}


def pending_request(document: JsonObject | None, *, name: str) -> ClientRequest | None:
    """The pending certificate request of that name; None if there is none."""
    waiting: JsonObject = (document or {}).get("pending") or {}
    if waiting.get("name") != name:
        return None
    return ClientRequest(str(waiting["key"]).encode(), str(waiting["request"]).encode())


def is_complete(document: JsonObject | None) -> bool:
    """Whether it is a kubeconfig, and not a pending request."""
    return document is not None and "pending" not in document


def with_certificate(kubeconfig: JsonObject, *, user: str, certificate: bytes, key: bytes) -> JsonObject:
    """A kubeconfig of the same server with that certificate; its context is `USER@CLUSTER`."""
    name, cluster = _current(kubeconfig, "clusters", "cluster")
    context = f"{user}@{name}"
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [
            {
                "name": context,
                "user": {
                    "client-certificate-data": base64.b64encode(certificate).decode(),
                    "client-key-data": base64.b64encode(key).decode(),
                },
            }
        ],
        "contexts": [{"name": context, "context": {"cluster": name, "user": context}}],
        "current-context": context,
    }


def certificate_life(kubeconfig: JsonObject) -> CertificateLife | None:
    """The validity of its client certificate; None if it has none. Raises `BadInput`."""
    _, user = _current(kubeconfig, "users", "user")
    data = user.get("client-certificate-data")
    return life_of(base64.b64decode(data)) if data else None


def _current(kubeconfig: JsonObject, section: str, inner: str) -> tuple[str, JsonObject]:
    chosen = kubeconfig.get("current-context")
    context: JsonObject = next(
        (entry["context"] for entry in kubeconfig.get("contexts") or () if entry["name"] == chosen), {}
    )
    named = context.get(inner)
    found: JsonObject | None = next(
        (entry[inner] for entry in kubeconfig.get(section) or () if entry["name"] == named), None
    )
    if found is None:
        raise BadInput(f"kubeconfig: the {inner} of the current-context does not exist")
    return str(named), found


def _replace(path: Path, text: bytes) -> None:
    beside = path.with_name(f".{path.name}.new")
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
