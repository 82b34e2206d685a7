# SPDX-License-Identifier: Apache-2.0
"""The resources that an API server serves, read from aggregated discovery."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from multikueue.api.objects import JsonObject
from multikueue.api.resource import Resource
from multikueue.kube.rest.client import KubeClient

_AGGREGATED: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_NEEDED: Final = frozenset({"delete", "list", "watch"})


async def served(client: KubeClient) -> tuple[Resource, ...]:
    """Every resource that can be listed, watched and deleted, in the preferred version of its group."""
    found: list[Resource] = []
    for path in ("/api", "/apis"):
        answer = await client.request("GET", path, accept=_AGGREGATED)
        found += resources_of(answer.json())
    return tuple(found)


def resources_of(discovery: JsonObject) -> Iterator[Resource]:
    """The same for one aggregated discovery document. The first version of a group that has a resource is used."""
    for group in discovery.get("items") or ():
        name: str = (group.get("metadata") or {}).get("name", "")
        taken: set[str] = set()
        for version in group.get("versions") or ():
            for entry in _whole(version.get("resources") or ()):
                if entry["resource"] not in taken and set(entry.get("verbs") or ()) >= _NEEDED:
                    taken.add(entry["resource"])
                    yield Resource(
                        name,
                        version["version"],
                        entry["responseKind"]["kind"],
                        entry["resource"],
                        entry.get("scope") == "Namespaced",
                    )


def _whole(entries: Iterable[JsonObject]) -> Iterator[JsonObject]:
    return (entry for entry in entries if entry.get("responseKind"))
