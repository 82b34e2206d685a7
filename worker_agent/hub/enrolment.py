# SPDX-License-Identifier: Apache-2.0
"""The client certificate of an agent: the first one and its renewals.

Owns the certificate request, the wait for its approval, and the time of renewal: at random between 50 and 80 % of the
certificate's lifetime, so that a thousand agents that joined together do not renew together. Promises that a key is
stored only with its certificate, that the old certificate is used until the new one is stored, and that a denied
request is logged and retried. Anyone who may create certificate requests can take a name, so that the name of a renewal
is random, and replaced if it is taken nevertheless.
"""

from __future__ import annotations

import base64
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Final

import anyio

from multikueue.api.constants import AGENT_GROUP, AGENT_USER_PREFIX, CLUSTER_LABEL, CLUSTER_UID_ANNOTATION
from multikueue.api.meta import JsonObject
from multikueue.api.resource import CERTIFICATE_SIGNING_REQUESTS, NAMESPACES
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.dispatch.protocol.enrolment import SIGNER, bootstrap_request, renewal_request
from multikueue.dispatch.protocol.wire import cluster_label
from multikueue.kube.errors import AlreadyExists, Forbidden, NotFound
from multikueue.kube.rest import credentials
from multikueue.kube.rest.certificates import ClientRequest, new_request
from multikueue.kube.rest.client import KubeClient
from worker_agent.hub.identity import IdentityStore, certificate_life, pending, pending_request, with_certificate
from worker_agent.options import Renewal
from worker_agent.reconnect import retry_every

_log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 1.0
_RENEWAL_TIMEOUT_SECONDS: Final = 120.0  # then the renewal has failed for now; its request is checked again later
_RETRY_SECONDS: Final = 30.0
_PAUSES: Final = 20  # a certificate is renewed at most so often in its lifetime
_MAX_NAMES: Final = 5  # per renewal
_NONCE_BITS: Final = 80


class Refused(MultikueueError):
    """The hub denied the certificate."""


class NoAnswer(Refused):
    """The request is still pending."""


class NameTaken(Refused):
    """Another certificate request has the name."""


@dataclass(frozen=True, slots=True)
class _Request:
    """The name of a certificate request, with its key."""

    name: str
    made: ClientRequest


async def cluster_uid(worker: KubeClient) -> str:
    """The uid of the worker cluster: that of its kube-system namespace. Raises `KubeError`."""
    system = await worker.get_object(NAMESPACES, "kube-system")
    return str(system["metadata"]["uid"])


async def enrol(
    bootstrap: JsonObject, *, cluster: str, token_id: str, uid: str, store: IdentityStore, clock: Clock, seconds: int
) -> JsonObject:
    """Redeem a bootstrap token for a certificate; returns the kubeconfig that was stored.

    Waits for the approval without a limit. Raises `Refused` if it is denied, `KubeError`.
    """
    name = bootstrap_request(cluster, token_id)
    made = pending_request(await store.load(), name=name)
    if made is None:
        made = _new_request(cluster)
        # A token is redeemed by one request: after a restart the agent needs its key.
        await store.save(pending(name=name, made=made))
    async with KubeClient(credentials.from_dict(bootstrap, clock=clock), clock=clock) as hub:
        certificate = await _obtain(
            hub, _Request(name, made), cluster=cluster, uid=uid, seconds=seconds, timeout=math.inf, waits=True
        )
    kubeconfig = with_certificate(
        bootstrap, user=f"{AGENT_USER_PREFIX}{cluster}", certificate=certificate, key=made.key
    )
    await store.save(kubeconfig)
    return kubeconfig


class Renewer:
    """Renews the certificate of a running agent."""

    def __init__(
        self,
        hub: KubeClient,
        *,
        cluster: str,
        uid: Callable[[], Awaitable[str]],
        store: IdentityStore,
        clock: Clock,
        random: Random,
        renewal: Renewal | None = None,
    ) -> None:
        """`hub` uses each new certificate; `uid` is called for each renewal."""
        self.problem = ""
        self._hub = hub
        self._cluster = cluster
        self._uid = uid
        self._store = store
        self._clock = clock
        self._random = random
        self._renewal = renewal or Renewal()
        self._request: _Request | None = None

    async def run(self) -> None:
        """Renew until cancelled; returns if the identity has no certificate, which something else renews."""
        kubeconfig: JsonObject | None = None
        renewed = False
        while True:
            kubeconfig = await self._stored(kubeconfig)
            try:
                life = None if kubeconfig is None else certificate_life(kubeconfig)
            except BadInput as error:
                _log.warning("identity not renewed error=%s", error)
                return
            if kubeconfig is None or life is None:
                _log.info("identity has no certificate; this agent does not renew it")
                return
            moment = life.at(self._random.uniform(self._renewal.earliest, self._renewal.latest))
            pause = (life.ends - life.begins).total_seconds() / _PAUSES
            # One that is due as it is issued, because the clock here is ahead, would be renewed again and again.
            await anyio.sleep(max(pause if renewed else 0.0, (moment - self._clock.now()).total_seconds()))
            renewed = await self._renew(kubeconfig)
            if not renewed:
                await anyio.sleep(min(_RETRY_SECONDS, pause))

    async def _renew(self, kubeconfig: JsonObject) -> bool:
        try:
            request, certificate = await self._obtained()
            user = f"{AGENT_USER_PREFIX}{self._cluster}"
            renewed = with_certificate(kubeconfig, user=user, certificate=certificate, key=request.made.key)
            await self._store.save(renewed)
        except MultikueueError as error:
            if str(error) != self.problem:
                _log.warning("certificate not renewed error=%s", error)
            self.problem = str(error)
            return False
        self._request = None
        self._hub.use(credentials.from_dict(renewed, clock=self._clock))
        self.problem = ""
        _log.info("certificate renewed")
        return True

    async def _obtained(self) -> tuple[_Request, bytes]:
        """A request and its certificate. Raises `Refused`, `KubeError`.

        A pending request is used again by the next renewal, so that few are open however often this fails.
        """
        uid, former = await self._uid(), renewal_request(self._cluster)
        for _ in range(_MAX_NAMES):
            request = self._request = self._request or self._draw()
            try:
                certificate = await _obtain(
                    self._hub,
                    request,
                    cluster=self._cluster,
                    uid=uid,
                    seconds=self._renewal.seconds,
                    timeout=_RENEWAL_TIMEOUT_SECONDS,
                    waits=request.name == former,
                )
            except NameTaken:
                _log.warning("name of the certificate request is taken; trying another name=%s", request.name)
                self._request = None
            except NoAnswer:
                raise
            except Refused:
                self._request = None
                raise
            except Forbidden as error:
                if request.name == former:
                    self._request = None
                    raise
                # Its role is from a version before 0.2, and limited to the one name that renewals had then.
                _log.warning(
                    "role allows one name of certificate requests only, which others can take;"
                    " run `mkctl cluster register` on the hub again cluster=%s name=%s error=%s",
                    self._cluster,
                    former,
                    error,
                )
                self._request = _Request(former, request.made)
            else:
                return request, certificate
        raise NameTaken(f"{_MAX_NAMES} names of certificate requests were taken one after the other")

    def _draw(self) -> _Request:
        nonce = f"{self._random.getrandbits(_NONCE_BITS):0{_NONCE_BITS // 4}x}"
        return _Request(renewal_request(self._cluster, nonce), _new_request(self._cluster))

    async def _stored(self, used: JsonObject | None) -> JsonObject | None:
        """The stored identity. If it was deleted since this agent has `used` it, it is stored again."""
        found = await retry_every(_RETRY_SECONDS, self._store.load, what="identity")
        if found is not None or used is None:
            return found
        _log.warning("the identity was deleted while this agent uses it; storing it again cluster=%s", self._cluster)
        try:
            await self._store.save(used)
        except MultikueueError as error:
            _log.warning("identity not stored; renewing it all the same cluster=%s error=%s", self._cluster, error)
        return used


async def _obtain(
    hub: KubeClient, request: _Request, *, cluster: str, uid: str, seconds: int, timeout: float, waits: bool
) -> bytes:
    """The certificate. Raises `NoAnswer` after `timeout`, `NameTaken` unless `waits`, `Refused`, `KubeError`."""
    name, text = request.name, base64.b64encode(request.made.request).decode()
    body: JsonObject = {
        "apiVersion": CERTIFICATE_SIGNING_REQUESTS.api_version,
        "kind": CERTIFICATE_SIGNING_REQUESTS.kind,
        "metadata": {
            "name": name,
            "labels": {CLUSTER_LABEL: cluster_label(cluster)},
            "annotations": {CLUSTER_LABEL: cluster, CLUSTER_UID_ANNOTATION: uid},
        },
        "spec": {
            "request": text,
            "signerName": SIGNER,
            "expirationSeconds": seconds,
            "usages": ["digital signature", "client auth"],
        },
    }
    with anyio.move_on_after(timeout):
        await _create(hub, body, name, waits=waits)
        return await _answer(hub, name, text)
    raise NoAnswer(f"certificate request {name}: no answer within {timeout:.0f} s")


def _new_request(cluster: str) -> ClientRequest:
    return new_request(f"{AGENT_USER_PREFIX}{cluster}", [AGENT_GROUP])


async def _create(hub: KubeClient, body: JsonObject, name: str, *, waits: bool) -> None:
    """Create the request unless it exists; waits until another one of that name is gone, or raises `NameTaken`."""
    logged = False
    while True:
        try:
            await hub.create(CERTIFICATE_SIGNING_REQUESTS, body)
        except AlreadyExists:
            found = await hub.get_object(CERTIFICATE_SIGNING_REQUESTS, name)
            if found["spec"]["request"] == body["spec"]["request"]:
                return
            if not waits:
                raise NameTaken(f"certificate request {name}: another one has that name") from None
            if not logged:
                _log.info("earlier certificate request exists; waiting until the hub removes it name=%s", name)
                logged = True
            await anyio.sleep(_POLL_SECONDS)
        else:
            return


async def _answer(hub: KubeClient, name: str, text: str) -> bytes:
    """The certificate, once it was issued. Raises `Refused`."""
    logged = False
    while True:
        try:
            found = await hub.get_object(CERTIFICATE_SIGNING_REQUESTS, name)
        except NotFound as error:
            raise Refused(f"certificate request {name}: it was removed before it was answered") from error
        if found["spec"]["request"] != text:
            raise Refused(f"certificate request {name}: another one has replaced it")
        status: JsonObject = found.get("status") or {}
        for condition in status.get("conditions") or ():
            if condition["type"] in ("Denied", "Failed"):
                reason = f"{condition.get('reason', '')}: {condition.get('message', '')}"
                raise Refused(f"certificate request {name}: {condition['type']}: {reason}")
        if status.get("certificate"):
            return base64.b64decode(status["certificate"])
        if not logged:
            _log.info("certificate request is pending name=%s", name)
            logged = True
        await anyio.sleep(_POLL_SECONDS)
