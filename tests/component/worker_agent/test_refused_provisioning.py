# SPDX-License-Identifier: Apache-2.0
"""What an agent refused to provision is not provisioned later: another cluster may have been asked by then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from random import Random

import anyio
import orjson
import pytest

from devcluster.apiserver.http.listener import Listener
from devcluster.apiserver.server import ApiServer
from multikueue.api.remoteassignment import Intent
from multikueue.api.resource import NAMESPACES, PROVISIONING_REQUESTS
from multikueue.kube.rest.client import KubeClient
from tests.component.worker_agent.test_quotas import client_of
from tests.support.agents import QUICK
from tests.support.assignment_specs import of_job, reservation, workload_spec
from tests.support.embedded import ADMIN, signing_key
from tests.support.managers import Object, eventually
from tests.support.provisioning import install_definition
from worker_agent.app import Agent
from worker_agent.hub.in_memory_mailbox import InMemoryMailbox

pytestmark = pytest.mark.anyio

TEAM = "team"
CHECK = {"name": "capacity", "config": {"provisioningClassName": "check-capacity.autoscaling.x-k8s.io"}}


def assignment(name: str, intent: Intent) -> Object:
    made = reservation(TEAM, workload=workload_spec(TEAM, priority=0), provisioning=[CHECK])
    return of_job(made, name, intent)


@asynccontextmanager
async def worker() -> AsyncIterator[tuple[KubeClient, InMemoryMailbox]]:
    """A cluster with ProvisioningRequests and without queues, and the mailbox of its agent."""
    async with AsyncExitStack() as stack:
        api = ApiServer(signing_key=signing_key(), static_tokens={"own": ADMIN})
        listener = await stack.enter_async_context(Listener(api))
        client = await stack.enter_async_context(client_of(listener.url, "own"))
        await install_definition(client)
        mailbox = InMemoryMailbox("w", manager_uid="m", workload_uid=lambda key: "", changed=lambda obj: None)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(Agent(mailbox, client, cluster="w", intervals=QUICK, random=Random(1)).run)
        stack.callback(tasks.cancel_scope.cancel)
        yield client, mailbox


async def test_a_refusal_to_provision_makes_no_request_once_its_cause_is_gone() -> None:
    async def phase() -> str:
        return str(((mailbox.get("refused") or {}).get("status") or {}).get("phase", ""))

    async def requested() -> set[str]:
        page = await client.list_all(PROVISIONING_REQUESTS, namespace=TEAM)
        found: list[Object] = [orjson.loads(raw) for raw in page.items]
        return {each["metadata"]["annotations"]["multikueue.io/assignment"] for each in found}

    async with worker() as (client, mailbox):
        mailbox.put(assignment("refused", Intent.PROVISION))
        await eventually(phase, what="it is refused, as the namespace is missing", until=lambda seen: seen == "Refused")
        await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TEAM}})
        # Those that come before the agent has seen the namespace are refused too.
        numbers = count()

        async def next_one() -> set[str]:
            mailbox.put(assignment(f"next-{next(numbers)}", Intent.PROVISION))
            return await requested()

        await eventually(next_one, what="a later one is provisioned")
        # By the repetition it is reconciled with the namespace, before another one.
        mailbox.put(assignment("refused", Intent.PROVISION))
        mailbox.put(assignment("last", Intent.PROVISION))
        found = await eventually(requested, what="the last is provisioned", until=lambda seen: "last" in seen)
        assert "refused" not in found
        assert await phase() == "Refused"
