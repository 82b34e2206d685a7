# SPDX-License-Identifier: Apache-2.0
"""The certificate requests of agents, and the status of ClusterRegistrations.

Owns the approval of requests that carry the label of a cluster, the status of ClusterRegistrations, and the end of a
bootstrap token: once the certificate is in use, or could have been for long, the Secret that the token is bound to is
deleted, and the API server no longer accepts the token. Runs on the leader only. Promises that a token is recorded as
redeemed before the request that redeems it is approved.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Container, Iterable
from datetime import datetime, timedelta
from typing import Final

import anyio

from manager.context import ManagerContext
from manager.registration.approval import Approve, Deny, Wait, judge
from manager.workload.conditions import condition_wire, conditions_of
from multikueue.api.constants import CLUSTER_LABEL, MAILBOX_OBJECT_NAME
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import CERTIFICATE_SIGNING_REQUESTS, CLUSTER_REGISTRATIONS, LEASES, SECRETS
from multikueue.core import conditions
from multikueue.core.conditions import FALSE, TRUE, Condition, find_in
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time, parse_time
from multikueue.dispatch.protocol.enrolment import bootstrap_secret
from multikueue.dispatch.protocol.wire import cluster_label
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.errors import ApiError, NotFound
from multikueue.kube.rest.certificates import life_of
from multikueue.kube.rest.client import PatchKind
from multikueue.kube.runtime.controller import Controller, Result

_log = logging.getLogger(__name__)

REGISTERED: Final = "Registered"
_CONTACT_SECONDS: Final = 2.0  # how often to check whether a new certificate is in use
_UNUSED: Final = timedelta(minutes=10)  # a token ends then although its certificate was never used
_KEPT: Final = timedelta(seconds=30)  # an answered request is kept that long for its agent to read
_UNSIGNED: Final = timedelta(hours=1)  # an approved request that is not signed, that long


class RegistrationController:
    """Approves and denies the certificate requests of agents."""

    def __init__(self, context: ManagerContext) -> None:
        self._context = context
        self._just_approved: set[str] = set()
        """By uid, the requests that were approved here and are not in the cache as approved yet."""
        self._requests = Informer(
            context.client,
            CERTIFICATE_SIGNING_REQUESTS,
            label_selector=CLUSTER_LABEL,
            clock=context.clock,
            random=context.random,
            quarantine=context.caches.quarantine,
        )
        self._controller = Controller[Key](
            "clusterregistration",
            self._reconcile,
            clock=context.clock,
            metrics=context.metrics.controllers,
            quarantine=context.caches.quarantine,
            resource=CERTIFICATE_SIGNING_REQUESTS,
        )

    async def run(self) -> None:
        """Approve and deny until cancelled; the caches must be synced."""
        self._requests.add_handler(self._on_request)
        self._context.caches.subscribe(CLUSTER_REGISTRATIONS, self._on_registration)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._requests.run, name="certificate-requests")
            tasks.start_soon(self._controller.run, name="registrations")

    def _on_request(self, change: Change) -> None:
        if change.new is None or _is_approved(change.new.object()):
            self._just_approved.discard(change.row.uid)
        if change.new is not None:
            self._controller.enqueue(change.key)

    def _on_registration(self, change: Change) -> None:
        for row in self._requests.store.list():
            if _cluster_of(row.object()) == change.key.name:
                self._controller.enqueue(row.key)

    async def _reconcile(self, key: Key) -> Result | None:
        request = self._requests.store.object(key)
        if request is None:
            return None
        cluster, now = _cluster_of(request), self._context.clock.now()
        status: JsonObject = request.get("status") or {}
        decided = {entry["type"]: entry for entry in status.get("conditions") or ()}
        if "Denied" in decided or "Failed" in decided:
            return await self._tidy(request, since=parse_time(request["metadata"]["creationTimestamp"]), now=now)
        if status.get("certificate"):
            return await self._issued(request, cluster, now)
        if "Approved" in decided:
            # The signer may be away for long; an agent whose request is gone sends a new one.
            return await self._tidy(request, since=_approved_at(request) or now, now=now, kept=_UNSIGNED)
        registration = self._context.caches.view(CLUSTER_REGISTRATIONS).object(Key("", cluster))
        verdict = judge(
            request,
            registration,
            cluster=cluster,
            namespace=self._context.namespace,
            now=now,
            approved=approved_of(self._requests.store.objects(), request, besides=self._just_approved),
        )
        match verdict:
            case Approve(uid, redeems):
                assert registration is not None, "a request is only approved for a registration"
                message = f"cluster uid {uid}, certificate approved"
                await self._note(registration, TRUE, "Approved", message, uid=uid, redeems=redeems, request=request)
                self._just_approved.add(request["metadata"]["uid"])
                try:
                    await self._decide(request, "Approved", "RegisteredCluster", message)
                except ApiError:
                    self._just_approved.discard(request["metadata"]["uid"])
                    raise
            case Deny(reason, message):
                if registration is not None:
                    await self._warn(registration, reason, message)
                await self._decide(request, "Denied", reason, message)
            case Wait(message):
                if registration is not None:
                    await self._note(registration, FALSE, "WaitsForApproval", message)
        return None

    async def _decide(self, request: JsonObject, kind: str, reason: str, message: str) -> None:
        name = request["metadata"]["name"]
        now = format_time(self._context.clock.now())
        condition = {"type": kind, "status": TRUE, "reason": reason, "message": message, "lastUpdateTime": now}
        await self._context.client.patch(
            CERTIFICATE_SIGNING_REQUESTS,
            name,
            {"status": {"conditions": [*((request.get("status") or {}).get("conditions") or ()), condition]}},
            kind=PatchKind.MERGE,
            subresource="approval",
            resource_version=request["metadata"]["resourceVersion"],
        )
        _log.info("certificate request answered name=%s answer=%s reason=%s message=%s", name, kind, reason, message)

    async def _warn(self, registration: JsonObject, reason: str, message: str) -> None:
        """Report a denied request without changing a registration that is valid: any user may send requests."""
        status: JsonObject = registration.get("status") or {}
        entry = conditions.find(conditions_of(status.get("conditions") or ()), REGISTERED)
        if entry is None or entry.status == FALSE:
            await self._note(registration, FALSE, reason, message)

    async def _note(
        self,
        registration: JsonObject,
        value: str,
        reason: str,
        message: str,
        *,
        uid: str = "",
        redeems: str = "",
        request: JsonObject | None = None,
        expires: datetime | None = None,
    ) -> None:
        """Write the registration's status, guarded by its version, if it differs."""
        metadata, before = registration["metadata"], registration.get("status") or {}
        old = conditions_of(before.get("conditions") or ())
        entry = Condition(
            type=REGISTERED,
            status=value,
            reason=reason,
            message=message,
            last_transition_time=self._context.clock.now(),
            observed_generation=metadata.get("generation"),
        )
        new = conditions.set_condition(old, entry)
        patch: JsonObject = {}
        if new is not old:
            patch["conditions"] = [condition_wire(condition) for condition in new]
        if uid and not before.get("clusterUID"):
            patch["clusterUID"] = uid
        if redeems and request is not None:
            patch |= {"usedBootstrap": redeems, "usedBy": request["metadata"]["uid"]}
        if expires is not None:
            patch["certificateExpirationTime"] = format_time(expires)
        if not {field: item for field, item in patch.items() if before.get(field) != item}:
            return
        answer = await self._context.client.patch(
            CLUSTER_REGISTRATIONS,
            metadata["name"],
            {"status": patch},
            kind=PatchKind.MERGE,
            subresource="status",
            resource_version=metadata["resourceVersion"],
        )
        self._context.caches.view(CLUSTER_REGISTRATIONS).on_write(answer)

    async def _issued(self, request: JsonObject, cluster: str, now: datetime) -> Result | None:
        life = life_of(base64.b64decode(request["status"]["certificate"]))
        registration = self._context.caches.view(CLUSTER_REGISTRATIONS).object(Key("", cluster))
        since = _approved_at(request) or now
        if registration is not None:
            if newest_answered(self._requests.store.objects(), cluster) == request["metadata"]["uid"]:
                message = f"certificate issued, valid until {format_time(life.ends)}"
                await self._note(registration, TRUE, "Issued", message, expires=life.ends)
            status: JsonObject = registration.get("status") or {}
            if status.get("usedBy") == request["metadata"]["uid"]:
                if not self._in_use(cluster, since) and now < since + _UNUSED:
                    return Result(after=_CONTACT_SECONDS)
                await self._end_token(cluster, str(status.get("usedBootstrap") or ""))
        return await self._tidy(request, since=since, now=now)

    def _in_use(self, cluster: str, since: datetime) -> bool:
        lease = self._context.caches.view(LEASES).object(Key(mailbox_namespace(cluster), MAILBOX_OBJECT_NAME))
        renewed = str(((lease or {}).get("spec") or {}).get("renewTime") or "")
        return bool(renewed) and parse_time(renewed) > since

    async def _end_token(self, cluster: str, token_id: str) -> None:
        name = bootstrap_secret(cluster, token_id)
        if self._context.caches.view(SECRETS).get(Key(self._context.namespace, name)) is None:
            return
        try:
            await self._context.client.delete(SECRETS, name, namespace=self._context.namespace)
        except NotFound:
            return
        _log.info("bootstrap token used and deleted cluster=%s", cluster)

    async def _tidy(
        self, request: JsonObject, *, since: datetime, now: datetime, kept: timedelta = _KEPT
    ) -> Result | None:
        """Delete a request that is no longer needed, some time after it was answered."""
        if now < since + kept:
            return Result(after=(since + kept - now).total_seconds())
        metadata = request["metadata"]
        try:
            await self._context.client.delete(CERTIFICATE_SIGNING_REQUESTS, metadata["name"], uid=metadata["uid"])
        except NotFound:
            return None
        return None


def _cluster_of(request: JsonObject) -> str:
    """The cluster of a request: the whole name in the annotation, what fits of it in the label."""
    metadata = request["metadata"]
    label = str((metadata.get("labels") or {}).get(CLUSTER_LABEL, ""))
    named = str((metadata.get("annotations") or {}).get(CLUSTER_LABEL, ""))
    return named if named and cluster_label(named) == label else label


def newest_answered(requests: Iterable[JsonObject], cluster: str) -> str:
    """The uid of the latest request of a cluster that has its certificate; empty when there is none.

    Only that one is reported in the registration: two that overwrite each other in turn would never end.
    """
    found = [
        (request["metadata"]["creationTimestamp"], request["metadata"]["name"], str(request["metadata"]["uid"]))
        for request in requests
        if _cluster_of(request) == cluster and (request.get("status") or {}).get("certificate")
    ]
    return max(found)[2] if found else ""


def approved_of(requests: Iterable[JsonObject], asked: JsonObject, *, besides: Container[str] = ()) -> int:
    """How many other requests of the same requester are approved, answered or not.

    `besides` are the uids of those whose approval is not in `requests` yet.
    """
    return sum(
        request["metadata"]["uid"] != asked["metadata"]["uid"]
        and request["spec"].get("username") == asked["spec"].get("username")
        and (request["metadata"]["uid"] in besides or _is_approved(request))
        for request in requests
    )


def _is_approved(request: JsonObject) -> bool:
    return find_in(request.get("status"), "Approved") is not None


def _approved_at(request: JsonObject) -> datetime | None:
    for entry in request["status"].get("conditions") or ():
        if entry["type"] == "Approved" and entry.get("lastUpdateTime"):
            return parse_time(entry["lastUpdateTime"])
    return None
