# SPDX-License-Identifier: Apache-2.0
"""The ProvisioningRequests that this agent makes on its cluster for assignments (ADR 0018).

Owns whether the agent can provision, the informer of its requests, their index by assignment, and the writes. Promises
that an object with another mark is neither changed nor deleted, and that every deletion is guarded by a uid.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

import anyio
import orjson

from multikueue.api.constants import (
    ASSIGNMENT_ANNOTATION,
    CLUSTER_LABEL,
    EPOCH_ANNOTATION,
    MANAGED_LABEL,
    MANAGED_LABEL_VALUE,
    MANAGER_UID_ANNOTATION,
    ORIGIN_LABEL,
)
from multikueue.api.meta import JsonObject
from multikueue.api.objects import controller_of
from multikueue.api.resource import POD_TEMPLATES, PROVISIONING_REQUESTS
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.core.grouped_keys import GroupedKeys
from multikueue.core.keys import Key
from multikueue.core.merge_patch import apply_merge_patch
from multikueue.dispatch.worker.assignment_state import (
    BOOKING_EXPIRED,
    CAPACITY_REVOKED,
    NAME_CONFLICT,
    PROVISIONING_FAILED,
    Obstacle,
    ProvisioningProgress,
)
from multikueue.jobs.framework.protocol import JobIntegration, PodSetInfo
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.cache.overlay import WriteOverlay
from multikueue.kube.errors import AlreadyExists, BadRequest, Forbidden, Invalid, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.quarantine import Quarantine
from multikueue.provisioning import messages
from multikueue.provisioning.delegated import (
    DelegatedDecision,
    DelegatedFacts,
    NewDelegatedRequest,
    ProvisioningEnd,
    RequestStage,
    decide_delegated,
)
from multikueue.provisioning.requests import RequestMark, request_name, template_bodies
from worker_agent.local.assignment_spec import AssignmentSpec
from worker_agent.local.rights import PermittedInformer, Rights
from worker_agent.reconnect import RECONNECT, reconnecting

_log = logging.getLogger(__name__)

CANNOT_PROVISION: Final = "CannotProvision"
REQUEST_REJECTED: Final = "ProvisioningRequestRejected"
_DISCOVERY_SECONDS: Final = 60.0  # between two discoveries while the API is not installed
_REFUSALS: Final = (AlreadyExists, BadRequest, Forbidden, Invalid, NotFound)
_REASONS: Final[Mapping[ProvisioningEnd, str]] = {
    ProvisioningEnd.FAILED: PROVISIONING_FAILED,
    ProvisioningEnd.EXPIRED: BOOKING_EXPIRED,
    ProvisioningEnd.REVOKED: CAPACITY_REVOKED,
    ProvisioningEnd.TAKEN: NAME_CONFLICT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionedWork:
    """How far the capacity of an assignment is, and what its pods need to consume it."""

    progress: ProvisioningProgress
    updates: tuple[JsonObject, ...] = ()


class WorkerProvisioning:
    """The requests of one agent on its cluster."""

    def __init__(
        self,
        client: KubeClient,
        *,
        cluster: str,
        origin: str,
        clock: Clock,
        random: Random,
        rights: Rights,
        changed: Callable[[str], None],
        reported: Callable[[], None],
        has_queues: Callable[[], bool],
        quarantine: Quarantine | None = None,
        keep_seconds: float = 0.0,
    ) -> None:
        """`changed` is called with each assignment whose request changed, `reported` when the report changed.

        `has_queues` is whether the cluster has queues of its own. For `keep_seconds` from now on a request without an
        assignment is kept: a manager that pushes loses its mailboxes with its restart, and asks again.
        """
        self._clock = clock
        self._keep_until = clock.monotonic() + keep_seconds
        self._asked: set[str] = set()
        """The assignments that this process was given, which are not kept once they are gone."""
        self._client = client
        self._cluster = cluster
        self._origin = origin
        self._random = random
        self._rights = rights
        self._changed = changed
        self._reported = reported
        self._has_queues = has_queues
        self.decided = anyio.Event()
        """Set when it is known whether ProvisioningRequests are installed, and if so, what there is."""
        self._served = False
        self._assigned: GroupedKeys[Key, str] = GroupedKeys()
        self._with_templates: set[str] = set()
        self._adopted: dict[str, tuple[str, str]] = {}
        """The former manager and the uid of each job that was adopted, by assignment."""
        self.informer = Informer(
            client,
            PROVISIONING_REQUESTS,
            label_selector=f"{ORIGIN_LABEL}={origin}",
            clock=clock,
            random=random,
            backoff=RECONNECT,
            quarantine=quarantine,
        )
        self._overlay = WriteOverlay(self.informer.store, clock=clock)
        self.informer.add_handler(self._on_request)

    async def run(self, permission_changed: Callable[[], None]) -> None:
        """Follow the requests until cancelled; the API may be installed later."""
        while not await reconnecting(self._discover, what=PROVISIONING_REQUESTS.plural, random=self._random):
            self._note_decided()
            with anyio.move_on_after(_DISCOVERY_SECONDS):
                await self._rights.changed.wait()
        self._served = True
        followed = PermittedInformer(self.informer, self._rights, changed=permission_changed)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(followed.run, name="follow-provisioningrequests")
            await followed.decided.wait()
            self._note_decided()

    async def _discover(self) -> bool:
        try:
            await self._client.list_page(PROVISIONING_REQUESTS, limit=1, metadata_only=True)
        except NotFound:
            return False
        except Forbidden:
            return True
        return True

    def _note_decided(self) -> None:
        if not self.decided.is_set():
            self.decided.set()
            self._reported()

    @property
    def problem(self) -> str:
        """Why nothing can be provisioned here; empty if it can."""
        if self._has_queues():
            return "it has queues of its own: put the provisioning check into its ClusterQueue"
        if not self._served:
            return f"{PROVISIONING_REQUESTS.qualified} is not installed there"
        if not self._rights.may_provision:
            return "its agent may not create ProvisioningRequests or PodTemplates there"
        return "" if self.informer.synced.is_set() else "its ProvisioningRequests have not been read yet"

    def report(self) -> JsonObject:
        """The ability in a ClusterReport; nothing until it is known."""
        return {"provisioning": {"problem": self.problem}} if self.decided.is_set() else {}

    def assignments(self) -> Iterable[str]:
        """Every assignment that a request is annotated with."""
        return self._assigned.groups()

    def has(self, assignment: str) -> bool:
        """Whether there is a request of the assignment."""
        return bool(self._assigned.of(assignment))

    async def ensure(self, desired: AssignmentSpec, *, stage: RequestStage) -> ProvisionedWork:
        """Make the requests of an assignment, or delete those that are not needed."""
        if stage is RequestStage.WANTED:
            self._asked.add(desired.facts.name)
        if stage is RequestStage.WANTED and self.problem:
            return _ended(CANNOT_PROVISION, self.problem)
        requests = self._requests(desired)
        try:
            decision = decide_delegated(self._facts(desired, requests, stage))
        except BadInput as error:
            if stage is not RequestStage.WANTED:
                raise
            return _ended(REQUEST_REJECTED, str(error))  # another cluster may give other details
        for name in decision.delete:
            await self._delete(requests[name])
        for new in decision.create:
            try:
                await self._create(new)
            except _REFUSALS as error:
                name = new.body["metadata"]["name"]
                if isinstance(error, AlreadyExists) and await self._is_ours(desired, name):
                    continue  # created by an earlier call without an answer
                _log.warning("ProvisioningRequest refused name=%s error=%s", name, error)
                reason = NAME_CONFLICT if isinstance(error, AlreadyExists) else REQUEST_REJECTED
                text = messages.of_another(name) if isinstance(error, AlreadyExists) else error.message
                return _ended(reason, text)
        return _work(decision)

    async def remove(self, assignment: str, *, manager_uid: str) -> float | None:
        """Delete the requests of an assignment that is gone, if they were made for that manager.

        Returns the seconds for which they are kept, if they are.
        """
        left = self._keep_until - self._clock.monotonic()
        if left > 0 and assignment not in self._asked:
            return left
        self._asked.discard(assignment)
        for key in self._assigned.of(assignment):
            row = self._overlay.get(key)
            request = None if row is None else row.object()
            if request is None:
                continue
            annotations = request["metadata"].get("annotations") or {}
            if manager_uid and annotations.get(MANAGER_UID_ANNOTATION) == manager_uid:
                _log.info("deleting ProvisioningRequest: its assignment is gone request=%s", key)
                await self._delete(request)
        return None

    def of_others(self, manager_uid: str) -> tuple[JsonObject, ...]:
        """The requests that this agent made for another management cluster than that one."""
        rows = (self._overlay.get(key) for key, _ in self._assigned.items())
        found = (row.object() for row in rows if row is not None)
        return tuple(each for each in found if manager_of(each) != manager_uid)

    async def discard(self, request: JsonObject) -> None:
        """Delete a request for which an administrator has decided that nothing needs it; its templates follow it."""
        await self._delete(request)

    def adopt(self, assignment: str, adopts: tuple[str, str]) -> None:
        """The job with that uid, of that former manager, is or is about to be adopted by the assignment."""
        self._adopted[assignment] = adopts

    async def release(self, assignment: str, job: JsonObject) -> None:
        """Delete the requests of a former manager that an adopted job consumed, which has ended or was deleted."""
        former, uid = self._adopted.get(assignment, ("", ""))
        if not former or job["metadata"]["uid"] != uid:
            return
        for key, _ in self._assigned.items():
            row = self._overlay.get(key)
            request = None if row is None else row.object()
            if request is not None and manager_of(request) == former and consumes(job, request):
                _log.info("deleting ProvisioningRequest: the adopted job that consumed it is over request=%s", key)
                await self._delete(request)

    def forget_adoption(self, assignment: str) -> None:
        """The assignment and its job are gone."""
        self._adopted.pop(assignment, None)

    def _facts(
        self, desired: AssignmentSpec, requests: Mapping[str, JsonObject], stage: RequestStage
    ) -> DelegatedFacts:
        wanted = stage is RequestStage.WANTED and desired.jobs is not None
        return DelegatedFacts(
            workload=desired.clone.workload.name,
            namespace=desired.job.namespace,
            epoch=desired.facts.epoch,
            settings=desired.provisioning,
            pod_sets=desired.jobs.integration.pod_sets(desired.with_pod_sets(desired.manifest))
            if desired.jobs and wanted
            else (),
            mark=self._mark(desired),
            requests=requests,
            has_templates=frozenset(self._with_templates),
            stage=stage,
        )

    def _mark(self, desired: AssignmentSpec) -> RequestMark:
        return RequestMark(
            labels={ORIGIN_LABEL: self._origin},
            annotations={
                ASSIGNMENT_ANNOTATION: desired.facts.name,
                CLUSTER_LABEL: self._cluster,
                EPOCH_ANNOTATION: str(desired.facts.epoch),
                MANAGER_UID_ANNOTATION: desired.manager_uid,
            },
        )

    def _requests(self, desired: AssignmentSpec) -> dict[str, JsonObject]:
        names = (
            request_name(desired.clone.workload.name, check, desired.facts.epoch) for check in desired.provisioning
        )
        keys = {Key(desired.job.namespace, name) for name in names} | set(self._assigned.of(desired.facts.name))
        rows = {key: self._overlay.get(key) for key in keys if key.namespace == desired.job.namespace}
        return {key.name: row.object() for key, row in rows.items() if row is not None}

    async def _is_ours(self, desired: AssignmentSpec, name: str) -> bool:
        try:
            raw = await self._client.get(PROVISIONING_REQUESTS, name, namespace=desired.job.namespace)
        except NotFound:
            return True  # gone meanwhile: the next call creates it
        ours = self._mark(desired).is_on(orjson.loads(raw))
        if ours:
            self._remember(raw)
            self._changed(desired.facts.name)
        return ours

    async def _create(self, new: NewDelegatedRequest) -> None:
        """Create the request, unless it exists, and its templates."""
        request, namespace = new.body, new.body["metadata"]["namespace"]
        if not new.exists:
            raw = await self._client.create(PROVISIONING_REQUESTS, new.body, namespace=namespace)
            self._remember(raw)
            request = orjson.loads(raw)
            _log.info("ProvisioningRequest created request=%s/%s", namespace, request["metadata"]["name"])
        for body in template_bodies(request, new.pod_sets):
            await self._create_template(body)
        self._with_templates.add(request["metadata"]["uid"])

    async def _create_template(self, body: JsonObject) -> None:
        """Create a template, or leave the one that is there. Raises `AlreadyExists` if that one is not ours."""
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        create = partial(self._client.create, POD_TEMPLATES, body, namespace=namespace)
        try:
            await create()
        except AlreadyExists:
            try:
                found = await self._client.get_object(POD_TEMPLATES, name, namespace=namespace)
            except NotFound:
                await create()  # the garbage collector has deleted it meanwhile
                return
            owner, wanted = controller_of(found), controller_of(body)
            if owner is not None and wanted is not None and owner["uid"] == wanted["uid"]:
                return
            managed = (found["metadata"].get("labels") or {}).get(MANAGED_LABEL) == MANAGED_LABEL_VALUE
            if not managed or owner is None or owner["kind"] != PROVISIONING_REQUESTS.kind:
                raise
            # An earlier request of this name left it; the garbage collector has not deleted it yet.
            with suppress(NotFound):
                await self._client.delete(POD_TEMPLATES, name, namespace=namespace, uid=found["metadata"]["uid"])
            await create()

    async def _delete(self, request: JsonObject) -> None:
        """Delete the request; its templates follow it."""
        metadata = request["metadata"]
        if "deletionTimestamp" in metadata:
            return
        key = Key(metadata["namespace"], metadata["name"])
        try:
            await self._client.delete(
                PROVISIONING_REQUESTS,
                key.name,
                namespace=key.namespace,
                uid=metadata["uid"],
                propagation="Background",
            )
        except NotFound:
            self._overlay.on_not_found(key)

    def _remember(self, raw: bytes) -> None:
        seen = self._overlay.on_write(raw)
        if seen is not None and seen.new is not None:
            self._assigned.put(seen.key, self._assignment(seen.new.object()) or None)

    def _on_request(self, change: Change) -> None:
        if change.new is None or (change.old is not None and change.old.uid != change.new.uid):
            self._with_templates.discard("" if change.old is None else change.old.uid)
        seen = self._overlay.on_change(change)
        if seen is None:
            return
        assignment = "" if seen.new is None else self._assignment(seen.new.object())
        before = self._assigned.put(seen.key, assignment or None)
        for name in filter(None, {before, assignment}):
            self._changed(name)

    def _assignment(self, request: JsonObject) -> str:
        """The assignment of a request of this agent; two agents may share a cluster and an origin."""
        annotations: dict[str, str] = request["metadata"].get("annotations") or {}
        return annotations.get(ASSIGNMENT_ANNOTATION, "") if annotations.get(CLUSTER_LABEL) == self._cluster else ""


def consumes(job: JsonObject, request: JsonObject) -> bool:
    """Whether pods of the remote job consume the capacity of the request: some annotation in it names the request."""
    namespace, name = request["metadata"]["namespace"], request["metadata"]["name"]
    own = {field: value for field, value in job.items() if field != "status"}
    return job["metadata"].get("namespace") == namespace and orjson.dumps(name) in orjson.dumps(own)


def manager_of(request: JsonObject) -> str:
    """The manager for which a request was made; empty if it has no mark."""
    return str((request["metadata"].get("annotations") or {}).get(MANAGER_UID_ANNOTATION, ""))


def consuming(
    manifest: JsonObject, integration: JobIntegration, updates: Iterable[JsonObject], *, described: JsonObject
) -> JsonObject:
    """The job whose pods consume the capacity. Raises `BadInput` and `InjectionConflict`.

    `described` is the job as its pod sets are read from it.
    """
    by_name = {update["name"]: update for update in updates}
    if not by_name:
        return manifest
    infos = [
        PodSetInfo(
            name=pod_set["name"],
            count=int(pod_set.get("count", 1)),
            annotations=by_name.get(pod_set["name"], {}).get("annotations") or {},
            node_selector=by_name.get(pod_set["name"], {}).get("nodeSelector") or {},
        )
        for pod_set in integration.pod_sets(described)
    ]
    return apply_merge_patch(manifest, integration.start(described, infos).body)


def _work(decision: DelegatedDecision) -> ProvisionedWork:
    failure = None if decision.end is None else Obstacle(_REASONS[decision.end], decision.message)
    progress = ProvisioningProgress(provisioned=decision.provisioned, message=decision.message, failure=failure)
    return ProvisionedWork(progress=progress, updates=decision.updates)


def _ended(reason: str, message: str) -> ProvisionedWork:
    return ProvisionedWork(progress=ProvisioningProgress(failure=Obstacle(reason, message)))
