# SPDX-License-Identifier: Apache-2.0
"""Agents that join the hub: token, request, approval, certificate, and its renewal.

Owns the three sides of it that are not the manager: the administrator who registers and approves with the code of
`mkctl cluster`, the controller that signs what was approved, and the process of an agent that joins by what it was
handed. Who an agent is on the hub is what its token or its certificate says, and a certificate ends. Leaves out the
handshake: there is no TLS in a simulation.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final

import anyio
import orjson
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from devcluster.apiserver.auth.authentication import certificate_user
from devcluster.apiserver.http.requests import LOOPBACK, MASTERS, Request, User
from devcluster.apiserver.storage.entry import StoredChange
from devcluster.controllers.certificate_requests import needs_signature
from devcluster.controllers.request_signing import RequestSigner
from devcluster.pki import Authority
from manager import seals
from multikueue.api.constants import AGENT_USER_PREFIX, BATCH_JOB_FRAMEWORK, CLUSTER_LABEL
from multikueue.cli.cluster import registering
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.dispatch.protocol.enrolment import bootstrap_user
from multikueue.kube.errors import KubeError
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.credentials import ClusterConfig
from tests.simulation.world.federation import Process, agent_of
from tests.simulation.world.network import Link, Server, SimClient
from tests.simulation.world.virtual_time import SimClock
from worker_agent.hub import enrolment, joining
from worker_agent.hub.identity import SecretStore
from worker_agent.options import AgentOptions, Renewal

Object = dict[str, Any]

REQUESTS: Final = "certificatesigningrequests.certificates.k8s.io"
_NAMESPACE: Final = "kueue-system"
_HOME: Final = ("kube-system", "multikueue-agent")
HOME_PATH: Final = f"/api/v1/namespaces/{_HOME[0]}/secrets/{_HOME[1]}"
_AGAIN: Final = 5.0
_ADMIN: Final = User("admin", (MASTERS, "system:authenticated"))
# A certificate is good from five minutes before it is made until ten after: the next one is due some half a minute in.
_RENEWAL: Final = Renewal(earliest=0.34, latest=0.4, seconds=600)
_HANDED: Final[dict[str, Object]] = {}
"""The bootstrap kubeconfig that lies beside each agent."""
_WAYS: Final[dict[str, Callable[[ClusterConfig, Clock], KubeClient]]] = {}
"""How who asks for a first certificate reaches the hub, by the address that the kubeconfig names."""


@cache
def signer() -> RequestSigner:
    """The hub's authority at work.

    Made by the seed that needs it: certificates differ in length from run to run, and with them where everything lies
    that is made after them, by which sets are ordered.
    """
    return RequestSigner(Authority.create("hub").pair)


class Signer:
    """Signs what was approved, a moment later."""

    def __init__(self, server: Server, random: Random, *, violated: Callable[[str], None]) -> None:
        """`violated` is called for an approval that must not happen."""
        self._server = server
        self._random = random
        self._violated = violated

    def on_write(self, collection: str, event: StoredChange) -> None:
        """Note that a request may have been approved."""
        if collection != REQUESTS or event.entry is None or not needs_signature(event.value()):
            return
        request = event.value()
        cluster = request["metadata"]["annotations"][CLUSTER_LABEL]
        asks = request["spec"]["username"]
        if asks not in (bootstrap_user(_NAMESPACE, cluster), f"{AGENT_USER_PREFIX}{cluster}"):
            self._violated(f"{asks} was given the certificate of {cluster}")
        registration = self._server.api.context.get("clusterregistrations.multikueue.io", cluster)
        if registration is None or not registration["spec"].get("accepted"):
            self._violated(f"{cluster} was approved without being accepted")
        asyncio.get_running_loop().call_later(self._random.uniform(0.05, 2.0), self._sign, event.key)

    def _sign(self, key: str) -> None:
        request = self._server.api.context.get(REQUESTS, key)
        if request is None or not needs_signature(request):
            return
        if not self._server.up:
            asyncio.get_running_loop().call_later(1.0, self._sign, key)
            return
        made = signer().sign(request["spec"], now=self._server.api.context.now())
        body = orjson.dumps({"status": {"certificate": base64.b64encode(made).decode()}})
        headers = {"content-type": "application/merge-patch+json"}
        path = f"/apis/certificates.k8s.io/v1/certificatesigningrequests/{key.strip('/')}/status"
        self._server.api.handle(Request("PATCH", path, "", headers, body, certificate=LOOPBACK))


def forget(cluster: str) -> None:
    """What the agent was handed is of no use any more."""
    _HANDED.pop(cluster, None)


class Registrar:
    """The administrator of the hub who lets clusters in."""

    def __init__(self, link: Link, clock: SimClock, random: Random) -> None:
        self._link = link
        self._clock = clock
        self._random = random

    async def see_to(self, cluster: str) -> None:
        """Register it, and again when the agent comes with a token that was redeemed and nothing to show for it."""
        while True:
            if cluster not in _HANDED:
                await self._register(cluster)
            await asyncio.sleep(_AGAIN)

    async def _register(self, cluster: str) -> None:
        """Hand the agent a token; half of the time it has to be approved when it comes."""
        at_once = self._random.random() < 0.5
        wanted = registering.RegistrationRequest(
            cluster=cluster,
            namespace=_NAMESPACE,
            ttl=timedelta(hours=1),
            accept=at_once,
            hub_url=_address(cluster),
        )
        async with SimClient(self._link, _ADMIN, clock=self._clock, random=self._random) as hub:
            while True:
                try:
                    made = await registering.register(hub, wanted, clock=self._clock)
                    break
                except MultikueueError:
                    # It is partly registered, or the hub did not answer: the message says to run it again.
                    await asyncio.sleep(_AGAIN)
            _HANDED[cluster] = made.kubeconfig
            while not at_once:
                await asyncio.sleep(self._random.uniform(1.0, 10.0))
                try:
                    await registering.approve(hub, cluster, wait_seconds=0.1)
                    break
                except KubeError:
                    continue


class _Handed:
    """The file with the bootstrap kubeconfig."""

    def __init__(self, path: Path) -> None:
        self._cluster = path.name

    async def load(self) -> Object | None:
        """What the administrator handed over last."""
        return _HANDED.get(self._cluster)


class AgentClient(SimClient):
    """An agent's client, as whom its credentials say."""

    def __init__(
        self, link: Link, config: ClusterConfig, *, clock: Clock, random: Random, certified: Callable[[], None]
    ) -> None:
        super().__init__(link, None, clock=clock, random=random)
        self._certified = certified
        self.use(config)

    def use(self, config: ClusterConfig) -> None:
        """From now on by these credentials."""
        super().use(config)
        pem = config.tls._pems[1].read()
        if pem:
            found = x509.load_pem_x509_certificate(pem)
            user = certificate_user(found.public_bytes(serialization.Encoding.DER))
            assert user is not None, "an agent's certificate names it"
            self._sessions_of_the_link.calls.be(user, until=found.not_valid_after_utc)
            self._certified()


def draw_seals(random: Random) -> None:
    """Have managers draw the key of their seals from the seed."""

    class Drawn:
        @staticmethod
        def token_bytes(size: int) -> bytes:
            return random.randbytes(size)

    setattr(seals, "secrets", Drawn)  # noqa: B010 (mypy would have it that modules are final)


def prepare(random: Random) -> None:
    """Have the real code find the parts of this module; the process ends with its seed."""

    class Drawn:
        @staticmethod
        def token_hex(size: int) -> str:
            return random.randbytes(size).hex()

    _HANDED.clear()
    setattr(registering, "secrets", Drawn)  # noqa: B010 (mypy would have it that modules are final)
    setattr(joining, "FileStore", _Handed)  # noqa: B010
    setattr(enrolment, "KubeClient", lambda config, *, clock: _WAYS[config.server](config, clock))  # noqa: B010


def agent(
    name: str,
    hub: Link,
    worker: Link,
    clock: SimClock,
    random: Random,
    *,
    certified: Callable[[], None],
    frameworks: tuple[str, ...] = (BATCH_JOB_FRAMEWORK,),
) -> Process:
    """The agent of a worker, which has no identity until it has joined; `certified` is called for each certificate."""

    def reach(config: ClusterConfig, clock: Clock) -> AgentClient:
        return AgentClient(hub, config, clock=clock, random=random, certified=certified)

    _WAYS[_address(name)] = reach
    given = AgentOptions(
        cluster=name, hub_secret="/".join(_HOME), bootstrap_kubeconfig=f"/beside/{name}", renewal=_RENEWAL
    )

    async def body(number: int) -> None:
        async with SimClient(worker, _ADMIN, clock=clock, random=random) as worker_client:
            store = SecretStore(worker_client, namespace=_HOME[0], name=_HOME[1])
            config = await _joined(given, worker_client, store, clock)
            async with reach(config, clock) as hub_client, anyio.create_task_group() as tasks:
                renewer = enrolment.Renewer(
                    hub_client,
                    cluster=name,
                    uid=lambda: enrolment.cluster_uid(worker_client),
                    store=store,
                    clock=clock,
                    random=random,
                    renewal=given.renewal,
                )
                tasks.start_soon(renewer.run, name="renewal")
                made = agent_of(
                    hub_client, worker_client, name, number=number, clock=clock, random=random, frameworks=frameworks
                )
                await made.run()

    return Process(name, [hub, worker], body)


async def _joined(given: AgentOptions, worker: KubeClient, store: SecretStore, clock: SimClock) -> ClusterConfig:
    """The identity; a process that ends for the want of one is started again."""
    while True:
        try:
            return await joining.hub_config(given, worker, store, clock=clock)
        except (BadInput, enrolment.Refused):
            forget(given.cluster)
            await asyncio.sleep(_AGAIN)


def _address(cluster: str) -> str:
    return f"http://{cluster}.hub"
