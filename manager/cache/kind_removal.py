# SPDX-License-Identifier: Apache-2.0
"""Whether a job kind was removed from the management cluster, so that none of its objects exists any more.

An API server that removes a CustomResourceDefinition deletes its objects, but may end a watch before it has sent these
deletions; from then on LIST and WATCH answer 404. When the objects are taken to be deleted, their Workloads and remote
jobs are deleted too, so that one odd answer must not suffice. A look finds a kind removed if all of these hold:

1. LIST in all namespaces answers 404, and not because of something else, such as a namespace.
2. GET of the CustomResourceDefinition answers 404 with a `Status` that names it, which no proxy's page does. One that
   exists has its objects, also if it does not serve this version, or is being deleted. Without the right to read it
   (403), nothing is concluded.
3. Discovery answers 200 without the kind: that of the group and version, or if this is 404, that of all groups. An
   aggregated API has no definition, but is listed there also while its server is away (503) or answers 404.

`LOOKS` looks in a row have to find it removed; any other answer, such as 429, 500 or none, is no such look.
"""

from __future__ import annotations

import logging
from typing import Final

from multikueue.api.resource import CUSTOM_RESOURCE_DEFINITIONS, Resource
from multikueue.kube.errors import ApiError, KubeError, NotFound
from multikueue.kube.rest.client import KubeClient

LOOKS: Final = 2
"""How many looks in a row have to find a kind removed."""

_log = logging.getLogger(__name__)

_NOT_FOUND: Final = "NotFound"
_ANSWER_SECONDS: Final = 10.0


class KindRemoval:
    """The looks at one kind."""

    def __init__(self, client: KubeClient, resource: Resource) -> None:
        self._client = client
        self._resource = resource
        self._looks = 0

    def begin_anew(self) -> None:
        """Forget the looks so far: the server has the kind."""
        self._looks = 0

    async def confirms(self) -> bool:
        """Look once more; whether enough looks in a row found the kind removed."""
        self._looks = self._looks + 1 if await self._looks_removed() else 0
        return self._looks >= LOOKS

    async def _looks_removed(self) -> bool:
        if not can_be_removed(self._resource):
            return False
        try:
            return await self._is_not_listed() and await self._has_no_definition() and await self._is_not_discovered()
        except KubeError as error:
            _log.info(
                "cannot look whether kind was removed, its objects are kept crd=%s error=%s",
                self._resource.qualified,
                error,
            )
            return False

    async def _is_not_listed(self) -> bool:
        try:
            await self._client.list_page(self._resource, limit=1, metadata_only=True)
        except NotFound as error:
            return is_about_kind(error, self._resource)
        return False

    async def _has_no_definition(self) -> bool:
        name = self._resource.qualified
        try:
            await self._client.get(CUSTOM_RESOURCE_DEFINITIONS, name, metadata_only=True)
        except NotFound as error:
            return is_about_object(error, name, CUSTOM_RESOURCE_DEFINITIONS)
        return False

    async def _is_not_discovered(self) -> bool:
        group, version = self._resource.group, self._resource.version
        try:
            return lacks_resource(await self._document(f"/apis/{group}/{version}"), self._resource)
        except NotFound:
            return lacks_version(await self._document("/apis"), self._resource)

    async def _document(self, path: str) -> object:
        response = await self._client.request("GET", path, timeout=_ANSWER_SECONDS)
        try:
            return response.json()
        except ValueError:
            return None


def can_be_removed(resource: Resource) -> bool:
    """Whether the kind may have a CustomResourceDefinition: the groups of Kubernetes' own job kinds have no domain."""
    return "." in resource.group


def is_about_object(error: ApiError, name: str, resource: Resource) -> bool:
    """Whether an API server says that there is no object of that name; a page of a proxy has no such details."""
    details = error.details
    return error.reason == _NOT_FOUND and details.name == name and details.kind in (resource.plural, resource.kind)


def is_about_kind(error: ApiError, resource: Resource) -> bool:
    """Whether a 404 can mean that the resource is not served; an API server may answer that without a `Status`."""
    return error.details.kind in ("", resource.plural, resource.kind)


def lacks_resource(document: object, resource: Resource) -> bool:
    """Whether this is the discovery of the group and version, complete and without the resource."""
    if not isinstance(document, dict) or document.get("kind") != "APIResourceList":
        return False
    entries = document.get("resources")
    if document.get("groupVersion") != resource.api_version or not isinstance(entries, list):
        return False
    return all(isinstance(each, dict) and each.get("name") != resource.plural for each in entries)


def lacks_version(document: object, resource: Resource) -> bool:
    """Whether this is the discovery of all groups, without the version of that group.

    A list without the group of definitions, one of which was just asked for, is not complete.
    """
    if not isinstance(document, dict) or document.get("kind") != "APIGroupList":
        return False
    versions = {
        version.get("groupVersion")
        for group in _dicts(document.get("groups"))
        for version in _dicts(group.get("versions"))
    }
    return CUSTOM_RESOURCE_DEFINITIONS.api_version in versions and resource.api_version not in versions


def _dicts(value: object) -> list[dict[str, object]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
