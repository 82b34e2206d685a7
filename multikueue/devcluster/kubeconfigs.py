# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs as values and files.

Everything a client needs stands inside (no paths), so that a kubeconfig can be copied into a Secret or to another
machine as it is.
"""

from __future__ import annotations

import base64
from pathlib import Path

import yaml

from multikueue.api.meta import JsonObject
from multikueue.devcluster.pki import KeyPair, write_private


def kubeconfig(*, cluster: str, server: str, ca: bytes, user: str, pair: KeyPair) -> JsonObject:
    """A kubeconfig of one cluster, one user with a client certificate, and one current context."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {"server": server, "certificate-authority-data": _text(ca)}}],
        "users": [
            {
                "name": user,
                "user": {"client-certificate-data": _text(pair.certificate), "client-key-data": _text(pair.key)},
            }
        ],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "current-context": cluster,
    }


def with_token(*, cluster: str, server: str, user: str, token: str) -> JsonObject:
    """A kubeconfig of one cluster without TLS and one user with a bearer token: for the loopback interface only."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {"server": server}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
        "current-context": cluster,
    }


def dump(config: JsonObject) -> bytes:
    """The kubeconfig as YAML."""
    return yaml.safe_dump(config, sort_keys=False).encode()


def write(config: JsonObject, path: Path) -> Path:
    """Write it readable by the owner alone; return the path."""
    write_private(path, dump(config))
    return path


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
