# SPDX-License-Identifier: Apache-2.0
"""Workers whose API servers lie about the rights of the hub, or change their mind all the time.

Each must cost itself only: the other cluster stays Active, runs its Jobs, and the lies reach no text but the table's.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial

import anyio
import pytest

from devcluster.apiserver.auth.authentication import Authentication
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.http.requests import User
from multikueue.api.resource import CLUSTER_QUEUES, CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, JOBS, MULTIKUEUE_CLUSTERS
from multikueue.kube.rest.client import KubeClient
from tests.support.limited_workers import KUEUES_RULES, rule
from tests.support.managers import condition, eventually, get, make_job, make_queue, wait_condition
from tests.support.names import unique_name
from tests.support.push_workers import ADMIN, PushWorker, push_worker
from tests.support.scenes import Stage
from tests.support.sites import Transport
from tests.support.workers import make_check

pytestmark = [pytest.mark.anyio, pytest.mark.transports(Transport.PUSH), pytest.mark.also_on_binaries]

HUB = User("hub", ("system:authenticated",))
NO_JOBS = tuple(each for each in KUEUES_RULES if each["resources"] != ["jobs"])


@dataclass(frozen=True)
class Fields:
    """A queue over an honest worker and one that is not."""

    client: KubeClient
    name: str
    honest: PushWorker
    liar: PushWorker

    @property
    def namespace(self) -> str:
        return f"ns-{self.name}"

    async def says(self, worker: PushWorker, status: str, part: str) -> JsonObject:
        """The Active condition of the worker once it is that; an empty `status` is any."""
        found = await eventually(
            lambda: get(self.client, MULTIKUEUE_CLUSTERS, worker.name),
            what=f"{worker.name} says Active={status} {part}",
            until=lambda seen: (
                (not status or condition(seen, "Active").get("status") == status)
                and part in condition(seen, "Active").get("message", "")
            ),
        )
        return condition(found, "Active")

    async def runs_a_job(self, job: str) -> None:
        """A Job ends on a worker that takes it."""
        await make_job(self.client, job, namespace=self.namespace, queue=self.name)
        await wait_condition(self.client, job, "Finished", namespace=self.namespace, reason="Succeeded")


@asynccontextmanager
async def fields(
    stage: Stage,
    title: str,
    *,
    rules: tuple[JsonObject, ...],
    reviews: Callable[[JsonObject], JsonObject],
    listed: JsonObject | None = None,
) -> AsyncIterator[Fields]:
    """A worker that gives the hub these rights, and answers its reviews by `reviews`, which has the true answer.

    `listed` is what it answers to a review of all rules: by default none at all.
    """
    name = unique_name(title)
    namespace = f"ns-{name}"
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(stage.hub.client())
        honest = await stack.enter_async_context(push_worker(client, f"{name}-honest", namespace=namespace))
        liar = await stack.enter_async_context(push_worker(client, f"{name}-liar", namespace=namespace))
        await _limit(liar, rules, reviews, listed or _listed())
        await make_check(client, name, (honest.name, liar.name))
        await make_queue(client, name, namespace=namespace, checks=(name,))
        made = Fields(client, name, honest, liar)
        await made.says(honest, "True", "Connected")
        await eventually(
            lambda: get(client, CLUSTER_QUEUES, name),
            what="the queue is active",
            until=lambda seen: condition(seen, "Active").get("status") == "True",
        )
        tasks = await stack.enter_async_context(anyio.create_task_group())
        for worker in (honest, liar):
            tasks.start_soon(partial(worker.play, namespace=namespace))
        stack.callback(tasks.cancel_scope.cancel)
        try:
            yield made
        finally:
            with anyio.CancelScope(shield=True):
                await client.delete_collection(JOBS, namespace=namespace)
                await client.delete(CLUSTER_QUEUES, name)


def _listed(*rules: JsonObject) -> JsonObject:
    return {"resourceRules": list(rules), "nonResourceRules": [], "incomplete": False}


async def _limit(
    worker: PushWorker,
    rules: tuple[JsonObject, ...],
    reviews: Callable[[JsonObject], JsonObject],
    listed: JsonObject,
) -> None:
    group = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": "hub"}, "rules": list(rules)}
    await worker.client.create(CLUSTER_ROLES, role)
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "hub"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "hub"},
        "subjects": [{"apiGroup": group, "kind": "User", "name": "hub"}],
    }
    await worker.client.create(CLUSTER_ROLE_BINDINGS, binding)
    api = worker._api
    api.authentication = Authentication(
        tokens=api.tokens, authorizer=api.authorizer, static={"own": ADMIN, "first": HUB}
    )
    true = api._reviews._access

    def answer(user: User, spec: JsonObject) -> JsonObject:
        return reviews(true(user, spec)) if user == HUB else true(user, spec)

    api._reviews._access = answer  # type: ignore[method-assign]
    true_rules = api._reviews._rules

    def answer_rules(user: User, namespace: str) -> JsonObject:
        return listed if user == HUB else true_rules(user, namespace)

    api._reviews._rules = answer_rules  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "listed", [_listed(), _listed({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]})], ids=["review", "rules"]
)
async def test_a_worker_that_allows_everything_in_reviews_and_refuses_requests_is_not_active(
    stage: Stage, listed: JsonObject
) -> None:
    async with fields(stage, "all", rules=NO_JOBS, reviews=lambda true: {"allowed": True}, listed=listed) as it:
        said = await it.says(it.liar, "False", "list jobs.batch (required: ")
        assert said["reason"] == "MissingRights"
        await it.runs_a_job("j")
        await it.says(it.honest, "True", "Connected")


@pytest.mark.attacks
async def test_a_worker_that_denies_everything_in_reviews_affects_itself_only(stage: Stage) -> None:
    rules = (*KUEUES_RULES, rule("", "nodes", "list watch"))
    async with fields(
        stage, "none", rules=rules, reviews=lambda true: {"allowed": False, "reason": "\x1b[2Jgone", "x": "y" * 10_000}
    ) as it:
        said = await it.says(it.liar, "False", "create jobs.batch")
        assert "gone" not in said["message"]
        await it.runs_a_job("j")


@pytest.mark.attacks
async def test_a_worker_that_changes_its_mind_with_each_question_costs_itself_only(stage: Stage) -> None:
    turn = itertools.count()
    async with fields(stage, "flaps", rules=KUEUES_RULES, reviews=lambda true: {"allowed": next(turn) % 7 > 0}) as it:
        # Required rights are among those that it says are missing in turn, so that it is Active at times only.
        await it.says(it.liar, "", "missing rights")
        before = await it.says(it.honest, "True", "Connected")
        for number in range(3):
            await it.runs_a_job(f"j{number}")
        assert await it.says(it.honest, "True", "Connected") == before
