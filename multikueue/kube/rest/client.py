# SPDX-License-Identifier: Apache-2.0
"""The client of one API server: verbs on resources, bytes in and bytes out.

Owns the paths, queries and media types of each verb, and the count of requests. Parsing is left to the caller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from enum import StrEnum
from random import Random
from typing import Any, Final

import aiohttp
import orjson

from multikueue.api.resource import PODS, Resource
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.kube import errors
from multikueue.kube.rest import connection, json_slices, retries
from multikueue.kube.rest.connection import JSON, Answered, ApiConnection, Body, Response
from multikueue.kube.rest.credentials import ClusterConfig
from multikueue.kube.rest.watch import WatchEvent, read_events

__all__ = ["Answered", "Body", "KubeClient", "PatchKind", "Response"]

_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_ANYTHING: Final = "text/plain, */*"
_RBAC_VERBS: Final = {"POST": "create", "PUT": "update", "APPLY": "patch"}
_IDLE_WATCH: Final = 150.0  # API servers send a bookmark each minute; two missing ones mean a dead link


class PatchKind(StrEnum):
    """How the body of a patch is read."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    APPLY = "application/apply-patch+yaml"


class KubeClient(ApiConnection):
    """The verbs of one API server, on resources.

    All methods raise `ApiError` or `Unreachable`; cancelling one closes its connection.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        clock: Clock | None = None,
        qps: float | None = None,
        burst: int | None = None,
        connections: int = 64,
        max_answer_bytes: int | None = None,
        idle_watch_seconds: float = _IDLE_WATCH,
        user_agent: str = "multikueue",
        random: Random | None = None,
    ) -> None:
        """`max_answer_bytes` limits one answer or watch event of an untrusted server."""
        super().__init__(
            config,
            clock=clock,
            qps=qps,
            burst=burst,
            connections=connections,
            max_answer_bytes=max_answer_bytes,
            user_agent=user_agent,
            random=random,
        )
        self.requests_sent: Counter[tuple[str, str]] = Counter()
        self._idle_watch = idle_watch_seconds
        self._refused: Callable[[str, Resource, str, errors.Forbidden], None] = lambda *refused: None

    def follow_refusals(self, handler: Callable[[str, Resource, str, errors.Forbidden], None]) -> None:
        """Call `handler` for each answer 403, with the verb as in RBAC, the resource and the subresource or ""."""
        self._refused = handler

    # Reading

    async def get(
        self, resource: Resource, name: str, *, namespace: str | None = None, metadata_only: bool = False
    ) -> bytes:
        """The object; with `metadata_only` only its metadata."""
        accept = _METADATA if metadata_only else JSON
        return await self._call("GET", resource, namespace=namespace, name=name, accept=accept)

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
    ) -> json_slices.Page:
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
            accept=_METADATA_LIST if metadata_only else JSON,
            counted="LIST",
        )
        return json_slices.split(body)

    async def list_all(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        field_selector: str | None = None,
        limit: int = 500,
        metadata_only: bool = False,
    ) -> json_slices.Page:
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
                    return json_slices.Page(items, page.resource_version, None)
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

    async def log(
        self, pod: str, *, namespace: str, container: str, tail: int | None = None, limit_bytes: int | None = None
    ) -> bytes:
        """The log of a container, or its last `tail` lines; of these the first `limit_bytes` bytes."""
        query = {
            "container": container,
            "tailLines": None if tail is None else str(tail),
            "limitBytes": None if limit_bytes is None else str(limit_bytes),
        }
        return await self._call(
            "GET", PODS, namespace=namespace, name=pod, subresource="log", query=query, accept=_ANYTHING
        )

    async def stream_log(
        self,
        pod: str,
        *,
        namespace: str,
        container: str,
        tail: int | None = None,
        follow: bool = False,
        since: str | None = None,
    ) -> AsyncGenerator[bytes, None]:
        """The log of a container in pieces, each line with its time; with `follow` as it is written, until it ends.

        `since` is the time of the first line. Raises `Unreachable` if the connection breaks.
        """
        query = {
            "container": container,
            "timestamps": "true",
            "follow": "true" if follow else None,
            "tailLines": None if tail is None else str(tail),
            "sinceTime": since,
        }
        request = self._describe("GET", PODS, namespace, pod, "log")
        url = self._url(PODS.path(namespace, pod, "log"), query)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connection.CONNECT_TIMEOUT)
        self.requests_sent["GET", f"{PODS.plural}/log"] += 1
        response = await self._open("GET", url, request, watch=True, accept=_ANYTHING, timeout=timeout)
        async with response:
            try:
                async for piece in response.content.iter_any():
                    yield piece
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                raise retries.unreachable(request, error) from error

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
        """Events until the server ends the stream, which is not an error; `opened` is called once it has accepted.

        Raises `Gone` if `resource_version` is too old, and `Unreachable` if the connection breaks or receives nothing
        for longer than the interval of bookmarks.
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
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connection.CONNECT_TIMEOUT, sock_read=idle)
        accept = _METADATA if metadata_only else JSON
        try:
            response = await self._open("GET", url, request, watch=True, accept=accept, timeout=timeout)
        except errors.Forbidden as error:
            self._refused("watch", resource, "", error)
            raise
        async with response:
            if opened is not None:
                opened()
            async for event in read_events(response, request=request, max_bytes=self._max_answer_bytes):
                yield event

    # Writing

    async def create(
        self,
        resource: Resource,
        body: Body,
        *,
        namespace: str | None = None,
        field_manager: str | None = None,
        dry_run: bool = False,
    ) -> bytes:
        """The object as the server stored it. Raises `AlreadyExists`."""
        query = {"dryRun": "All" if dry_run else None, "fieldManager": field_manager}
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
        """Change part of an object; with `resource_version` only if it has that version (merge patches only)."""
        if resource_version is not None:
            if not isinstance(body, Mapping):
                raise BadInput(f"{resource.kind} {name}: only a merge patch can have an expected resourceVersion")
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
        answered: Answered | None = None,
    ) -> bytes:
        """Server-side apply: `manager` owns the fields in `body` and no others.

        Unknown fields get no warning: to look for them, a kube-apiserver parses the body a second time, as YAML, which
        is a tenth of the CPU time of a Workload's status.
        """
        return await self._call(
            "PATCH",
            resource,
            namespace=namespace,
            name=name,
            subresource=subresource,
            query={"fieldManager": manager, "force": "true" if force else "false", "fieldValidation": "Ignore"},
            body=body,
            content_type=PatchKind.APPLY.value,
            counted="APPLY",
            answered=answered,
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
        """Delete; `uid` and `resource_version` are preconditions. Raises `Conflict` if they do not match."""
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
        """Delete all objects that match the selector, in one request."""
        query = {"labelSelector": label_selector, "propagationPolicy": propagation}
        return await self._call("DELETE", resource, namespace=namespace, query=query, counted="DELETECOLLECTION")

    async def server_version(self) -> str:
        """`gitVersion` of the server."""
        return str((await self.request("GET", "/version")).json()["gitVersion"])

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
        content_type: str = JSON,
        accept: str = JSON,
        counted: str | None = None,
        answered: Answered | None = None,
    ) -> bytes:
        counter = f"{resource.plural}/{subresource}" if subresource else resource.plural
        self.requests_sent[counted or verb, counter] += 1
        try:
            response = await self.request(
                verb,
                resource.path(namespace, name, subresource),
                query=query,
                body=body,
                content_type=content_type,
                accept=accept,
                request=self._describe(counted or verb, resource, namespace, name, subresource),
                answered=answered,
            )
        except errors.Forbidden as error:
            rbac_verb = _RBAC_VERBS.get(counted or verb, (counted or verb).lower())
            self._refused(rbac_verb, resource, subresource or "", error)
            raise
        return response.body

    def _describe(
        self, verb: str, resource: Resource, namespace: str | None, name: str | None, subresource: str | None = None
    ) -> str:
        where = "/".join(part for part in (namespace, name) if part)
        what = f"{resource.qualified}/{subresource}" if subresource else resource.qualified
        return f"{self.config.name}: {verb} {what} {where}".rstrip()
