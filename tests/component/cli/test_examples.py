# SPDX-License-Identifier: Apache-2.0
"""What `kubectl diff` compares: every example is stored as it is written, embedded and on a real API server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from devcluster import manifests
from devcluster.cluster import Cluster
from manager.dispatch.controller import DispatchController
from tests.support.managers import make_namespace, running_manager
from tests.support.tenant_hubs import hub

__all__ = ["hub"]

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[3] / "deploy" / "examples"
Object = dict[str, Any]


def documents() -> list[tuple[str, Object]]:
    """Each object of all examples with its file; a Configuration is a file of the manager and no object."""
    return [
        (str(file.relative_to(EXAMPLES)), document)
        for file in sorted(EXAMPLES.rglob("*.yaml"))
        for document in manifests.read(file)
        if document["kind"] != "Configuration"
    ]


def comparable(document: Object) -> Object:
    """Without what the API server sets itself, whatever an object is created with; `kubectl diff` leaves it out."""
    metadata = {key: value for key, value in document["metadata"].items() if key != "creationTimestamp"}
    return {key: value for key, value in (document | {"metadata": metadata}).items() if key != "status"}


def differences(written: Any, stored: Any, path: str = "") -> list[str]:
    """What of the manifest stands otherwise in the API."""
    if isinstance(written, dict):
        have = stored if isinstance(stored, dict) else {}
        return [each for key, value in written.items() for each in differences(value, have.get(key), f"{path}.{key}")]
    if isinstance(written, list) and isinstance(stored, list) and len(written) == len(stored):
        pairs = enumerate(zip(written, stored, strict=True))
        return [each for place, (one, other) in pairs for each in differences(one, other, f"{path}[{place}]")]
    return [] if written == stored else [f"{path}: written {written!r}, stored {stored!r}"]


async def test_every_example_is_stored_as_it_is_written(hub: Cluster) -> None:
    found = documents()
    assert len(found) > 40
    drift: list[str] = []
    async with running_manager(hub, dispatch=DispatchController), hub.client() as client:
        for name in {document["metadata"].get("namespace") or "default" for _, document in found}:
            await make_namespace(client, name)
        for file, document in found:
            resource = await manifests.resource_of(client, document)
            if document["kind"] == "Namespace":
                continue
            namespace = document["metadata"].get("namespace")
            stored = orjson.loads(await client.create(resource, document, namespace=namespace, dry_run=True))
            drift += [f"{file}{each}" for each in differences(comparable(document), stored)]
    assert drift == []
