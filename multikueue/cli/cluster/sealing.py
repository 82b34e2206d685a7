# SPDX-License-Identifier: Apache-2.0
"""Reads the key of the manager's seals, for an administrator with access to it."""

from __future__ import annotations

import base64
import binascii

from multikueue.api.resource import SECRETS
from multikueue.dispatch.protocol.seals import KEY_BYTES, SEAL_FIELD, SEAL_SECRET
from multikueue.kube.errors import Forbidden, NotFound
from multikueue.kube.rest.client import KubeClient


async def seal_key(hub: KubeClient, namespace: str) -> bytes | None:
    """The key; None if the user may not read it or no manager has created it. `namespace` is the manager's."""
    try:
        secret = await hub.get_object(SECRETS, SEAL_SECRET, namespace=namespace)
        key = base64.b64decode((secret.get("data") or {}).get(SEAL_FIELD) or "", validate=True)
    except (NotFound, Forbidden, binascii.Error):
        return None
    return key if len(key) >= KEY_BYTES else None
