# SPDX-License-Identifier: Apache-2.0
"""How backends of aggregated APIs recognise this server and its clients.

Owns the ConfigMap `kube-system/extension-apiserver-authentication`, which every such backend reads when it starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from multikueue.devcluster.apiserver import documents, objects
from multikueue.devcluster.apiserver.world import World
from multikueue.devcluster.pki import FRONT_PROXY, FrontProxy

_NAMESPACE, _NAME = "kube-system", "extension-apiserver-authentication"
_HEADERS: Final = {
    "requestheader-extra-headers-prefix": "X-Remote-Extra-",
    "requestheader-group-headers": "X-Remote-Group",
    "requestheader-uid-headers": "X-Remote-Uid",
    "requestheader-username-headers": "X-Remote-User",
}


def publish(world: World, *, client_ca: Path | None, proxy: FrontProxy | None) -> None:
    """Write what this server goes by; nothing when it goes by no certificates."""
    data = {}
    if client_ca is not None:
        data["client-ca-file"] = client_ca.read_text()
    if proxy is not None:
        data["requestheader-client-ca-file"] = proxy.authority.read_text()
        data["requestheader-allowed-names"] = _listed(FRONT_PROXY)
        data |= {key: _listed(name) for key, name in _HEADERS.items()}
    key = f"{_NAMESPACE}/{_NAME}"
    value = world.get("configmaps", key) or {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {
            "name": _NAME,
            "namespace": _NAMESPACE,
            "uid": objects.new_uid(world.rng),
            "creationTimestamp": world.stamp(),
        },
    }
    if data and value.get("data") != data:
        value["data"] = data
        world.store.put("configmaps", key, value)


def _listed(name: str) -> str:
    return documents.dump([name]).decode()
