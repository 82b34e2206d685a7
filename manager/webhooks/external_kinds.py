# SPDX-License-Identifier: Apache-2.0
"""The resources of kinds that another controller queues, which the Configuration names by kind only."""

from __future__ import annotations

from typing import Final, Protocol

from multikueue.api.resource import Resource
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt
from multikueue.kube.errors import KubeError
from multikueue.kube.rest.client import KubeClient

_ANSWER_SECONDS: Final = 5.0


class KindFinder(Protocol):
    """Where the resource of a kind is found."""

    async def resource(self, *, group: str, version: str, kind: str) -> Resource:
        """The resource of that kind. Raises `BadInput` if it cannot be found."""


class DiscoveredKinds:
    """Asks the API server once for each kind."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._found: dict[tuple[str, str], Resource] = {}

    async def resource(self, *, group: str, version: str, kind: str) -> Resource:
        """The resource of a kind that the Configuration names, in a version that a tenant wrote. Raises `BadInput`."""
        known = self._found.get((group, kind))
        if known is not None:
            return known
        if not version.isalnum() or not version.isascii():
            raise BadInput(f"expected a version such as v1, found {excerpt(version)}")
        try:
            response = await self._client.request("GET", f"/apis/{group}/{version}", timeout=_ANSWER_SECONDS)
            entries = response.json()["resources"]
            plural = next(str(each["name"]) for each in entries if each["kind"] == kind and "/" not in each["name"])
        except (KubeError, BadInput, KeyError, TypeError, ValueError, StopIteration) as error:
            raise BadInput(f"cannot find the resource of kind {excerpt(kind)} in {group}/{version}: {error}") from error
        found = self._found[group, kind] = Resource(group, version, kind, plural)
        return found
