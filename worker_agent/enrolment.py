# SPDX-License-Identifier: Apache-2.0
"""How an agent comes by its certificate, and by the next one.

Owns the request, the wait for the answer, and the moment of renewal: between half and four fifths of the certificate's
life, at random, so that a thousand agents that were let in together do not come back together. Promises that a key is
stored only together with the certificate over it, that the old certificate is used until the new one is there, and
that a request which was refused is said and tried again later.
"""

from __future__ import annotations

import base64
import logging
import math
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

import anyio

from multikueue.api.constants import AGENT_GROUP, AGENT_USER_PREFIX, CLUSTER_LABEL, CLUSTER_UID_ANNOTATION
from multikueue.api.meta import JsonObject
from multikueue.api.resource import CERTIFICATE_SIGNING_REQUESTS, NAMESPACES
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.federation.enrolment import SIGNER, bootstrap_request, renewal_request
from multikueue.federation.wire import cluster_label
from multikueue.kube import credentials
from multikueue.kube.certificates import ClientRequest, new_request
from multikueue.kube.client import KubeClient
from multikueue.kube.errors import AlreadyExists, KubeError, NotFound
from worker_agent.identity import Store, certificate_life, pending, pending_request, with_certificate
from worker_agent.options import Renewal

_log = logging.getLogger(__name__)

_ASK_SECONDS: Final = 1.0
_PATIENCE_SECONDS: Final = 120.0  # after that a renewal's request is made anew
_RETRY_SECONDS: Final = 30.0


class Refused(MultikueueError):
    """The hub does not give the certificate."""


async def cluster_uid(worker: KubeClient) -> str:
    """What the worker cluster is recognised by. Raises `KubeError`."""
    system = await worker.get_object(NAMESPACES, "kube-system")
    return str(system["metadata"]["uid"])


async def enrol(
    bootstrap: JsonObject, *, cluster: str, token_id: str, uid: str, store: Store, clock: Clock, seconds: int
) -> JsonObject:
    """Redeem a bootstrap token for a certificate; gives the kubeconfig that was stored.

    Waits for an approval as long as it takes. Raises `Refused` when there will be none, `KubeError`.
    """
    name = bootstrap_request(cluster, token_id)
    made = pending_request(await store.load(), name=name)
    if made is None:
        made = _request(cluster)
        # A token is redeemed by one request: a restart while it waits must find the key again.
        await store.save(pending(name=name, made=made))
    async with KubeClient(credentials.from_dict(bootstrap, clock=clock), clock=clock) as hub:
        return await _obtain(
            hub, bootstrap, made, cluster=cluster, name=name, uid=uid, store=store, seconds=seconds, patience=math.inf
        )


class Renewer:
    """Renews the certificate of a running agent."""

    def __init__(
        self,
        hub: KubeClient,
        *,
        cluster: str,
        uid: Callable[[], Awaitable[str]],
        store: Store,
        clock: Clock,
        random: Random,
        renewal: Renewal | None = None,
    ) -> None:
        """`hub` goes on with each new certificate; `uid` is asked for when there is something to renew."""
        self.problem = ""
        self._hub = hub
        self._cluster = cluster
        self._uid = uid
        self._store = store
        self._clock = clock
        self._random = random
        self._renewal = renewal or Renewal()

    async def run(self) -> None:
        """Renew until cancelled. An identity without a certificate is nobody's to renew here."""
        while True:
            kubeconfig = await self._current()
            try:
                life = None if kubeconfig is None else certificate_life(kubeconfig)
            except BadInput as error:
                _log.warning("the identity on the hub is not renewed: %s", error)
                return
            if kubeconfig is None or life is None:
                _log.info("the identity on the hub holds no certificate: it is not renewed by this agent")
                return
            moment = life.at(self._random.uniform(self._renewal.earliest, self._renewal.latest))
            await anyio.sleep(max(0.0, (moment - self._clock.now()).total_seconds()))
            if not await self._renew(kubeconfig):
                await anyio.sleep(min(_RETRY_SECONDS, (life.ends - life.begins).total_seconds() / 20))

    async def _renew(self, kubeconfig: JsonObject) -> bool:
        try:
            renewed = await _obtain(
                self._hub,
                kubeconfig,
                _request(self._cluster),
                cluster=self._cluster,
                name=renewal_request(self._cluster),
                uid=await self._uid(),
                store=self._store,
                seconds=self._renewal.seconds,
                patience=_PATIENCE_SECONDS,
            )
        except MultikueueError as error:
            if str(error) != self.problem:
                _log.warning("the certificate was not renewed: %s", error)
            self.problem = str(error)
            return False
        self._hub.use(credentials.from_dict(renewed, clock=self._clock))
        self.problem = ""
        _log.info("the certificate was renewed")
        return True

    async def _current(self) -> JsonObject | None:
        while True:
            try:
                return await self._store.load()
            except KubeError as error:
                _log.warning("the identity cannot be read: %s", error)
                await anyio.sleep(_RETRY_SECONDS)


async def _obtain(
    hub: KubeClient,
    kubeconfig: JsonObject,
    made: ClientRequest,
    *,
    cluster: str,
    name: str,
    uid: str,
    store: Store,
    seconds: int,
    patience: float,
) -> JsonObject:
    text = base64.b64encode(made.request).decode()
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
    certificate = b""
    with anyio.move_on_after(patience):
        await _create(hub, body, name)
        certificate = await _answer(hub, name, text)
    if not certificate:
        raise Refused(f"certificate request {name}: no answer within {patience:.0f} s")
    user = f"{AGENT_USER_PREFIX}{cluster}"
    kubeconfig = with_certificate(kubeconfig, user=user, certificate=certificate, key=made.key)
    await store.save(kubeconfig)
    return kubeconfig


def _request(cluster: str) -> ClientRequest:
    return new_request(f"{AGENT_USER_PREFIX}{cluster}", [AGENT_GROUP])


async def _create(hub: KubeClient, body: JsonObject, name: str) -> None:
    """Make the request; another one of that name is waited out until the hub removes it."""
    told = False
    while True:
        try:
            await hub.create(CERTIFICATE_SIGNING_REQUESTS, body)
        except AlreadyExists:
            found = await hub.get_object(CERTIFICATE_SIGNING_REQUESTS, name)
            if found["spec"]["request"] == body["spec"]["request"]:
                return
            if not told:
                _log.info("certificate request %s is there from before, waiting until the hub has removed it", name)
                told = True
            await anyio.sleep(_ASK_SECONDS)
        else:
            return


async def _answer(hub: KubeClient, name: str, text: str) -> bytes:
    """The certificate, once there is one. Raises `Refused`."""
    told = False
    while True:
        try:
            found = await hub.get_object(CERTIFICATE_SIGNING_REQUESTS, name)
        except NotFound as error:
            raise Refused(f"certificate request {name}: it was removed before it was answered") from error
        if found["spec"]["request"] != text:
            raise Refused(f"certificate request {name}: another one stands in its place")
        status: JsonObject = found.get("status") or {}
        for condition in status.get("conditions") or ():
            if condition["type"] in ("Denied", "Failed"):
                reason = f"{condition.get('reason', '')}: {condition.get('message', '')}"
                raise Refused(f"certificate request {name}: {condition['type']}: {reason}")
        if status.get("certificate"):
            return base64.b64decode(status["certificate"])
        if not told:
            _log.info("certificate request %s waits for an answer", name)
            told = True
        await anyio.sleep(_ASK_SECONDS)
