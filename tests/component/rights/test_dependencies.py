# SPDX-License-Identifier: Apache-2.0
"""Jobs whose pods name objects that are missing on the worker: they wait with a reason, and start once these exist."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from devcluster.resources import VOLUME_CLAIMS
from multikueue.api.resource import (
    CONFIG_MAPS,
    JOBS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    SECRETS,
    SERVICE_ACCOUNTS,
    Resource,
)
from tests.support.both_providers import push_apart
from tests.support.limited_workers import (
    ALL,
    KUEUES_RULES,
    LimitedScene,
    Pair,
    hub_managed,
    limited_scene,
    rules_of,
)
from tests.support.managers import Object, eventually, job_manifest
from tests.support.sites import Transport
from tests.support.workers import PATIENT, check_of

pytestmark = pytest.mark.anyio

CLAIM = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
    "storageClassName": "",
    "volumeName": "disk",
}


DEVICES = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}]}}
UNCOUNTED = "featureGates: {KueueDRAIntegration: false, KueueDRARejectWorkloadsWhenDRADisabled: false}"


def named(resource: Resource, name: str, **fields: object) -> Object:
    """An object of a kind."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, **fields}


async def submit(scene: LimitedScene, change: Callable[[Object], None]) -> None:
    """A Job whose pod spec is changed."""
    manifest = job_manifest("j", namespace=scene.namespace, queue=scene.name)
    template = manifest["spec"]["template"]
    template["metadata"] = {"annotations": {"multikueue.io/run-for": "200ms"}}
    change(template["spec"])
    await scene.hub.create(JOBS, manifest, namespace=scene.namespace)


def needs_everything(spec: Object) -> None:
    """A pod that names one object of each kind."""
    spec["serviceAccountName"] = "robot"
    spec["volumes"] = [
        {"name": "a", "secret": {"secretName": "license"}},
        {"name": "b", "configMap": {"name": "settings"}},
        {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "d", "secret": {"secretName": "extra", "optional": True}},
    ]


def needs_a_secret(spec: Object) -> None:
    """A pod with one Secret."""
    spec["volumes"] = [{"name": "a", "secret": {"secretName": "license"}}]


def claims_devices(spec: Object) -> None:
    """A pod with a claim from a template, and with one that exists."""
    spec["resourceClaims"] = [
        {"name": "a", "resourceClaimTemplateName": "one-gpu"},
        {"name": "b", "resourceClaimName": "shared-gpu"},
    ]


async def waits(scene: LimitedScene, *parts: str) -> str:
    """The message of the check once it has these parts."""

    async def message() -> str:
        return str(check_of(await scene.workload(), scene.name).get("message", ""))

    return await eventually(
        message, what=f"the check shows {parts}", until=lambda text: all(part in text for part in parts)
    )


@push_apart
@pytest.mark.parametrize(
    "queues",
    [pytest.param(False, id="no-queues"), pytest.param(True, id="queues", marks=pytest.mark.conformance)],
)
async def test_a_job_waits_for_each_object_that_is_missing_and_starts_when_they_exist(
    pair: Pair, transport: Transport, queues: bool
) -> None:
    async with (
        limited_scene(pair, "needs", rules=rules_of(ALL), transport=transport, queues=queues) as scene,
        hub_managed(pair),
    ):
        await scene.says("True", "Active", without="missing rights")
        await submit(scene, needs_everything)
        shown = await waits(
            scene,
            f'{scene.name}: not found in namespace "{scene.namespace}": ',
            'ServiceAccount "robot"',
            'Secret "license"',
            'ConfigMap "settings"',
            'PersistentVolumeClaim "data"',
        )
        assert "extra" not in shown, "an optional reference is not needed"
        assert await scene.copy() is None
        for resource, body in (
            (SERVICE_ACCOUNTS, named(SERVICE_ACCOUNTS, "robot")),
            (SECRETS, named(SECRETS, "license")),
            (VOLUME_CLAIMS, named(VOLUME_CLAIMS, "data", spec=CLAIM)),
        ):
            await scene.worker.create(resource, body, namespace=scene.namespace)
        await waits(scene, f'"{scene.namespace}": ConfigMap "settings"')
        await scene.worker.create(CONFIG_MAPS, named(CONFIG_MAPS, "settings"), namespace=scene.namespace)
        await scene.created()
        workload = await scene.workload()
        assert workload is not None
        assert not (workload["status"].get("schedulingStats") or {}).get("evictions"), "it only waited"


@push_apart
async def test_a_job_waits_for_the_claims_of_devices_of_its_pods(pair: Pair, transport: Transport) -> None:
    async with (
        limited_scene(pair, "claims", rules=rules_of(ALL), transport=transport, queues=False) as scene,
        hub_managed(pair, settings=f"{PATIENT}\n{UNCOUNTED}\n"),
    ):
        await scene.says("True", "Active", without="missing rights")
        await submit(scene, claims_devices)
        await waits(
            scene,
            f'{scene.name}: not found in namespace "{scene.namespace}": ',
            'ResourceClaimTemplate "one-gpu"',
            'ResourceClaim "shared-gpu"',
        )
        assert await scene.copy() is None
        template = named(RESOURCE_CLAIM_TEMPLATES, "one-gpu", spec={"spec": DEVICES})
        await scene.worker.create(RESOURCE_CLAIM_TEMPLATES, template, namespace=scene.namespace)
        await waits(scene, f'"{scene.namespace}": ResourceClaim "shared-gpu"')
        claim = named(RESOURCE_CLAIMS, "shared-gpu", spec=DEVICES)
        await scene.worker.create(RESOURCE_CLAIMS, claim, namespace=scene.namespace)
        await scene.created()


@push_apart
async def test_a_cluster_whose_agent_may_not_look_runs_the_job_all_the_same(pair: Pair, transport: Transport) -> None:
    async with (
        limited_scene(pair, "blind", rules=KUEUES_RULES, transport=transport, queues=False) as scene,
        hub_managed(pair),
    ):
        await scene.says("True", "Active", "get secrets", "would give: a Job whose pods need an object that is missing")
        await submit(scene, needs_a_secret)
        await scene.created()


@pytest.mark.conformance
@pytest.mark.parametrize("transport", list(Transport))
async def test_a_right_that_is_given_later_is_used_without_a_restart(pair: Pair, transport: Transport) -> None:
    rights = [right for right in ALL if right.name != "get secrets"]
    async with (
        limited_scene(pair, "granted", rules=rules_of(rights), transport=transport, queues=False) as scene,
        hub_managed(pair),
    ):
        await scene.says("True", "Active", "get secrets")
        await scene.grant(rules_of(ALL))
        await scene.says("True", "Active", without="missing rights")
        await submit(scene, needs_a_secret)
        await waits(scene, 'Secret "license"')
        await scene.worker.create(SECRETS, named(SECRETS, "license"), namespace=scene.namespace)
        await scene.created()
