# SPDX-License-Identifier: Apache-2.0
"""Sends ConfigMaps and Secrets of the hub with the jobs whose pods name them, and keeps them current (ADR 0021).

Owns what each assignment lists, and what is stored for each cluster. The manager reads single objects by name: it
neither lists nor watches them, so that it holds no contents and needs no right to all of them. An object is read when a
job is dispatched, and again in regular rounds as long as an assignment lists it. Promises that contents are stored
before an assignment lists them, that one that no assignment lists any more is removed in the next round, and that a
failure of the API server changes nothing of what was sent.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Final

import anyio

from manager.context import ManagerContext
from manager.dispatch.transport.mailbox_transport import Transport
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import MULTIKUEUE_CLUSTERS, WORKLOADS
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.sending.sending_policy import MAX_SENT_BYTES, SendingRules, not_sendable, sending_rules
from multikueue.dispatch.sending.sent_objects import (
    ObjectContents,
    SentReference,
    contents_of,
    mailbox_body,
    mailbox_name,
    references_wire,
)
from multikueue.dispatch.sending.sent_references import (
    NOT_FOUND,
    NOT_READ,
    SourceState,
    may_not_read,
    may_not_store,
    sent_references,
)
from multikueue.dispatch.worker.dependencies import SENDABLE_KINDS, Dependency, SendableObjects, sendable_objects
from multikueue.kube.cache.store import Row
from multikueue.kube.errors import Forbidden, KubeError, NotFound

_log = logging.getLogger(__name__)
LONGEST_ROUND_SECONDS: Final = 30.0
"""How long a change on the hub may take until it is sent; less with a shorter `gcInterval`."""
_WRITING_SECONDS: Final = 60.0  # how long an assignment may take until it is seen
AssignmentKey = tuple[str, Key]
"""A cluster and a workload."""


@dataclass(frozen=True, slots=True)
class _Source:
    """An object of the hub."""

    namespace: str
    needed: Dependency


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assigned:
    """What an assignment lists."""

    uid: str
    references: tuple[SentReference, ...]
    since: float


class ObjectSending:
    """The objects of all assignments."""

    def __init__(self, context: ManagerContext, transport: Transport, *, report: Callable[[str], JsonObject]) -> None:
        """`report` returns the last report of the agent of a cluster."""
        self._context = context
        self._transport = transport
        self._report = report
        self._assigned: dict[AssignmentKey, _Assigned] = {}
        self._stored: dict[str, dict[str, str]] = {}
        """By cluster, the versions of what is stored for it; of every cluster that objects were sent to."""
        self._storing = anyio.Lock()
        self._names: dict[str, tuple[int, SendableObjects]] = {}
        """By uid of the Workload, what its pods name in that generation."""

    async def completed(self, cluster: str, key: Key, workload: JsonObject, body: JsonObject) -> JsonObject:
        """The body of an assignment with what is sent, which is stored first. Raises what the API server answers."""
        rules = self._rules(cluster)
        if not rules.enabled:
            return body
        states: dict[Dependency, SourceState] = {}
        contents: dict[Dependency, ObjectContents] = {}
        uid: str = workload["metadata"]["uid"]
        left, names = MAX_SENT_BYTES, sendable_objects(workload["spec"].get("podSets") or ())
        for name in (each for each in names.names if each.kind in rules.kinds):
            states[name], read = await self._read(_Source(key.namespace, name))
            if read is not None and read.size <= left:
                left -= read.size
                contents[name] = read
        before = self._before(cluster, key, uid)
        references = []
        async with self._storing:
            for reference in self._references(cluster, names, states, rules=rules, before=before):
                read = contents.get(reference.needed)
                source = _Source(key.namespace, reference.needed)
                problem = await self._store(cluster, source, read) if reference.version and read is not None else ""
                references.append(SentReference(reference.needed, problem=problem) if problem else reference)
            self._enter(cluster, key, uid, references)
        return {**body, "spec": {**body["spec"], "sentObjects": references_wire(references)}} if references else body

    def written(self, cluster: str, key: Key) -> None:
        """The assignment was written: from now on it is seen as long as it exists."""
        known = self._assigned.get((cluster, key))
        if known is not None:
            self._assigned[cluster, key] = replace(known, since=-inf)

    async def run(self) -> None:
        """Keep what was sent current until cancelled."""
        interval = self._context.configuration.multikueue.gc_interval.total_seconds()
        pause = min(LONGEST_ROUND_SECONDS, interval or LONGEST_ROUND_SECONDS)
        while True:
            await anyio.sleep(pause)
            await self.refresh()

    async def refresh(self) -> None:
        """One round: read each object that is listed, store and list what changed, remove what is not listed."""
        clusters = {name: rules for name in self._clusters() if (rules := self._rules(name)).enabled}
        assigned = {
            (cluster, key): row
            for cluster in clusters
            for key in self._transport.workloads(cluster)
            if (row := self._context.caches.view(WORKLOADS).get(key)) is not None
        }
        self._forget(assigned)
        states = await self._states(clusters, assigned)
        for (cluster, key), row in assigned.items():
            try:
                await self._update(cluster, row, states, rules=clusters[cluster])
            except KubeError as error:
                _log.warning("sent objects not updated cluster=%s workload=%s error=%s", cluster, key, error)
        for cluster in {*clusters, *self._stored}:
            try:
                await self._sweep(cluster)
            except KubeError as error:
                _log.debug("sent objects not swept cluster=%s error=%s", cluster, error)
                continue
            if cluster not in clusters and not self._stored.get(cluster):
                self._stored.pop(cluster, None)

    async def _states(
        self, clusters: Mapping[str, SendingRules], assigned: Mapping[AssignmentKey, Row]
    ) -> dict[_Source, SourceState]:
        """The objects that assignments may list; one that could not be read is left out."""
        sources = {
            _Source(key.namespace, name): None
            for (cluster, key), row in assigned.items()
            for name in self._named(row).names
            if name.kind in clusters[cluster].kinds
        }
        found: dict[_Source, SourceState] = {}
        for source in sources:
            try:
                found[source], _ = await self._read(source)
            except KubeError as error:
                _log.warning("object not read namespace=%s object=%s error=%s", source.namespace, source.needed, error)
        return found

    async def _update(
        self, cluster: str, row: Row, states: Mapping[_Source, SourceState], *, rules: SendingRules
    ) -> None:
        """Store and list what changed of one assignment."""
        key = row.key
        names, before = self._named(row), self._before(cluster, key, row.uid)
        own = {name: states[source] for name in names.names if (source := _Source(key.namespace, name)) in states}
        references = []
        for reference in self._references(cluster, names, own, rules=rules, before=before):
            problem, source = "", _Source(key.namespace, reference.needed)
            if reference.version and not self._has(cluster, source, reference.version):
                # Read again: contents are not kept, and few change.
                _, read = await self._read(source)
                problem = NOT_READ if read is None else await self._store(cluster, source, read)
            references.append(SentReference(reference.needed, problem=problem) if problem else reference)
        known = self._assigned.get((cluster, key))
        if known is None or known.references != tuple(references):
            if references or known is not None:
                await self._transport.set_sent_objects(cluster, key, references_wire(references))
            self._enter(cluster, key, row.uid, references)
            self.written(cluster, key)

    async def _sweep(self, cluster: str) -> None:
        """Remove what is stored for the cluster and not listed; know what is there."""
        self._stored[cluster] = stored = dict(await self._transport.sent_versions(cluster))
        for name in tuple(stored):
            # Otherwise a dispatch might count on what is being removed.
            async with self._storing:
                if name not in self._listed(cluster):
                    stored.pop(name, None)
                    await self._transport.drop_sent_object(cluster, name)

    def _listed(self, cluster: str) -> set[str]:
        """The names of what assignments list for the cluster."""
        return {
            mailbox_name(key.namespace, reference.needed)
            for (name, key), assigned in self._assigned.items()
            if name == cluster
            for reference in assigned.references
            if reference.version
        }

    async def _read(self, source: _Source) -> tuple[SourceState, ObjectContents | None]:
        """The object, and its contents if it can be sent. Raises `KubeError` if it is not known."""
        resource, name = SENDABLE_KINDS[source.needed.kind], source.needed.name
        try:
            obj = await self._context.client.get_object(resource, name, namespace=source.namespace)
            problem = not_sendable({**obj, "kind": resource.kind})
            contents = contents_of({**obj, "kind": resource.kind})
        except NotFound:
            return SourceState(problem=NOT_FOUND), None
        except Forbidden:
            return SourceState(problem=may_not_read(resource.kind)), None
        except BadInput as error:
            return SourceState(problem=str(error)), None
        if problem:
            return SourceState(problem=problem), None
        return SourceState(contents.version(self._context.seals.key), contents.size), contents

    async def _store(self, cluster: str, source: _Source, contents: ObjectContents) -> str:
        """Store the contents for the cluster, unless it has them; returns why that is impossible."""
        version = contents.version(self._context.seals.key)
        if self._has(cluster, source, version):
            return ""
        body = mailbox_body(
            contents,
            source=Key(source.namespace, source.needed.name),
            needed=source.needed,
            cluster=cluster,
            version=version,
            namespace=mailbox_namespace(cluster),
        )
        try:
            await self._transport.put_sent_object(cluster, body)
        except Forbidden:
            return may_not_store(contents.kind)
        self._stored.setdefault(cluster, {})[body["metadata"]["name"]] = version
        return ""

    def _has(self, cluster: str, source: _Source, version: str) -> bool:
        return self._stored.get(cluster, {}).get(mailbox_name(source.namespace, source.needed)) == version

    def _references(
        self,
        cluster: str,
        names: SendableObjects,
        states: Mapping[Dependency, SourceState],
        *,
        rules: SendingRules,
        before: Iterable[SentReference],
    ) -> tuple[SentReference, ...]:
        kinds = self._report(cluster).get("sentKinds") or ()
        return sent_references(names, states, rules=rules, agent_kinds=kinds, before=before)

    def _named(self, row: Row) -> SendableObjects:
        known = self._names.get(row.uid)
        if known is None or known[0] != row.generation:
            found = sendable_objects(row.object()["spec"].get("podSets") or ())
            known = self._names[row.uid] = (row.generation, found)
        return known[1]

    def _before(self, cluster: str, key: Key, uid: str) -> tuple[SentReference, ...]:
        known = self._assigned.get((cluster, key))
        return known.references if known is not None and known.uid == uid else ()

    def _enter(self, cluster: str, key: Key, uid: str, references: Iterable[SentReference]) -> None:
        now = self._context.clock.monotonic()
        self._assigned[cluster, key] = _Assigned(uid=uid, references=tuple(references), since=now)

    def _forget(self, assigned: Collection[AssignmentKey]) -> None:
        """Drop the assignments that are gone, but for those that may be about to be written."""
        now = self._context.clock.monotonic()
        self._assigned = {
            key: each
            for key, each in self._assigned.items()
            if key in assigned or (now < each.since + _WRITING_SECONDS and self._rules(key[0]).enabled)
        }
        uids = {each.uid for each in self._assigned.values()}
        self._names = {uid: known for uid, known in self._names.items() if uid in uids}

    def _clusters(self) -> Iterable[str]:
        return [key.name for key in self._context.caches.view(MULTIKUEUE_CLUSTERS).keys()]  # noqa: SIM118  (no mapping)

    def _rules(self, cluster: str) -> SendingRules:
        found = self._context.caches.view(MULTIKUEUE_CLUSTERS).object(Key("", cluster))
        return SendingRules() if found is None else sending_rules(found["metadata"].get("annotations") or {})
