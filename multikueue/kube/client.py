# SPDX-License-Identifier: Apache-2.0
"""Requests to one API server: bytes in, bytes out.

Owns verbs, paths, headers, timeouts and the safe retries. Promises that every failure is an `ApiError` or `Unreachable`
that names the cluster, the verb and the object; that a request is repeated only where that cannot do harm (it was never
sent, or the server refused to look at it); that a 401 renews the credentials once. Leaves parsing to the caller.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import anyio
import orjson
from yarl import URL

from multikueue import __version__
from multikueue.api.resource import Resource
from multikueue.core.clock import Clock, SystemClock
from multikueue.core.errors import BadInput
from multikueue.kube import errors, pages, retries, transport
from multikueue.kube.credentials import ClusterConfig
from multikueue.kube.limiter import Limiter
from multikueue.kube.watch import WatchEvent, read_events

Body = Mapping[str, Any] | bytes

_JSON: Final = "application/json"
_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_LAYERS: Final = 4  # session, connector, TLS, TCP
_IDLE_WATCH: Final = 150.0  # API servers send a bookmark each minute; two missing ones mean a dead link


class PatchKind(StrEnum):
    """How the body of a patch is read."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Response:
    """An answer below 400."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The parsed body."""
        return orjson.loads(self.body)


class KubeClient:
    """One API server as one identity. An async context manager: leaving it closes all connections.

    All methods raise `ApiError` or `Unreachable`; cancelling one drops its connection.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        clock: Clock | None = None,
        qps: float | None = None,
        burst: int | None = None,
        connections: int = 64,
        idle_watch_seconds: float = _IDLE_WATCH,
        user_agent: str = "multikueue",
        random: Random | None = None,
    ) -> None:
        self.config = config
        self._random = random or Random()
        self.requests_sent: Counter[tuple[str, str]] = Counter()
        self._clock = clock or SystemClock()
        self._limiter = Limiter(qps=qps, burst=burst or int(2 * qps) or 1, clock=self._clock) if qps else None
        self._connections = connections
        self._idle_watch = idle_watch_seconds
        self._calls: aiohttp.ClientSession | None = None
        self._watches: aiohttp.ClientSession | None = None
        self._user_agent = f"{user_agent}/{__version__}"
        self._headers: dict[str, str] = {}
        self._groups: tuple[str, ...] = ()
        self.use(config)

    def use(self, config: ClusterConfig) -> None:
        """Send every later request by `config`. It must be the same server: open watches go on as who they were."""
        self.config = config
        self._headers = {"User-Agent": self._user_agent, **config.headers}
        if config.impersonate is not None:
            self._headers["Impersonate-User"] = config.impersonate.user
        self._groups = config.impersonate.groups if config.impersonate else ()

    async def __aenter__(self) -> Self:
        self._calls = transport.call_session(limit=self._connections)
        self._watches = transport.watch_session()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):  # a task that is cancelled leaves its connections no less
            for session in (self._calls, self._watches):
                if session is not None:
                    await session.close()
            # A socket under TLS is closed one turn of the loop later for each layer, after aiohttp says that it is.
            for _ in range(_LAYERS):
                await asyncio.sleep(0)

    # Reading

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> bytes:
        """The object."""
        return await self._call("GET", resource, namespace=namespace, name=name)

    async def get_object(self, resource: Resource, name: str, *, namespace: str | None = None) -> dict[str, Any]:
        """The object, parsed."""
        parsed: dict[str, Any] = orjson.loads(await self.get(resource, name, namespace=namespace))
        return parsed

    async def list_page(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int = 500,
        continue_token: str | None = None,
        resource_version: str | None = None,
        metadata_only: bool = False,
    ) -> pages.Page:
        """One page. Raises `Gone` when the continue token is too old."""
        query = {
            "limit": str(limit) if limit else None,
            "continue": continue_token,
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "resourceVersion": resource_version if not continue_token else None,
        }
        body = await self._call(
            "GET",
            resource,
            namespace=namespace,
            query=query,
            accept=_METADATA_LIST if metadata_only else _JSON,
            counted="LIST",
        )
        return pages.split(body)

    async def list_all(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int = 500,
        metadata_only: bool = False,
    ) -> pages.Page:
        """All pages as one; falls back to one unpaged list when the snapshot under the pages expires."""
        items: list[bytes] = []
        token: str | None = None
        try:
            while True:
                page = await self.list_page(
                    resource,
                    namespace=namespace,
                    label_selector=label_selector,
                    field_selector=field_selector,
                    limit=limit,
                    continue_token=token,
                    metadata_only=metadata_only,
                )
                items += page.items
                token = page.continue_token
                if not token:
                    return pages.Page(items, page.resource_version, None)
        except errors.Gone:
            if token is None:
                raise
        return await self.list_page(
            resource,
            namespace=namespace,
            label_selector=label_selector,
            field_selector=field_selector,
            limit=0,
            metadata_only=metadata_only,
        )

    async def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        resource_version: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        timeout_seconds: float = 300.0,
        bookmarks: bool = True,
        metadata_only: bool = False,
        opened: Callable[[], None] | None = None,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Events until the server ends the stream, which is no error; `opened` is called when it has accepted.

        Raises `Gone` when `resource_version` is too old, and `Unreachable` when the link is cut, or silent for longer
        than the time in which a bookmark must come.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true" if bookmarks else None,
            "resourceVersion": resource_version,
            "labelSelector": label_selector,
            "fieldSelector": field_selector,
            "timeoutSeconds": str(int(timeout_seconds)),
        }
        request = self._describe("WATCH", resource, namespace, None)
        url = self._url(resource.path(namespace), query)
        self.requests_sent["WATCH", resource.plural] += 1
        idle = min(self._idle_watch, timeout_seconds + 10.0)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=transport.CONNECT_TIMEOUT, sock_read=idle)
        accept = _METADATA if metadata_only else _JSON
        async with await self._open(self._watches, "GET", url, request, accept=accept, timeout=timeout) as response:
            if opened is not None:
                opened()
            async for event in read_events(response, request=request):
                yield event

    # Writing

    async def create(
        self, resource: Resource, body: Body, *, namespace: str | None = None, dry_run: bool = False
    ) -> bytes:
        """The object as the server stored it. Raises `AlreadyExists`."""
        query = {"dryRun": "All" if dry_run else None}
        return await self._call("POST", resource, namespace=namespace, query=query, body=body)

    async def replace(
        self,
        resource: Resource,
        name: str,
        body: Body,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> bytes:
        """PUT. Raises `Conflict` when the body's resourceVersion is not the current one."""
        return await self._call("PUT", resource, namespace=namespace, name=name, subresource=subresource, body=body)

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Body | list[dict[str, Any]],
        *,
        namespace: str | None = None,
        kind: PatchKind = PatchKind.MERGE,
        subresource: str | None = None,
        resource_version: str | None = None,
        manager: str | None = None,
    ) -> bytes:
        """Change part of an object; with `resource_version` only if it is still that one (merge patches)."""
        if resource_version is not None:
            if not isinstance(body, Mapping):
                raise BadInput(f"{resource.kind} {name}: only a merge patch can carry the version that it expects")
            metadata = {**body.get("metadata", {}), "resourceVersion": resource_version}
            body = {**body, "metadata": metadata}
        return await self._call(
            "PATCH",
            resource,
            namespace=namespace,
            name=name,
            subresource=subresource,
            query={"fieldManager": manager},
            body=body,
            content_type=kind.value,
        )

    async def apply(
        self,
        resource: Resource,
        name: str,
        body: Body,
        *,
        namespace: str | None = None,
        manager: str,
        force: bool = True,
        subresource: str | None = None,
    ) -> bytes:
        """Server-side apply: `manager` owns what `body` lists, and no longer what it does not."""
        return await self._call(
            "PATCH",
            resource,
            namespace=namespace,
            name=name,
            subresource=subresource,
            query={"fieldManager": manager, "force": "true" if force else "false"},
            body=body,
            content_type=PatchKind.APPLY.value,
            counted="APPLY",
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        propagation: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_seconds: int | None = None,
    ) -> bytes:
        """Delete; `uid` and `resource_version` are preconditions (`Conflict` when they do not hold)."""
        conditions = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": propagation,
            "gracePeriodSeconds": grace_seconds,
            "preconditions": {k: v for k, v in conditions.items() if v is not None} or None,
        }
        body = {key: value for key, value in options.items() if value is not None}
        return await self._call("DELETE", resource, namespace=namespace, name=name, body=body)

    async def delete_collection(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        propagation: str = "Background",
    ) -> bytes:
        """Delete all that the selector selects, in one request."""
        query = {"labelSelector": label_selector, "propagationPolicy": propagation}
        return await self._call("DELETE", resource, namespace=namespace, query=query, counted="DELETECOLLECTION")

    async def server_version(self) -> str:
        """`gitVersion` of the server."""
        return str((await self.request("GET", "/version")).json()["gitVersion"])

    # The one way out

    async def request(
        self,
        verb: str,
        path: str,
        *,
        query: Mapping[str, str | None] | None = None,
        body: Body | list[dict[str, Any]] | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        timeout: float | None = None,
        request: str | None = None,
    ) -> Response:
        """Any request by path, for what the verbs above do not cover."""
        request = request or f"{self.config.name}: {verb} {path}"
        url = self._url(path, query or {})
        data = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        limit = aiohttp.ClientTimeout(total=timeout, sock_connect=transport.CONNECT_TIMEOUT) if timeout else None
        attempt = 0
        while True:
            attempt += 1
            if self._limiter is not None and (wait := self._limiter.reserve()):
                await asyncio.sleep(wait)
            try:
                response = await self._open(
                    self._calls, verb, url, request, data=data, content_type=content_type, accept=accept, timeout=limit
                )
                async with response:
                    return Response(response.status, response.headers, await self._read(response, request))
            except errors.KubeError as error:
                delay = retries.delay(error, verb=verb, attempt=attempt, random=self._random)
                if delay is None:
                    raise
            await asyncio.sleep(delay)

    async def _call(
        self,
        verb: str,
        resource: Resource,
        *,
        namespace: str | None,
        name: str | None = None,
        subresource: str | None = None,
        query: Mapping[str, str | None] | None = None,
        body: Body | list[dict[str, Any]] | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        counted: str | None = None,
    ) -> bytes:
        counter = f"{resource.plural}/{subresource}" if subresource else resource.plural
        self.requests_sent[counted or verb, counter] += 1
        response = await self.request(
            verb,
            resource.path(namespace, name, subresource),
            query=query,
            body=body,
            content_type=content_type,
            accept=accept,
            request=self._describe(counted or verb, resource, namespace, name, subresource),
        )
        return response.body

    async def _open(
        self,
        session: aiohttp.ClientSession | None,
        verb: str,
        url: URL,
        request: str,
        *,
        data: bytes | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        timeout: aiohttp.ClientTimeout | None = None,
    ) -> aiohttp.ClientResponse:
        """Send and wait for the head of the answer; renews the credentials once on a 401."""
        if session is None:
            raise RuntimeError("KubeClient is used outside its `async with`")
        renewed = False
        while True:
            try:
                headers = await self._request_headers(accept, content_type if data is not None else None)
                tls = self.config.tls.context() if url.scheme == "https" else True
            except BadInput as error:
                raise errors.NoCredentials(f"{request}: {error}") from error
            try:
                response = await session.request(
                    verb,
                    url,
                    data=data,
                    headers=headers,
                    ssl=tls,
                    server_hostname=self.config.server_name,
                    proxy=self.config.proxy,
                    timeout=timeout or aiohttp.helpers.sentinel,
                    allow_redirects=False,
                )
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise retries.unreachable(request, error) from error
            if response.status < 300:
                return response
            async with response:
                failure = errors.from_response(
                    request=request,
                    status=response.status,
                    body=await self._read(response, request),
                    headers=response.headers,
                )
            tokens = self.config.tokens
            if isinstance(failure, errors.Unauthorized) and not renewed and tokens and await tokens.refresh():
                renewed = True
                continue
            raise failure

    async def _request_headers(self, accept: str, content_type: str | None) -> dict[str, str] | Any:
        headers = {**self._headers, "Accept": accept}
        if content_type is not None:
            headers["Content-Type"] = content_type
        if self.config.tokens is not None and (token := await self.config.tokens.token()):
            headers["Authorization"] = f"Bearer {token}"
        if not self._groups:
            return headers
        from multidict import CIMultiDict

        several = CIMultiDict(headers)
        for group in self._groups:
            several.add("Impersonate-Group", group)
        return several

    async def _read(self, response: aiohttp.ClientResponse, request: str) -> bytes:
        try:
            return await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise retries.unreachable(request, error) from error

    def _url(self, path: str, query: Mapping[str, str | None]) -> URL:
        url = URL(self.config.server + path, encoded=True)
        present = {key: value for key, value in query.items() if value is not None}
        return url.with_query(present) if present else url

    def _describe(
        self, verb: str, resource: Resource, namespace: str | None, name: str | None, subresource: str | None = None
    ) -> str:
        where = "/".join(part for part in (namespace, name) if part)
        what = f"{resource.qualified}/{subresource}" if subresource else resource.qualified
        return f"{self.config.name}: {verb} {what} {where}".rstrip()
