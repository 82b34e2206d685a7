# SPDX-License-Identifier: Apache-2.0
"""The ConfigMaps and Secrets in mailbox namespaces, which are sent with jobs.

Owns the writes. Needs rights in mailbox namespaces that an administrator gives (deploy/rbac/manager-send-objects.yaml).
"""

from __future__ import annotations

from typing import Final

import orjson

from multikueue.api.constants import SENT_OBJECT_LABEL, SENT_VERSION_ANNOTATION
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.dispatch.sending.sent_objects import SENT_OBJECT_LABEL_VALUE
from multikueue.dispatch.worker.dependencies import SENDABLE_KINDS
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient

FIELD_MANAGER: Final = "multikueue-sent-objects"
_SELECTOR: Final = f"{SENT_OBJECT_LABEL}={SENT_OBJECT_LABEL_VALUE}"


class MailboxObjects:
    """Writes and removes them."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def put(self, cluster: str, obj: JsonObject) -> None:
        """Create or update one: an apply removes the keys that it does not have any more."""
        await self._client.apply(
            SENDABLE_KINDS[obj["kind"]],
            obj["metadata"]["name"],
            obj,
            namespace=mailbox_namespace(cluster),
            manager=FIELD_MANAGER,
        )

    async def versions(self, cluster: str) -> dict[str, str]:
        """The version of each, by its name; their contents are not read."""
        found: dict[str, str] = {}
        for resource in SENDABLE_KINDS.values():
            page = await self._client.list_all(
                resource, namespace=mailbox_namespace(cluster), label_selector=_SELECTOR, metadata_only=True
            )
            for raw in page.items:
                metadata: JsonObject = orjson.loads(raw)["metadata"]
                annotations: dict[str, str] = metadata.get("annotations") or {}
                found[metadata["name"]] = annotations.get(SENT_VERSION_ANNOTATION, "")
        return found

    async def drop(self, cluster: str, name: str) -> None:
        """Remove one, of either kind: no two have the same name."""
        for resource in SENDABLE_KINDS.values():
            try:
                await self._client.delete(resource, name, namespace=mailbox_namespace(cluster))
            except NotFound:
                continue
