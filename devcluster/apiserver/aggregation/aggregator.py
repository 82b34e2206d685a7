# SPDX-License-Identifier: Apache-2.0
"""The group versions that other servers serve, and whether those servers are available.

Owns the condition `Available` of each APIService with a service, checked periodically and whenever its Service or
endpoints change, and the backend's discovery and OpenAPI entries, which this server's documents include. One task for
each such APIService.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import aiohttp

from devcluster.apiserver.aggregation.backends import Backend, Backends, why
from devcluster.apiserver.aggregation.local import COLLECTION, GROUP, LOCAL, LocalServices
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.conditions import set_conditions, store_status
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.service_addresses import ServiceAddresses, Unavailable
from devcluster.apiserver.storage.entry import StoredChange
from devcluster.pki import FrontProxy

_RETRY_SECONDS, _LATER, _CHECK_SECONDS = 0.2, 5.0, 30.0
_PATIENCE: Final = aiohttp.ClientTimeout(total=5.0)
_BACKENDS: Final = frozenset({"services", "endpointslices.discovery.k8s.io"})
_ASKER: Final = {"X-Remote-User": "system:kube-aggregator", "X-Remote-Group": "system:masters"}
_OPENAPI_ASKER: Final = {"X-Remote-User": "system:aggregator"}
_DISCOVERY: Final = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"
_AGGREGATED: Final = ",".join(_DISCOVERY.format(version) for version in ("v2", "v2beta1"))
"""The Accept header for a backend that may have either form."""


class Remote:
    """One version of a group that another server serves."""

    def __init__(self, name: str, spec: JsonObject) -> None:
        self.name = name
        self.spec = spec
        self.available = False
        self.resources: list[JsonObject] | None = None
        """The resources for discovery, once known."""
        self.documents: dict[str, JsonObject] = {}
        """Its entries in the index of OpenAPI v3, by path."""
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def group(self) -> str:
        """Its group."""
        return str(self.spec["group"])

    @property
    def version(self) -> str:
        """Its version."""
        return str(self.spec["version"])


class Aggregator:
    """Keeps the state of the aggregated APIs."""

    def __init__(self, context: ServerContext, *, addresses: ServiceAddresses, proxy: FrontProxy | None) -> None:
        self._context = context
        self._local = LocalServices(context)
        self._session: aiohttp.ClientSession | None = None
        self._ended: set[asyncio.Task[None]] = set()
        self.backends = Backends(addresses, proxy=proxy)
        self.remotes: dict[tuple[str, str], Remote] = {}
        """By group and version."""
        self.generation = 0
        """Grows when their part of discovery or OpenAPI changes."""
        for value in context.objects(COLLECTION):
            self._take(value)
        context.store.listen(self._changed)

    @property
    def session(self) -> aiohttp.ClientSession:
        """The HTTP session for all backends."""
        if self._session is None:
            # Proxies from the environment are not used for backends on this machine; bodies pass unchanged.
            self._session = aiohttp.ClientSession(
                trust_env=False,
                auto_decompress=False,
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            )
        return self._session

    async def close(self) -> None:
        """Stop the checks and close the session."""
        tasks = [remote.task for remote in self.remotes.values() if remote.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._ended, return_exceptions=True)
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            await asyncio.sleep(0)  # closed transports release their sockets one turn later

    def _changed(self, collection: str, event: StoredChange) -> None:
        if collection == COLLECTION:
            if event.entry is None:
                self._drop(event.key)
            else:
                self._take(event.value())
        elif collection in _BACKENDS and self.remotes:
            namespace, _, name = event.key.partition("/")
            for remote in self.remotes.values():
                service = remote.spec["service"]
                if service["namespace"] == namespace and (collection != "services" or service["name"] == name):
                    remote.wake.set()

    def _take(self, value: JsonObject) -> None:
        spec, name = value["spec"], value["metadata"]["name"]
        if spec.get("service") is None:
            self._drop(name)
            if not documents.items(value, "status", "conditions"):
                self._set_available(name, LOCAL)
            return
        remote = self.remotes.get((spec["group"], spec["version"]))
        if remote is None:
            remote = self.remotes[spec["group"], spec["version"]] = Remote(name, documents.copy(spec))
            remote.task = asyncio.get_running_loop().create_task(self._keep(remote), name=f"APIService {name}")
        elif remote.spec != spec:
            remote.spec = documents.copy(spec)
            remote.wake.set()
        else:
            return
        self.generation += 1

    def _drop(self, name: str) -> None:
        for key, remote in list(self.remotes.items()):
            if remote.name == name:
                del self.remotes[key]
                self.generation += 1
                if remote.task is not None:
                    remote.task.cancel()
                    self._ended.add(remote.task)
                    remote.task.add_done_callback(self._ended.discard)

    async def _keep(self, remote: Remote) -> None:
        """Check the backend periodically."""
        delay = _RETRY_SECONDS
        while True:
            remote.wake.clear()
            try:
                await self._examine(remote)
            except Unavailable as error:
                found, seconds = ("False", error.reason, str(error)), delay
                delay = min(delay * 2, _LATER)
            else:
                found, seconds, delay = ("True", "Passed", "all checks passed"), _CHECK_SECONDS, _RETRY_SECONDS
            if remote.wake.is_set():
                continue  # the registration changed meanwhile
            if remote.available is not (found[0] == "True"):
                remote.available = found[0] == "True"
                self.generation += 1
            self._set_available(remote.name, ("Available", *found))
            try:
                async with asyncio.timeout(seconds):
                    await remote.wake.wait()
            except TimeoutError:
                continue

    async def _examine(self, remote: Remote) -> None:
        """Read the backend's discovery and OpenAPI index. Raises `Unavailable`."""
        backend = self.backends.find(remote.spec)
        path = f"/apis/{remote.group}/{remote.version}"
        url = f"{backend.url}{path}"
        about = f"failing or missing response from {url}"
        try:
            status, listed, _ = await self._get(backend, path, _ASKER)
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable("FailedDiscoveryCheck", f'{about}: Get "{url}": {why(error)}') from error
        if not 200 <= status < 300:
            raise Unavailable("FailedDiscoveryCheck", f"{about}: bad status from {url}: {status}")
        try:
            _, groups, media = await self._get(backend, "/apis", {**_ASKER, "Accept": _AGGREGATED})
            resources = _of_list(groups, remote.group, remote.version) if "as=APIGroupDiscoveryList" in media else None
            _, index, _ = await self._get(backend, "/openapi/v3", _OPENAPI_ASKER)
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable("FailedDiscoveryCheck", f'{about}: Get "{url}": {why(error)}') from error
        resources = _of_resources(listed) if resources is None else resources
        paths = documents.child(index, "paths") if isinstance(index, dict) else documents.EMPTY
        own = {key: entry for key, entry in paths.items() if key == path.strip("/") and isinstance(entry, dict)}
        if (resources, own) != (remote.resources, remote.documents):
            remote.resources, remote.documents = resources, own
            self.generation += 1

    async def _get(self, backend: Backend, path: str, headers: Mapping[str, str]) -> tuple[int, JsonValue, str]:
        """Status, document (None if it is not JSON) and media type of an answer."""
        async with self.session.get(
            f"{backend.url}{path}",
            headers=headers,
            ssl=backend.tls,
            server_hostname=backend.server_name,
            timeout=_PATIENCE,
        ) as answer:
            raw = await answer.read()
            try:
                found = documents.load(raw)
            except ValueError:
                found = None
            return answer.status, found, answer.headers.get("Content-Type", "")

    def _set_available(self, name: str, condition: tuple[str, str, str, str]) -> None:
        value = self._context.get(COLLECTION, name)
        kind = self._context.registry.find(GROUP, "v1", "apiservices")
        if value is None or kind is None:
            return
        old = documents.copy(value)
        set_conditions(value, [condition], self._context.stamp())
        store_status(self._context, kind, value, old=old)


def _of_list(value: JsonValue, group: str, version: str) -> list[JsonObject]:
    """The resources of one version in an APIGroupDiscoveryList."""
    if isinstance(value, dict):
        for found in documents.items(value, "items"):
            for entry in documents.items(found, "versions"):
                if documents.metadata(found).get("name") == group and entry.get("version") == version:
                    return documents.items(entry, "resources")
    return []


def _of_resources(value: JsonValue) -> list[JsonObject]:
    """The same from an APIResourceList."""
    found: dict[str, JsonObject] = {}
    if not isinstance(value, dict):
        return []
    for entry in documents.items(value, "resources"):
        name, _, sub = str(entry.get("name", "")).partition("/")
        kind = {field: entry.get(field, "") for field in ("group", "version", "kind")}
        if sub:
            parent = found.get(name)
            if parent is not None:
                listed = {"subresource": sub, "responseKind": kind, "verbs": entry.get("verbs", [])}
                parent.setdefault("subresources", []).append(listed)
            continue
        found[name] = {
            "resource": name,
            "responseKind": kind,
            "scope": "Namespaced" if entry.get("namespaced") else "Cluster",
            "singularResource": entry.get("singularName", ""),
            "verbs": entry.get("verbs", []),
        }
        for field in ("shortNames", "categories"):
            if entry.get(field):
                found[name][field] = entry[field]
    return list(found.values())
