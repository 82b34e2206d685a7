# SPDX-License-Identifier: Apache-2.0
"""`mkctl cluster recover`: fill a management cluster again from what its workers run (ADR 0010).

Owns the conversation with an agent by way of its ClusterReport, page by page, and the writes on the management
cluster. They are made with the administrator's rights: an agent can report copies, but not make anything of them. An
agent that the manager hosts (push) has no mailbox to be asked in: it is asked in a ClusterReport beside the manager's
own objects, which is there for as long as the conversation lasts.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import anyio
import orjson

from multikueue.api.constants import (
    DEFAULT_NAMESPACE,
    JOB_UID_LABEL,
    MAILBOX_OBJECT_NAME,
    TRANSPORT_ANNOTATION,
    Transport,
)
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import CLUSTER_REPORTS, MULTIKUEUE_CLUSTERS, NAMESPACES, WORKLOADS
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.integrations.protocol import JobIntegration
from multikueue.integrations.recovery import Fate, Verdict, judge, note, recreated
from multikueue.integrations.registry import INTEGRATIONS, Registry
from multikueue.kube.client import KubeClient
from multikueue.kube.errors import AlreadyExists, NotFound

_LOOK_SECONDS: Final = 0.5
_MAX_DISCARDED: Final = 100


class Wanted(StrEnum):
    """What is to become of the orphans."""

    LIST = "list"
    ADOPT = "adopt"
    DISCARD = "discard"


@dataclass
class Found:
    """Every orphan with what was, or would be, done about it."""

    entries: list[JsonObject] = field(default_factory=list)

    def add(self, orphan: JsonObject, action: str, why: str) -> None:
        """One more."""
        shown = {name: orphan[name] for name in ("kind", "namespace", "name", "phase", "epoch", "managerUID")}
        self.entries.append({**shown, "action": action, "why": why})


async def recover(
    hub: KubeClient,
    cluster: str,
    *,
    wanted: Wanted,
    manager_uid: str = "",
    dry_run: bool = False,
    patience: float = 60.0,
    namespace: str = DEFAULT_NAMESPACE,
) -> Found:
    """Go through all orphans of a cluster. Raises `BadInput` when nothing can be asked or it is not clear for whom.

    `namespace` is the manager's own.
    """
    registry, found = Registry(INTEGRATIONS), Found()
    doomed: list[str] = []
    hosted = await _is_hosted(hub, cluster)
    place = Key(namespace, cluster) if hosted else Key(mailbox_namespace(cluster), MAILBOX_OBJECT_NAME)
    conversation = _Conversation(hub, cluster, place=place, hosted=hosted, patience=patience)
    async with conversation:
        orphans = [orphan async for orphan in _all(conversation)]
        managers = sorted({orphan["managerUID"] for orphan in orphans})
        if wanted is not Wanted.LIST and not manager_uid and len(managers) > 1:
            raise BadInput(f"they were made for several management clusters, name one: --manager {'|'.join(managers)}")
        for orphan in orphans:
            if manager_uid and orphan["managerUID"] != manager_uid:
                found.add(orphan, Fate.LEAVE, "made for another management cluster")
                continue
            of = registry.for_kind(orphan["apiVersion"], orphan["kind"])
            if wanted is Wanted.DISCARD:
                found.add(orphan, "discard", "")
                doomed.append(orphan["uid"])
                continue
            if of is None:
                found.add(orphan, Fate.LEAVE, "its kind is not known here")
                continue
            verdict = await _judge(hub, orphan, of)
            if wanted is Wanted.ADOPT and not dry_run:
                verdict = await _adopt(hub, cluster, orphan, verdict, of)
            found.add(orphan, verdict.fate, verdict.why)
        if not dry_run:
            for start in range(0, len(doomed), _MAX_DISCARDED):
                await conversation.ask(discard=doomed[start : start + _MAX_DISCARDED])
    return found


class _Conversation:
    """Requests in the spec of a ClusterReport, and answers in its status."""

    def __init__(self, hub: KubeClient, cluster: str, *, place: Key, hosted: bool, patience: float) -> None:
        self._hub = hub
        self._cluster = cluster
        self._place = place
        self._hosted = hosted
        self._patience = patience

    async def __aenter__(self) -> _Conversation:
        if self._hosted:
            body = {
                "apiVersion": CLUSTER_REPORTS.api_version,
                "kind": CLUSTER_REPORTS.kind,
                "metadata": {"name": self._place.name, "namespace": self._place.namespace},
            }
            try:
                await self._hub.create(CLUSTER_REPORTS, body, namespace=self._place.namespace)
            except AlreadyExists:
                return self  # of a conversation that was broken off
            except NotFound as error:
                raise BadInput(
                    f"there is no namespace {self._place.namespace}; is the manager's another one?"
                ) from error
        return self

    async def __aexit__(self, *details: object) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(5):
            if self._hosted:
                with suppress(NotFound):
                    await self._hub.delete(CLUSTER_REPORTS, self._place.name, namespace=self._place.namespace)
            else:
                await self._say(None)

    async def ask(self, *, after: str = "", discard: list[str] | None = None) -> JsonObject:
        """The page behind `after`. Raises `BadInput` when the agent does not answer in time."""
        request = uuid.uuid4().hex
        await self._say({"request": request, "after": after, "discard": discard or []})
        with anyio.move_on_after(self._patience):
            while True:
                report = await self._hub.get_object(CLUSTER_REPORTS, self._place.name, namespace=self._place.namespace)
                orphans: JsonObject = (report.get("status") or {}).get("orphans") or {}
                if orphans.get("request") == request:
                    return orphans
                await anyio.sleep(_LOOK_SECONDS)
        who = "the manager" if self._hosted else "the agent"
        raise BadInput(f"{who} has not answered for {self._cluster} within {self._patience:g} s; does it run?")

    async def _say(self, recovery: JsonObject | None) -> None:
        body = {"spec": {"recovery": recovery}}
        try:
            await self._hub.patch(CLUSTER_REPORTS, self._place.name, body, namespace=self._place.namespace)
        except NotFound as error:
            if recovery is not None:
                raise BadInput(
                    f"{self._cluster} has no mailbox yet; is it registered, and does the manager run?"
                ) from error


async def _all(conversation: _Conversation) -> AsyncIterator[JsonObject]:
    after = ""
    while True:
        page = await conversation.ask(after=after)
        for orphan in page.get("items") or ():
            yield orphan
        after = page.get("next") or ""
        if not after:
            return


async def _is_hosted(hub: KubeClient, cluster: str) -> bool:
    """Whether the manager itself is the agent of that cluster."""
    try:
        found = await hub.get_object(MULTIKUEUE_CLUSTERS, cluster)
    except NotFound as error:
        raise BadInput(f"there is no MultiKueueCluster {cluster}") from error
    return (found["metadata"].get("annotations") or {}).get(TRANSPORT_ANNOTATION) != Transport.AGENT


async def _judge(hub: KubeClient, orphan: JsonObject, of: JobIntegration) -> Verdict:
    try:
        job = await hub.get_object(of.resource, orphan["name"], namespace=orphan["namespace"])
    except NotFound:
        return judge(orphan, None, None, of=of)
    return judge(orphan, job, await _workload_of(hub, job), of=of)


async def _workload_of(hub: KubeClient, job: JsonObject) -> JsonObject | None:
    selector = f"{JOB_UID_LABEL}={job['metadata']['uid']}"
    page = await hub.list_page(WORKLOADS, namespace=job["metadata"]["namespace"], label_selector=selector, limit=1)
    return orjson.loads(page.items[0]) if page.items else None


async def _adopt(hub: KubeClient, cluster: str, orphan: JsonObject, verdict: Verdict, of: JobIntegration) -> Verdict:
    """Do it; gives what came of it."""
    name, namespace = orphan["name"], orphan["namespace"]
    if verdict.fate is Fate.CREATE:
        await _ensure_namespace(hub, namespace)
        try:
            await hub.create(of.resource, recreated(orphan, cluster=cluster, of=of), namespace=namespace)
        except AlreadyExists:
            return Verdict(Fate.LEAVE, "a job of that name was made here meanwhile; run it again")
    elif verdict.fate is Fate.BIND:
        body = {"metadata": {"annotations": note(orphan, cluster=cluster, epoch=verdict.epoch)}}
        job = orjson.loads(await hub.patch(of.resource, name, body, namespace=namespace))
        workload = await _workload_of(hub, job)
        if workload is not None:
            # Which wakes the manager, too.
            metadata = workload["metadata"]
            answer = await hub.patch(WORKLOADS, metadata["name"], body, namespace=namespace)
            chosen = (orjson.loads(answer).get("status") or {}).get("clusterName")
            if chosen and chosen != cluster:
                return Verdict(Fate.LEAVE, f"the job of that name here was granted to {chosen} meanwhile")
    return verdict


async def _ensure_namespace(hub: KubeClient, namespace: str) -> None:
    body = {"apiVersion": NAMESPACES.api_version, "kind": NAMESPACES.kind, "metadata": {"name": namespace}}
    try:
        await hub.get(NAMESPACES, namespace)
    except NotFound:
        try:
            await hub.create(NAMESPACES, body)
        except AlreadyExists:
            return
