# SPDX-License-Identifier: Apache-2.0
"""Remote jobs whose pods do not start: a user of the hub sees the reason of the worker, and the work moves on.

The causes are real: the admission and the controllers of the worker refuse or hold the pods, the test reports nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest

from devcluster.kubelet.behaviour import PULL_FAILS_ANNOTATION
from devcluster.resources import RESOURCE_QUOTAS
from multikueue.api.constants import AVOIDED_ANNOTATION
from multikueue.api.resource import EVENTS, JOBS, SERVICE_ACCOUNTS, WORKLOADS
from tests.support.both_providers import push_apart
from tests.support.limited_workers import ALL, KUEUES_RULES, LimitedScene, Pair, hub_managed, limited_scene, rules_of
from tests.support.managers import Object, condition, eventually, job_manifest
from tests.support.sites import Transport

pytestmark = pytest.mark.anyio


NOT_LOOKED_FOR = rules_of([right for right in ALL if right.name != "get serviceaccounts"])
"""With these rights a missing service account is found by the pods only."""


def settings(timeout: str) -> str:
    """The Configuration of the hub's manager."""
    return (
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
        f"multiKueue: {{workerLostTimeout: 60s, gcInterval: 2s, podsStartTimeout: {timeout}}}\n"
    )


async def submit(scene: LimitedScene, change: Callable[[Object], None]) -> None:
    """A Job whose pod template is changed."""
    manifest = job_manifest("j", namespace=scene.namespace, queue=scene.name)
    template = manifest["spec"]["template"]
    template["metadata"] = {"annotations": {"multikueue.io/run-for": "200ms"}}
    change(template)
    await scene.hub.create(JOBS, manifest, namespace=scene.namespace)


async def shown(scene: LimitedScene, reason: str, *, part: str = "") -> Object:
    """The condition PodsStarted of the Workload once it has that reason."""
    found = await eventually(
        scene.workload,
        what=f"the Workload shows PodsStarted=False {reason} {part}",
        until=lambda seen: (
            condition(seen, "PodsStarted").get("reason") == reason and part in condition(seen, "PodsStarted")["message"]
        ),
    )
    return condition(found, "PodsStarted")


async def warned(scene: LimitedScene, kind: str, text: str) -> Object:
    """The event about the object of that kind once there is one with that text."""

    async def events() -> list[Object]:
        page = await scene.hub.list_all(EVENTS, namespace=scene.namespace)
        found = [orjson.loads(raw) for raw in page.items]
        return [each for each in found if (each["regarding"]["kind"], each["reason"]) == (kind, "PodsNotStarted")]

    found = await eventually(
        events, what=f"an event of the {kind}", until=lambda seen: any(text in each["note"] for each in seen)
    )
    return found[0]


async def cleared(scene: LimitedScene) -> None:
    """Wait until the Workload shows it no longer."""
    await eventually(scene.workload, what="PodsStarted is gone", until=lambda seen: not condition(seen, "PodsStarted"))


def runs_as(account: str) -> Callable[[Object], None]:
    """A change of the template: it runs as that service account."""

    def change(template: Object) -> None:
        template["spec"]["serviceAccountName"] = account

    return change


def cannot_be_pulled(template: Object) -> None:
    """A change of the template: on a virtual node its image cannot be pulled."""
    template["metadata"]["annotations"][PULL_FAILS_ANNOTATION] = "true"


def unchanged(template: Object) -> None:
    """The template as it is."""


@push_apart
async def test_a_missing_service_account_is_shown_on_the_hub_and_goes_when_it_is_created(
    pair: Pair, transport: Transport
) -> None:
    async with (
        limited_scene(pair, "account", rules=NOT_LOOKED_FOR, transport=transport, queues=False) as scene,
        hub_managed(pair, settings=settings("1h")),
    ):
        await submit(scene, runs_as("robot"))
        found = await shown(scene, "FailedCreate", part='serviceaccount "robot" not found')
        assert found["status"] == "False"
        assert found["message"].startswith(
            f'Worker cluster "{scene.name}": the pods do not start: Error creating: pods '
        )
        for kind in ("Workload", "Job"):
            event = await warned(scene, kind, 'serviceaccount "robot" not found')
            assert event["type"] == "Warning"
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot"}}
        await scene.worker.create(SERVICE_ACCOUNTS, account, namespace=scene.namespace)
        await scene.finished()
        await cleared(scene)
        await scene.gone()


@push_apart
async def test_a_quota_of_the_worker_that_forbids_the_pods_sends_the_work_away_and_the_cluster_is_avoided(
    pair: Pair, transport: Transport
) -> None:
    async with (
        limited_scene(pair, "quota", rules=rules_of(ALL), transport=transport, queues=False) as scene,
        hub_managed(pair, settings=settings("2s")),
    ):
        quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
        await scene.worker.create(
            RESOURCE_QUOTAS, {"apiVersion": "v1", "kind": "ResourceQuota", **quota}, namespace=scene.namespace
        )
        try:
            await submit(scene, unchanged)
            await shown(scene, "FailedCreate", part="exceeded quota: none")
            await eventually(
                scene.workload,
                what="it waits for the cluster, which is avoided",
                until=lambda seen: f"{scene.name}=" in annotation(seen, AVOIDED_ANNOTATION) and not cluster_of(seen),
            )
            await scene.gone()
            workload = await scene.workload()
            assert condition(workload, "PodsStarted")["reason"] == "FailedCreate", (
                "the reason stays until it is sent again"
            )
            assert "did not start the pods: FailedCreate: " in condition(workload, "Evicted")["message"]
            stats = (workload or {})["status"]["schedulingStats"]["evictions"]
            assert [each["count"] for each in stats] == [1], "with one cluster it waits, and is not evicted in a loop"
        finally:
            await scene.worker.delete(RESOURCE_QUOTAS, "none", namespace=scene.namespace)
        # Nothing is left to wait for once an administrator has cleared the list.
        assert workload is not None
        await scene.hub.patch(
            WORKLOADS,
            workload["metadata"]["name"],
            {"metadata": {"annotations": {AVOIDED_ANNOTATION: None}}},
            namespace=scene.namespace,
        )
        await scene.finished()
        await cleared(scene)


@push_apart
async def test_an_image_that_cannot_be_pulled_is_shown_on_the_hub(pair: Pair, transport: Transport) -> None:
    async with (
        limited_scene(pair, "image", rules=rules_of(ALL), transport=transport, queues=False) as scene,
        hub_managed(pair, settings=settings("0s")),
    ):
        await submit(scene, cannot_be_pulled)
        found = await shown(scene, "ImagePullBackOff")
        assert 'Back-off pulling image "' in found["message"]
        assert cluster_of(await scene.workload()) == scene.name
        await scene.hub.delete(JOBS, "j", namespace=scene.namespace, propagation="Background")
        await scene.gone()


@pytest.mark.conformance
async def test_a_job_that_the_queue_of_the_worker_admits_is_looked_at_too(pair: Pair) -> None:
    async with (
        limited_scene(pair, "queued", rules=NOT_LOOKED_FOR, transport=Transport.PULL) as scene,
        hub_managed(pair, settings=settings("1h")),
    ):
        await submit(scene, runs_as("robot"))
        await shown(scene, "FailedCreate", part='serviceaccount "robot" not found')


@pytest.mark.conformance
@pytest.mark.parametrize("transport", list(Transport))
async def test_without_the_right_to_list_events_the_pods_show_what_they_can(pair: Pair, transport: Transport) -> None:
    async with (
        limited_scene(pair, "no-events", rules=KUEUES_RULES, transport=transport, queues=False) as scene,
        hub_managed(pair, settings=settings("1h")),
    ):
        await scene.says("True", "Active", "list events.events.k8s.io (would give: it is known why the pods of a Job")
        await submit(scene, cannot_be_pulled)
        await shown(scene, "ImagePullBackOff")


@pytest.mark.conformance
@pytest.mark.parametrize("transport", list(Transport))
async def test_without_the_right_to_list_pods_the_events_show_what_they_can(pair: Pair, transport: Transport) -> None:
    rights = [right for right in ALL if right.name not in ("list pods", "get serviceaccounts")]
    async with (
        limited_scene(pair, "no-pods", rules=rules_of(rights), transport=transport, queues=False) as scene,
        hub_managed(pair, settings=settings("1h")),
    ):
        await submit(scene, runs_as("robot"))
        await shown(scene, "FailedCreate", part='serviceaccount "robot" not found')


def annotation(workload: Object | None, name: str) -> str:
    """An annotation of the Workload; empty without it."""
    return str(((workload or {}).get("metadata", {}).get("annotations") or {}).get(name, ""))


def cluster_of(workload: Object | None) -> Any:
    """The cluster that it was granted to; None if it was not."""
    return ((workload or {}).get("status") or {}).get("clusterName")
