# SPDX-License-Identifier: Apache-2.0
"""What a management cluster that was taken over may have written on a worker as objects that are sent with jobs."""

from __future__ import annotations

import base64

import pytest

from devcluster.cluster import Cluster
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import SECRETS
from multikueue.core.keys import Key
from multikueue.dispatch.sending.sent_objects import contents_of, mailbox_body
from multikueue.dispatch.worker.dependencies import Dependency
from tests.security.test_hostile_hub import (
    TEAM,
    HostileHub,
    _Pushed,
    cluster,
    hostile,
    kube_binaries,
    sockets_settle,
)
from tests.support.agents import assignment_manifest
from tests.support.managers import Object, eventually, get
from tests.support.sites import Transport

__all__ = ["cluster", "kube_binaries", "sockets_settle"]

pytestmark = pytest.mark.anyio
both_transports = pytest.mark.parametrize("transport", list(Transport), ids=str)
VALUE = {"a": base64.b64encode(b"one").decode()}


async def stores(hub: HostileHub, name: str, *, namespace: str = TEAM, kind: str = "Opaque") -> None:
    """Put a Secret of that name and type into the mailbox."""
    body = mailbox_body(
        contents_of({"kind": "Secret", "type": kind, "data": VALUE}),
        source=Key(namespace, name),
        needed=Dependency("Secret", name),
        cluster=hub.name,
        version="v",
        namespace=mailbox_namespace(hub.name),
    )
    if isinstance(hub.box, _Pushed):
        hub.box.mailbox.put_sent_object(body)
        return
    await hub.client.create(SECRETS, body, namespace=mailbox_namespace(hub.name))


async def assigns(hub: HostileHub, job: str, *, namespace: str = TEAM, named: str = "", listed: str) -> str:
    """Write an assignment of a Job that is to run, which lists a Secret; its pods name that or another one."""
    body = assignment_manifest(job, cluster=hub.name, namespace=namespace, intent="Run")
    pod = body["spec"]["job"]["manifest"]["spec"]["template"]["spec"]
    del pod["nodeSelector"]
    pod["volumes"] = [{"name": "v", "secret": {"secretName": named or listed}}]
    body["spec"]["sentObjects"] = [{"kind": "Secret", "name": listed, "version": "v"}]
    await hub.box.put(body)
    hub.written.append((namespace, job))
    return str(body["metadata"]["name"])


async def on_worker(hub: HostileHub, name: str, namespace: str = TEAM) -> Object | None:
    return await get(hub.client, SECRETS, name, namespace=namespace)


async def not_started(hub: HostileHub, assignment: str, part: str) -> None:
    """Wait until the agent answers that the pods lack something, for that reason."""

    def message(status: Object) -> str:
        return " ".join(str(each.get("message")) for each in status.get("conditions") or ())

    await eventually(
        lambda: hub.box.status(assignment), what=f"the agent answers {part!r}", until=lambda seen: part in message(seen)
    )


@both_transports
async def test_a_token_of_a_service_account_is_never_written(cluster: Cluster, transport: Transport) -> None:
    async with hostile(cluster, transport, f"sent-token-{transport}") as hub:
        name = f"{hub.name}-t"
        await stores(hub, name, kind="kubernetes.io/service-account-token")
        assignment = await assigns(hub, f"{hub.name}-x", listed=name)
        await not_started(hub, assignment, "a Secret of type kubernetes.io/service-account-token is never sent")
        assert await on_worker(hub, name) is None


@both_transports
async def test_an_object_of_the_worker_is_neither_changed_nor_removed(cluster: Cluster, transport: Transport) -> None:
    async with hostile(cluster, transport, f"sent-theirs-{transport}") as hub:
        name = f"{hub.name}-s"
        theirs = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"theirs": VALUE["a"]}}
        await hub.client.create(SECRETS, theirs, namespace=TEAM)
        before = await on_worker(hub, name)
        await stores(hub, name)
        assignment = await assigns(hub, f"{hub.name}-x", listed=name)
        found = await hub.hears(assignment, "Refused", "DependencyConflict")
        assert f'Secret "{name}"' in found["message"]
        assert await on_worker(hub, name) == before
        assert await hub.made() == []


@both_transports
async def test_nothing_is_written_in_namespaces_that_are_not_for_tenants(
    cluster: Cluster, transport: Transport
) -> None:
    async with hostile(cluster, transport, f"sent-ns-{transport}", "--denied-namespaces=default") as hub:
        for number, namespace in enumerate(("kube-system", "multikueue-system", "default")):
            name = f"{hub.name}-s"
            if number == 0:
                await stores(hub, name, namespace=namespace)
            assignment = await assigns(hub, f"{hub.name}-x", namespace=namespace, listed=name)
            await hub.hears(assignment, "Refused", "ForbiddenByPolicy")
            assert await on_worker(hub, name, namespace) is None
        assert hub.worker.requests_sent["POST", "secrets"] == 0


@both_transports
async def test_only_what_the_pods_of_the_job_name_is_written(cluster: Cluster, transport: Transport) -> None:
    async with hostile(cluster, transport, f"sent-names-{transport}") as hub:
        named, unnamed = (f"{hub.name}-{each}" for each in ("named", "unnamed"))
        await stores(hub, named)
        await stores(hub, unnamed)
        refused = await assigns(hub, f"{hub.name}-x", named=named, listed=unnamed)
        await hub.hears(refused, "Refused", "DependencyNotFound")
        await assigns(hub, f"{hub.name}-y", listed=named)
        found = await eventually(lambda: on_worker(hub, named), what="it is sent", until=lambda seen: seen is not None)
        assert found is not None
        assert found["data"] == VALUE
        assert [owner["name"] for owner in found["metadata"]["ownerReferences"]] == [f"{hub.name}-y"]
        assert await on_worker(hub, unnamed) is None
