# SPDX-License-Identifier: Apache-2.0
"""The versions of groups that other servers serve, and whether they can be asked.

Owns what stands in an APIService with a service: the condition `Available`, kept true by asking the backend again and
again and whenever its Service or endpoints change, and what the backend says of itself in discovery and OpenAPI, which
this server's own documents take in. Each registration is looked after by a task, so a cluster without any has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import aiohttp

from multikueue.devcluster.apiserver import documents
from multikueue.devcluster.apiserver.aggregation.backends import Backend, Backends, Unavailable, why
from multikueue.devcluster.apiserver.aggregation.discovered import AGGREGATED, of_list, of_resources
from multikueue.devcluster.apiserver.aggregation.local import COLLECTION, GROUP, LOCAL, LocalServices
from multikueue.devcluster.apiserver.conditions import set_conditions, store_status
from multikueue.devcluster.apiserver.documents import JsonObject, JsonValue
from multikueue.devcluster.apiserver.storage.entry import Event
from multikueue.devcluster.apiserver.world import World
from multikueue.devcluster.pki import FrontProxy

_SOON, _LATER, _AGAIN = 0.2, 5.0, 30.0
_PATIENCE: Final = aiohttp.ClientTimeout(total=5.0)
_BACKENDS: Final = frozenset({"services", "endpointslices.discovery.k8s.io"})
_ASKER: Final = {"X-Remote-User": "system:kube-aggregator", "X-Remote-Group": "system:masters"}
_OPENAPI_ASKER: Final = {"X-Remote-User": "system:aggregator"}


class Remote:
    """One version of a group that another server serves."""

    def __init__(self, name: str, spec: JsonObject) -> None:
        self.name = name
        self.spec = spec
        self.available = False
        self.resources: list[JsonObject] | None = None
        """What discovery lists, once that is known."""
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
    """Knows the aggregated APIs."""

    def __init__(self, world: World, *, services: Mapping[str, str], proxy: FrontProxy | None) -> None:
        self._world = world
        self._local = LocalServices(world)
        self._session: aiohttp.ClientSession | None = None
        self._ended: set[asyncio.Task[None]] = set()
        self.backends = Backends(world, services=services, proxy=proxy)
        self.remotes: dict[tuple[str, str], Remote] = {}
        """By group and version."""
        self.generation = 0
        """Grows when what is said of them in discovery and OpenAPI changes."""
        for value in world.objects(COLLECTION):
            self._take(value)
        world.store.listen(self._changed)

    @property
    def session(self) -> aiohttp.ClientSession:
        """The connections to all backends."""
        if self._session is None:
            # Proxies of the environment are not for backends on this machine; bodies pass as they are.
            self._session = aiohttp.ClientSession(
                trust_env=False,
                auto_decompress=False,
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            )
        return self._session

    async def close(self) -> None:
        """Look after them no more."""
        tasks = [remote.task for remote in self.remotes.values() if remote.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *self._ended, return_exceptions=True)
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            await asyncio.sleep(0)  # closed transports give their sockets back one turn later

    def _changed(self, collection: str, event: Event) -> None:
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
                self._say(name, LOCAL)
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
        """Ask the backend again and again."""
        delay = _SOON
        while True:
            remote.wake.clear()
            try:
                await self._examine(remote)
            except Unavailable as error:
                found, seconds = ("False", error.reason, str(error)), delay
                delay = min(delay * 2, _LATER)
            else:
                found, seconds, delay = ("True", "Passed", "all checks passed"), _AGAIN, _SOON
            if remote.wake.is_set():
                continue  # what was found is of what has been
            if remote.available is not (found[0] == "True"):
                remote.available = found[0] == "True"
                self.generation += 1
            self._say(remote.name, ("Available", *found))
            try:
                async with asyncio.timeout(seconds):
                    await remote.wake.wait()
            except TimeoutError:
                continue

    async def _examine(self, remote: Remote) -> None:
        """Look whether the backend answers, and what it says of itself. Raises `Unavailable`."""
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
            _, groups, media = await self._get(backend, "/apis", {**_ASKER, "Accept": AGGREGATED})
            resources = of_list(groups, remote.group, remote.version) if "as=APIGroupDiscoveryList" in media else None
            _, index, _ = await self._get(backend, "/openapi/v3", _OPENAPI_ASKER)
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable("FailedDiscoveryCheck", f'{about}: Get "{url}": {why(error)}') from error
        resources = of_resources(listed) if resources is None else resources
        paths = documents.child(index, "paths") if isinstance(index, dict) else documents.EMPTY
        own = {key: entry for key, entry in paths.items() if key == path.strip("/") and isinstance(entry, dict)}
        if (resources, own) != (remote.resources, remote.documents):
            remote.resources, remote.documents = resources, own
            self.generation += 1

    async def _get(self, backend: Backend, path: str, headers: Mapping[str, str]) -> tuple[int, JsonValue, str]:
        """Status, document (None for what is no JSON) and media type of an answer."""
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

    def _say(self, name: str, condition: tuple[str, str, str, str]) -> None:
        value = self._world.get(COLLECTION, name)
        kind = self._world.registry.find(GROUP, "v1", "apiservices")
        if value is None or kind is None:
            return
        old = documents.copy(value)
        set_conditions(value, [condition], self._world.stamp())
        store_status(self._world, kind, value, old=old)
