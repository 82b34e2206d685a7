# SPDX-License-Identifier: Apache-2.0
"""Kubeconfigs as values and files.

Credentials are embedded (no paths), so that a kubeconfig can be copied into a Secret or to another machine. Entries
with different content have different names, so that kubeconfigs can be merged.
"""

from __future__ import annotations

import base64
from pathlib import Path

import yaml

from devcluster.pki import KeyPair, write_private
from multikueue.api.meta import JsonObject


def kubeconfig(
    *, cluster: str, server: str, ca: bytes, user: str, pair: KeyPair, context: str | None = None
) -> JsonObject:
    """A kubeconfig of one cluster, one user with a client certificate, and one current context.

    Context and user entry are named `context`; the default is `USER@CLUSTER`.
    """
    entry = entry_name(user, cluster) if context is None else context
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {"server": server, "certificate-authority-data": _text(ca)}}],
        "users": [
            {
                "name": entry,
                "user": {"client-certificate-data": _text(pair.certificate), "client-key-data": _text(pair.key)},
            }
        ],
        "contexts": [{"name": entry, "context": {"cluster": cluster, "user": entry}}],
        "current-context": entry,
    }


def with_token(*, cluster: str, server: str, user: str, token: str, authority: bytes | None = None) -> JsonObject:
    """A kubeconfig of one cluster and one user with a bearer token.

    Without the PEM of an authority the cluster has no TLS: for clients of this project on the loopback interface only,
    since client-go and kubectl send no token then.
    """
    entry = entry_name(user, cluster)
    trust = {"certificate-authority-data": base64.b64encode(authority).decode()} if authority is not None else {}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster, "cluster": {"server": server, **trust}}],
        "users": [{"name": entry, "user": {"token": token}}],
        "contexts": [{"name": entry, "context": {"cluster": cluster, "user": entry}}],
        "current-context": entry,
    }


def entry_name(user: str, cluster: str) -> str:
    """The name of context and user entry, unique per user and cluster."""
    return f"{user}@{cluster}"


def dump(config: JsonObject) -> bytes:
    """The kubeconfig as YAML."""
    return yaml.safe_dump(config, sort_keys=False).encode()


def write(config: JsonObject, path: Path) -> Path:
    """Write it readable by the owner only. Returns the path."""
    write_private(path, dump(config))
    return path


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
