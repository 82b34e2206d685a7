# SPDX-License-Identifier: Apache-2.0
"""Reads objects of any kind from YAML files, and creates, applies and deletes them on an API server.

Owns the dependency order, and the resource of a kind (built-in table first, then discovery). Used by devclusters, the
demo and tests; reconcilers do not use it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import yaml

from devcluster.errors import TimedOut
from devcluster.together import together
from multikueue.api import resource as resources
from multikueue.api.meta import JsonObject
from multikueue.api.resource import Resource
from multikueue.core.conditions import is_true_in
from multikueue.core.errors import BadInput

if TYPE_CHECKING:
    from multikueue.kube.rest.client import KubeClient

FIELD_MANAGER: Final = "mkctl"
_FIRST: Final = ("Namespace", "CustomResourceDefinition")  # other objects depend on these
_KNOWN: Final = {(value.group, value.kind): value for value in vars(resources).values() if isinstance(value, Resource)}
_POLL_SECONDS: Final = 0.05
_SERVED_SECONDS: Final = 10.0


def read(path: Path) -> list[JsonObject]:
    """The objects in a YAML file, or in all YAML files of a folder in the order of their names."""
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    objects: list[JsonObject] = []
    for file in files:
        for document in yaml.load_all(file.read_bytes(), Loader=yaml.CSafeLoader):
            if document is None:
                continue
            if not isinstance(document, dict) or "kind" not in document or "apiVersion" not in document:
                raise BadInput(f"{file}: a document is not a Kubernetes object: apiVersion or kind is missing")
            objects.append(document)
    return objects


def in_order(objects: Iterable[JsonObject]) -> list[JsonObject]:
    """Namespaces and definitions first, the rest as given."""
    return sorted(objects, key=lambda manifest: manifest["kind"] not in _FIRST)


def split_definitions(objects: Iterable[JsonObject]) -> tuple[list[JsonObject], list[JsonObject]]:
    """The CustomResourceDefinitions, and the other objects."""
    definitions: list[JsonObject] = []
    others: list[JsonObject] = []
    for manifest in objects:
        (definitions if manifest["kind"] == "CustomResourceDefinition" else others).append(manifest)
    return definitions, others


async def create_all(client: KubeClient, objects: Sequence[JsonObject], *, defined: bool = False) -> None:
    """Create each object; existing objects are not changed. Returns when all definitions are served.

    `defined` are definitions of these objects created a moment ago, so that their kinds may not be served yet.
    """
    from multikueue.kube.errors import AlreadyExists

    async def create(resource: Resource, manifest: JsonObject) -> None:
        try:
            await client.create(resource, manifest, namespace=_namespace(manifest, resource))
        except AlreadyExists:
            return

    await _each(client, objects, create, defined=defined)


async def apply_all(client: KubeClient, objects: Sequence[JsonObject]) -> None:
    """Apply each object by server-side apply; returns when all definitions among them are served."""

    async def apply(resource: Resource, manifest: JsonObject) -> None:
        name: str = manifest["metadata"]["name"]
        await client.apply(resource, name, manifest, namespace=_namespace(manifest, resource), manager=FIELD_MANAGER)

    await _each(client, objects, apply)


async def _each(
    client: KubeClient,
    objects: Sequence[JsonObject],
    write: Callable[[Resource, JsonObject], Awaitable[None]],
    *,
    defined: bool = False,
) -> None:
    from multikueue.kube.errors import NotFound

    async def write_one(manifest: JsonObject) -> None:
        await write(await resource_of(client, manifest), manifest)

    first = [manifest for manifest in objects if manifest["kind"] in _FIRST]
    await together(*(write_one(manifest) for manifest in first))
    await wait_until_served(client, first)
    deadline = anyio.current_time() + _SERVED_SECONDS
    for manifest in objects:
        while manifest["kind"] not in _FIRST:
            try:
                await write_one(manifest)
            except NotFound:
                # A definition is established a moment before its path is served.
                if not (first or defined) or anyio.current_time() > deadline:
                    raise
                await anyio.sleep(_POLL_SECONDS)
            else:
                break


async def apply_when_served(client: KubeClient, objects: Sequence[JsonObject], *, within: float = 30.0) -> None:
    """Apply objects, and retry while our webhook is not reachable: it starts a moment after its manager."""
    from multikueue.kube.errors import InternalError

    deadline = anyio.current_time() + within
    while True:
        try:
            await apply_all(client, objects)
        except InternalError:
            if anyio.current_time() > deadline:
                raise
            await anyio.sleep(_POLL_SECONDS)
        else:
            return


async def delete_all(client: KubeClient, objects: Sequence[JsonObject], *, within: float = 60.0) -> None:
    """Delete the objects in reverse order and wait until they are gone. Raises `TimedOut` with the remaining names."""
    from multikueue.kube.errors import NotFound

    left: list[tuple[Resource, str, str | None]] = []
    for manifest in reversed(in_order(objects)):
        resource = await resource_of(client, manifest)
        name, namespace = manifest["metadata"]["name"], _namespace(manifest, resource)
        try:
            await client.delete(resource, name, namespace=namespace, propagation="Background")
        except NotFound:
            continue
        left.append((resource, name, namespace))
    with anyio.move_on_after(within):
        while left:
            left = [entry for entry in left if await _exists(client, *entry)]
            if not left:
                return
            await anyio.sleep(_POLL_SECONDS)
    if left:
        names = ", ".join(f"{resource.kind} {name}" for resource, name, _ in left)
        raise TimedOut(f"not deleted after {within:.0f} s: {names}")


async def wait_until_served(client: KubeClient, objects: Iterable[JsonObject], *, within: float = 30.0) -> None:
    """Wait until each CustomResourceDefinition among the objects is established."""
    waiting = [manifest["metadata"]["name"] for manifest in objects if manifest["kind"] == "CustomResourceDefinition"]
    with anyio.move_on_after(within):
        while waiting:
            if await _established(client, waiting[-1]):
                waiting.pop()
            else:
                await anyio.sleep(_POLL_SECONDS)
    if waiting:
        raise TimedOut(f"the API server does not serve {', '.join(waiting)} after {within:.0f} s")


async def resource_of(client: KubeClient, manifest: JsonObject) -> Resource:
    """The resource of the object's kind. Raises `BadInput` if the API server does not serve it."""
    from multikueue.kube.errors import NotFound

    group, _, version = str(manifest["apiVersion"]).rpartition("/")
    kind = str(manifest["kind"])
    known = _KNOWN.get((group, kind))
    if known is not None:
        return known.at(version)
    base = f"/apis/{group}/{version}" if group else f"/api/{version}"
    try:
        listed = (await client.request("GET", base)).json()["resources"]
    except NotFound as error:
        raise BadInput(f"{kind}: the API server does not serve {manifest['apiVersion']}") from error
    for entry in listed:
        if entry["kind"] == kind and "/" not in entry["name"]:
            return Resource(group, version, kind, entry["name"], entry["namespaced"])
    raise BadInput(f"the API server does not serve {kind} in {manifest['apiVersion']}")


async def _exists(client: KubeClient, resource: Resource, name: str, namespace: str | None) -> bool:
    from multikueue.kube.errors import NotFound

    try:
        await client.get(resource, name, namespace=namespace)
    except NotFound:
        return False
    return True


async def _established(client: KubeClient, name: str) -> bool:
    definition = await client.get_object(resources.CUSTOM_RESOURCE_DEFINITIONS, name)
    return is_true_in(definition.get("status"), "Established")


def _namespace(manifest: JsonObject, resource: Resource) -> str | None:
    return manifest["metadata"].get("namespace", "default") if resource.namespaced else None
