# SPDX-License-Identifier: Apache-2.0
"""`mkctl cluster recover`: rebuild a management cluster from the jobs that its workers still run (ADR 0010).

Owns the requests to an agent through its ClusterReport, page by page, and the writes on the management cluster. The
writes use the administrator's rights; an agent can only report its remote jobs. The manager accepts what is written
only with its seal. Its webhook adds the seal for a user with the verb `adopt`; without webhooks it is added here if the
user may read the key. A push cluster has no mailbox: the request is a temporary ClusterReport in the manager's
namespace.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

import anyio
import orjson

from multikueue.api.constants import (
    ADOPTS_ANNOTATION,
    ADOPTS_SEAL_ANNOTATION,
    BATCH_JOB_FRAMEWORK,
    DEFAULT_NAMESPACE,
    JOB_UID_LABEL,
    MAILBOX_OBJECT_NAME,
    TRANSPORT_ANNOTATION,
    TransportType,
)
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import (
    CLUSTER_REPORTS,
    MULTIKUEUE_CLUSTERS,
    NAMESPACES,
    PROVISIONING_REQUESTS,
    WORKLOADS,
    Resource,
)
from multikueue.cli.cluster.sealing import seal_key
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.seals import SEAL_SECRET, adoption_seal
from multikueue.jobs.declared.roles import recovery_role
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.recovery import OrphanAction, RecoveryVerdict, adoption_annotation, judge, recreated
from multikueue.jobs.framework.registry import dispatched_integrations
from multikueue.kube.errors import AlreadyExists, Forbidden, KubeError, NotFound
from multikueue.kube.rest.client import KubeClient

_POLL_SECONDS: Final = 0.5
_MAX_DISCARDED: Final = 100
_CHECK_NAMESPACE: Final = "default"
_NOT_SERVED: Final = "the hub does not serve the kind {}; name it in its Configuration"
_UNUSED: Final = {
    (PROVISIONING_REQUESTS.api_version, PROVISIONING_REQUESTS.kind): "no job consumes the capacity that it requests",
    (WORKLOADS.api_version, WORKLOADS.kind): "it is in a queue of the worker, for a job that was not created there",
}
"""Why what is reported beside jobs is of no use any more."""


class RecoveryAction(StrEnum):
    """What to do with the orphans."""

    LIST = "list"
    ADOPT = "adopt"
    DISCARD = "discard"


@dataclass
class RecoveredOrphans:
    """Every orphan, with the action that was or would be taken."""

    entries: list[JsonObject] = field(default_factory=list)
    _by_uid: dict[str, JsonObject] = field(default_factory=dict)

    def add(self, orphan: JsonObject, action: str, why: str) -> None:
        """Add an orphan with its action and the reason for it."""
        shown = {name: orphan[name] for name in ("kind", "namespace", "name", "phase", "epoch", "managerUID")}
        self._by_uid[str(orphan["uid"])] = entry = {**shown, "action": action, "why": why}
        self.entries.append(entry)

    def refuse(self, uid: str, message: str) -> None:
        """Record that the worker's API server refused the action for this orphan."""
        if (entry := self._by_uid.get(uid)) is not None:
            entry.update(action="refused", why=message)


async def recover(
    hub: KubeClient,
    cluster: str,
    *,
    action: RecoveryAction,
    manager_uid: str = "",
    dry_run: bool = False,
    patience: float = 60.0,
    namespace: str = DEFAULT_NAMESPACE,
    kinds: Iterable[JobIntegration] | None = None,
) -> RecoveredOrphans:
    """List, adopt or discard the orphans of a cluster. `namespace` is the manager's; `patience` in seconds per request.

    `kinds` are those that the hub serves; None for all that are shipped. Jobs of other kinds are not adopted.

    Raises `BadInput` if the agent does not reply, or if the orphans have several managers and `manager_uid` is empty.
    """
    served = _by_kind(dispatched_integrations().values() if kinds is None else kinds)
    found = RecoveredOrphans()
    discarded: list[str] = []
    adopted = 0
    key = await seal_key(hub, namespace) if action is RecoveryAction.ADOPT and not dry_run else None
    hosted = await _is_hosted(hub, cluster)
    place = Key(namespace, cluster) if hosted else Key(mailbox_namespace(cluster), MAILBOX_OBJECT_NAME)
    requests = _RecoveryRequests(hub, cluster, place=place, hosted=hosted, patience=patience)
    async with requests:
        orphans = [orphan async for orphan in _all(requests)]
        managers = sorted({orphan["managerUID"] for orphan in orphans})
        if action is not RecoveryAction.LIST and not manager_uid and len(managers) > 1:
            raise BadInput(
                f"jobs on {cluster} belong to several management clusters; choose one: --manager {'|'.join(managers)}"
            )
        for orphan in orphans:
            if manager_uid and orphan["managerUID"] != manager_uid:
                found.add(orphan, OrphanAction.LEAVE, "belongs to another management cluster")
                continue
            unused = _UNUSED.get((orphan["apiVersion"], orphan["kind"]))
            if unused is not None:
                found.add(orphan, "discard", unused)
                if action is not RecoveryAction.LIST:
                    discarded.append(orphan["uid"])
                continue
            of = served.get((orphan["apiVersion"].rpartition("/")[0], orphan["kind"]))
            if action is RecoveryAction.DISCARD:
                found.add(orphan, "discard", "")
                discarded.append(orphan["uid"])
                continue
            if of is None:
                found.add(orphan, OrphanAction.LEAVE, _NOT_SERVED.format(orphan["kind"]))
                continue
            verdict = await _judge(hub, orphan, of)
            if (
                action is RecoveryAction.ADOPT
                and not dry_run
                and verdict.action in (OrphanAction.CREATE, OrphanAction.BIND)
            ):
                try:
                    if not adopted and key is None:
                        await _require_seal(hub, orphan, cluster=cluster, of=of)
                    verdict = await _adopt(_Hub(hub, cluster, key), orphan, verdict, of)
                except MultikueueError as error:
                    raise _stopped_at(error, done=adopted, of=len(orphans), verb="adopted") from error
                adopted += 1
            found.add(orphan, verdict.action, verdict.why)
        if not dry_run:
            for start in range(0, len(discarded), _MAX_DISCARDED):
                try:
                    answer = await requests.send(discard=discarded[start : start + _MAX_DISCARDED])
                except MultikueueError as error:
                    raise _stopped_at(error, done=start, of=len(discarded), verb="discarded") from error
                for refusal in answer.get("refused") or ():
                    found.refuse(str(refusal.get("uid")), str(refusal.get("message")))
    return found


def recovery_rights(kinds: Iterable[JobIntegration] | None = None) -> JsonObject:
    """The ClusterRole for kinds whose rights kueue-recover-role does not have; `kinds` as in `recover`."""
    served = _by_kind(dispatched_integrations().values() if kinds is None else kinds)
    others = (each.resource for each in served.values() if each.framework != BATCH_JOB_FRAMEWORK)
    return recovery_role(sorted(others, key=lambda each: each.qualified))


class PartlyRecovered(MultikueueError):
    """Recovery stopped after some jobs; the message has the count and the next step."""


def _stopped_at(error: MultikueueError, *, done: int, of: int, verb: str) -> MultikueueError:
    """The error unchanged if nothing was done yet, else with the progress."""
    if not done:
        return error
    return PartlyRecovered(
        f"{error}. {done} of {of} jobs were {verb} before the error; the others are unchanged.\nTo continue, run the"
        " same command again"
    )


class _RecoveryRequests:
    """Requests in the spec of a ClusterReport, and the agent's replies in its status."""

    def __init__(self, hub: KubeClient, cluster: str, *, place: Key, hosted: bool, patience: float) -> None:
        self._hub = hub
        self._cluster = cluster
        self._place = place
        self._hosted = hosted
        self._patience = patience

    async def __aenter__(self) -> _RecoveryRequests:
        if self._hosted:
            body = {
                "apiVersion": CLUSTER_REPORTS.api_version,
                "kind": CLUSTER_REPORTS.kind,
                "metadata": {"name": self._place.name, "namespace": self._place.namespace},
            }
            try:
                await self._hub.create(CLUSTER_REPORTS, body, namespace=self._place.namespace)
            except AlreadyExists:
                return self  # left over from an interrupted recovery
            except NotFound as error:
                raise BadInput(
                    f"namespace {self._place.namespace} not found on the hub; set --manager-namespace to the namespace"
                    " of the manager"
                ) from error
        return self

    async def __aexit__(self, *details: object) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(5):
            if self._hosted:
                with suppress(NotFound):
                    await self._hub.delete(CLUSTER_REPORTS, self._place.name, namespace=self._place.namespace)
            else:
                await self._write_request(None)

    async def send(self, *, after: str = "", discard: list[str] | None = None) -> JsonObject:
        """The page after the key `after`. Raises `BadInput` if the agent does not reply in time."""
        request = uuid.uuid4().hex
        await self._write_request({"request": request, "after": after, "discard": discard or []})
        with anyio.move_on_after(self._patience):
            while True:
                report = await self._hub.get_object(CLUSTER_REPORTS, self._place.name, namespace=self._place.namespace)
                orphans: JsonObject = (report.get("status") or {}).get("orphans") or {}
                if orphans.get("request") == request:
                    return orphans
                await anyio.sleep(_POLL_SECONDS)
        who = "the manager" if self._hosted else "the agent"
        raise BadInput(f"cluster {self._cluster}: {who} did not reply within {self._patience:g} s; check that it runs")

    async def _write_request(self, recovery: JsonObject | None) -> None:
        body = {"spec": {"recovery": recovery}}
        try:
            await self._hub.patch(CLUSTER_REPORTS, self._place.name, body, namespace=self._place.namespace)
        except NotFound as error:
            if recovery is not None:
                raise BadInput(
                    f"cluster {self._cluster} has no mailbox yet; check that it is registered and that the manager runs"
                ) from error


async def _all(requests: _RecoveryRequests) -> AsyncIterator[JsonObject]:
    after = ""
    while True:
        page = await requests.send(after=after)
        for orphan in page.get("items") or ():
            yield orphan
        after = page.get("next") or ""
        if not after:
            return


def _by_kind(kinds: Iterable[JobIntegration]) -> Mapping[tuple[str, str], JobIntegration]:
    """Those that workers run, by group and kind."""
    return {
        (each.resource.group, each.resource.kind): each
        for each in kinds
        if each.traits.dispatched and each.traits.sent_as is None
    }


async def _is_hosted(hub: KubeClient, cluster: str) -> bool:
    """Whether it is a push cluster: the manager runs its agent."""
    try:
        found = await hub.get_object(MULTIKUEUE_CLUSTERS, cluster)
    except NotFound as error:
        raise BadInput(f"MultiKueueCluster {cluster} not found; list them with `mkctl cluster list`") from error
    return (found["metadata"].get("annotations") or {}).get(TRANSPORT_ANNOTATION) != TransportType.AGENT


async def _judge(hub: KubeClient, orphan: JsonObject, of: JobIntegration) -> RecoveryVerdict:
    try:
        job = await hub.get_object(of.resource, orphan["name"], namespace=orphan["namespace"])
    except NotFound:
        return judge(orphan, None, None, of=of)
    return judge(orphan, job, await _workload_of(hub, job), of=of)


async def _workload_of(hub: KubeClient, job: JsonObject) -> JsonObject | None:
    uid, namespace = job["metadata"]["uid"], job["metadata"]["namespace"]
    page = await hub.list_page(WORKLOADS, namespace=namespace, label_selector=f"{JOB_UID_LABEL}={uid}", limit=1)
    if page.items:
        found: JsonObject = orjson.loads(page.items[0])
        return found
    # Those that another controller made have no such label.
    others = [orjson.loads(raw) for raw in (await hub.list_all(WORKLOADS, namespace=namespace)).items]
    return next(
        (each for each in others if uid in [owner["uid"] for owner in each["metadata"].get("ownerReferences") or ()]),
        None,
    )


@dataclass(frozen=True, slots=True)
class _Hub:
    """The hub, the cluster whose jobs are adopted, and the seal key if it could be read."""

    client: KubeClient
    cluster: str
    key: bytes | None

    def sealed(self, annotations: dict[str, str], of: Resource, *, namespace: str, name: str) -> dict[str, str]:
        """The adoption annotations of an object, with the seal if the key is known."""
        if self.key is None:
            return annotations
        value = annotations[ADOPTS_ANNOTATION]
        seal = adoption_seal(self.key, kind=of.kind, namespace=namespace, name=name, value=value)
        return {**annotations, ADOPTS_SEAL_ANNOTATION: seal}


async def _adopt(hub: _Hub, orphan: JsonObject, verdict: RecoveryVerdict, of: JobIntegration) -> RecoveryVerdict:
    """Adopt one orphan and return the outcome. Raises `BadInput` if the manager would not accept it."""
    name, namespace, cluster = orphan["name"], orphan["namespace"], hub.cluster
    if verdict.action is OrphanAction.CREATE:
        body = recreated(orphan, cluster=cluster, of=of)
        metadata = body["metadata"]
        metadata["annotations"] = hub.sealed(metadata["annotations"], of.resource, namespace=namespace, name=name)
        try:
            _check_seal(await _created(hub.client, of.resource, body, namespace), cluster)
        except AlreadyExists:
            return RecoveryVerdict(
                OrphanAction.LEAVE, "a job of that name was created on the hub meanwhile; run the command again"
            )
    elif verdict.action is OrphanAction.BIND:
        adoption = adoption_annotation(orphan, cluster=cluster, epoch=verdict.epoch)
        annotations = hub.sealed(adoption, of.resource, namespace=namespace, name=name)
        body = {"metadata": {"annotations": annotations}}
        answer = await hub.client.patch(of.resource, name, body, namespace=namespace)
        _check_seal(answer, cluster)
        workload = await _workload_of(hub.client, orjson.loads(answer))
        if workload is not None:
            # The write also triggers the manager.
            workload_name = workload["metadata"]["name"]
            annotations = hub.sealed(adoption, WORKLOADS, namespace=namespace, name=workload_name)
            body = {"metadata": {"annotations": annotations}}
            answer = await hub.client.patch(WORKLOADS, workload_name, body, namespace=namespace)
            chosen = (orjson.loads(answer).get("status") or {}).get("clusterName")
            if chosen and chosen != cluster:
                return RecoveryVerdict(
                    OrphanAction.LEAVE, f"the job of that name on the hub was granted to {chosen} meanwhile"
                )
    return verdict


async def _require_seal(hub: KubeClient, orphan: JsonObject, *, cluster: str, of: JobIntegration) -> None:
    """Check with a dry run that the manager's webhook seals adoptions. Raises `BadInput` if it does not."""
    body = recreated(orphan, cluster=cluster, of=of)
    body["metadata"] = {**body["metadata"], "name": f"adoption-check-{uuid.uuid4().hex}", "namespace": _CHECK_NAMESPACE}
    try:
        answer = await hub.create(of.resource, body, namespace=_CHECK_NAMESPACE, dry_run=True)
    except KubeError:
        return  # another rule of the check namespace applies; the adoption itself reports errors
    _check_seal(answer, cluster, of=f"{orphan['namespace']}/{orphan['name']}")


async def _created(hub: KubeClient, resource: Resource, body: JsonObject, namespace: str) -> bytes:
    """Create the object, and its namespace if it is missing."""
    try:
        return await hub.create(resource, body, namespace=namespace)
    except NotFound:
        await _ensure_namespace(hub, namespace)
    return await hub.create(resource, body, namespace=namespace)


def _check_seal(answer: bytes, cluster: str, *, of: str = "") -> None:
    metadata = orjson.loads(answer)["metadata"]
    if ADOPTS_SEAL_ANNOTATION not in (metadata.get("annotations") or {}):
        shown = of or Key(metadata["namespace"], metadata["name"])
        raise BadInput(
            f"{shown}: the manager's webhook did not seal the adoption of the job on {cluster}; install the webhooks,"
            f" or run this as a user who may read Secret {SEAL_SECRET} in the manager's namespace"
        )


async def _ensure_namespace(hub: KubeClient, namespace: str) -> None:
    body = {"apiVersion": NAMESPACES.api_version, "kind": NAMESPACES.kind, "metadata": {"name": namespace}}
    try:
        await hub.create(NAMESPACES, body)
    except AlreadyExists:
        return
    except Forbidden as error:
        raise BadInput(f"namespace {namespace} not found on the hub, and you may not create it: {error}") from error
