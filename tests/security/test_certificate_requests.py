# SPDX-License-Identifier: Apache-2.0
"""Whoever may create certificate requests cannot keep an agent from renewing its certificate."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from random import Random

import anyio
import pytest

from devcluster.cluster import Cluster
from manager.dispatch.controller import DispatchController
from multikueue.api.constants import AGENT_GROUP, CLUSTER_LABEL, CLUSTER_UID_ANNOTATION
from multikueue.api.resource import CERTIFICATE_SIGNING_REQUESTS, CLUSTER_ROLES
from multikueue.cli.cluster.registering import RegistrationRequest, register
from multikueue.core.clock import SystemClock
from multikueue.dispatch.protocol.enrolment import MAX_OPEN_REQUESTS, renewal_role
from multikueue.kube.rest import credentials
from multikueue.kube.rest.certificates import new_request
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import Object, condition, connections_closed, eventually, get, running_manager
from tests.support.tenant_hubs import hub as hub
from tests.support.tenant_hubs import tenant
from tests.support.workers import SCALED_DOWN
from worker_agent.hub.enrolment import Renewer, enrol
from worker_agent.hub.identity import FileStore
from worker_agent.options import Renewal

pytestmark = pytest.mark.anyio

CLOCK = SystemClock()
UID = "cluster-1"
ASKS_FOR_CERTIFICATES = (
    {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create", "get"]},
)


def csr(name: str, *, cluster: str = "", user: str = "mallory") -> Object:
    """A request of that name, with the label of a cluster where one is given."""
    marks = {
        "labels": {CLUSTER_LABEL: cluster},
        "annotations": {CLUSTER_LABEL: cluster, CLUSTER_UID_ANNOTATION: UID},
    }
    return {
        "apiVersion": CERTIFICATE_SIGNING_REQUESTS.api_version,
        "kind": CERTIFICATE_SIGNING_REQUESTS.kind,
        "metadata": {"name": name, **(marks if cluster else {})},
        "spec": {
            "request": base64.b64encode(new_request(user, [AGENT_GROUP]).request).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "expirationSeconds": 3600,
            "usages": ["digital signature", "client auth"],
        },
    }


@asynccontextmanager
async def registered(hub: Cluster, name: str, folder: Path) -> AsyncIterator[tuple[KubeClient, KubeClient, FileStore]]:
    """The administrator's and an agent's client, and where the agent keeps its identity."""
    async with connections_closed(), hub.client() as admin:
        async with running_manager(hub, settings=SCALED_DOWN, dispatch=DispatchController):
            wanted = RegistrationRequest(cluster=name, namespace="kueue-system", ttl=timedelta(hours=1), accept=True)
            made = await register(admin, wanted, clock=CLOCK)
            store = FileStore(folder / "hub")
            with anyio.fail_after(30):
                await enrol(
                    made.kubeconfig,
                    cluster=name,
                    token_id=made.token_id,
                    uid=UID,
                    store=store,
                    clock=CLOCK,
                    seconds=600,
                )
            async with KubeClient(credentials.load(folder / "hub")) as agent:
                yield admin, agent, store


async def renewed(agent: KubeClient, name: str, store: FileStore, *, random: Random | None = None) -> None:
    """Let the agent renew its certificate at once; waits until it has done so."""

    async def uid() -> str:
        return UID

    before = await store.load()
    renewer = Renewer(
        agent,
        cluster=name,
        uid=uid,
        store=store,
        clock=CLOCK,
        random=random or Random(1),
        renewal=Renewal(earliest=0.0, latest=0.0, seconds=600),
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(renewer.run)
        await eventually(
            store.load, what="another certificate is there", until=lambda seen: seen != before, deadline=20
        )
        tasks.cancel_scope.cancel()


async def test_a_tenant_who_takes_the_name_of_a_renewal_does_not_hold_it_up(hub: Cluster, tmp_path: Path) -> None:
    async with registered(hub, "squatted", tmp_path) as (admin, agent, store):
        async with tenant(hub, admin, "squatter", rules=ASKS_FOR_CERTIFICATES) as squatter:
            # Unlabelled, so that no clean-up removes them.
            for name in ("mk-squatted-renewal", "mk-squatted-renewal-2"):
                await squatter.create(CERTIFICATE_SIGNING_REQUESTS, csr(name))
        await renewed(agent, "squatted", store)


async def test_a_renewal_whose_name_is_taken_all_the_same_takes_another(hub: Cluster, tmp_path: Path) -> None:
    async with registered(hub, "guessed", tmp_path) as (admin, agent, store):
        async with tenant(hub, admin, "guesser", rules=ASKS_FOR_CERTIFICATES) as guesser:
            random = Random(7)
            random.uniform(0.0, 0.0)  # the moment of the renewal is drawn first
            name = f"mk-guessed-renewal-{random.getrandbits(80):020x}"
            await guesser.create(CERTIFICATE_SIGNING_REQUESTS, csr(name))
        await renewed(agent, "guessed", store, random=Random(7))
        assert await get(admin, CERTIFICATE_SIGNING_REQUESTS, name) is not None


async def test_an_agent_with_the_role_of_a_former_version_still_renews(hub: Cluster, tmp_path: Path) -> None:
    async with registered(hub, "former", tmp_path) as (admin, agent, store):
        role = await admin.get_object(CLUSTER_ROLES, renewal_role("former"))
        create, read = role["rules"]
        former = [create, {**read, "resourceNames": ["mk-former-renewal"]}]
        await admin.patch(CLUSTER_ROLES, renewal_role("former"), {"rules": former})
        await renewed(agent, "former", store)


async def test_a_request_in_the_name_of_a_cluster_is_denied_unless_its_agent_sent_it(
    hub: Cluster, tmp_path: Path
) -> None:
    async with registered(hub, "claimed", tmp_path) as (admin, _, _):
        async with tenant(hub, admin, "claimant", rules=ASKS_FOR_CERTIFICATES) as claimant:
            body = csr("mk-claimed-renewal", cluster="claimed", user="system:mk:cluster:claimed")
            await claimant.create(CERTIFICATE_SIGNING_REQUESTS, body)
        found = await eventually(
            lambda: get(admin, CERTIFICATE_SIGNING_REQUESTS, "mk-claimed-renewal"),
            what="it is denied",
            until=lambda seen: bool(condition(seen, "Denied")),
        )
        assert condition(found, "Denied")["reason"] == "WrongRequester"


async def test_an_agent_has_a_bounded_number_of_approved_requests(hub: Cluster, tmp_path: Path) -> None:
    async with registered(hub, "greedy", tmp_path) as (admin, agent, _):
        names = [f"greedy-{number}" for number in range(MAX_OPEN_REQUESTS + 4)]
        for name in names:
            body = csr(name, cluster="greedy", user="system:mk:cluster:greedy")
            await agent.create(CERTIFICATE_SIGNING_REQUESTS, body)

        async def decided() -> list[str]:
            found = [await get(admin, CERTIFICATE_SIGNING_REQUESTS, name) for name in names]
            return [
                condition(each, "Denied").get("reason") or condition(each, "Approved").get("type", "") for each in found
            ]

        seen = await eventually(decided, what="all are answered", until=all)
        assert seen.count("Approved") == MAX_OPEN_REQUESTS
        assert seen.count("TooManyRequests") == len(names) - MAX_OPEN_REQUESTS
