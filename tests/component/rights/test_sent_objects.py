# SPDX-License-Identifier: Apache-2.0
"""ConfigMaps and Secrets of the hub that are sent with the Jobs whose pods name them, over both transports."""

from __future__ import annotations

import base64
from collections.abc import Iterable

import orjson
import pytest

from multikueue.api.constants import SEND_OBJECTS_ANNOTATION, SENT_OBJECT_LABEL
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import CONFIG_MAPS, JOBS, MULTIKUEUE_CLUSTERS, SECRETS, Resource
from multikueue.dispatch.protocol.worker_rights import SENDING_RIGHTS
from multikueue.kube.errors import Forbidden
from tests.support.agents import agent_client
from tests.support.both_providers import push_apart
from tests.support.limited_workers import ALL, LimitedScene, Pair, hub_managed, limited_scene, rules_of
from tests.support.managers import Object, eventually, get, job_manifest
from tests.support.sites import Transport
from tests.support.workers import check_of

pytestmark = pytest.mark.anyio

WITH_SENDING = rules_of((*ALL, *SENDING_RIGHTS))


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def secret(name: str, **values: str) -> Object:
    """A Secret with these values."""
    data = {key: encoded(value) for key, value in values.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}


def config_map(name: str, **values: str) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": values}


async def allow(scene: LimitedScene, kinds: str = "ConfigMap,Secret") -> None:
    """Have the administrator of the hub allow it for the cluster."""
    body = {"metadata": {"annotations": {SEND_OBJECTS_ANNOTATION: kinds}}}
    await scene.hub.patch(MULTIKUEUE_CLUSTERS, scene.name, body)


async def submit(scene: LimitedScene, job: str, *, secrets: Iterable[str] = (), maps: Iterable[str] = ()) -> None:
    """A long Job whose pods name these objects."""
    manifest = job_manifest(job, namespace=scene.namespace, queue=scene.name)
    template = manifest["spec"]["template"]
    template["metadata"] = {"annotations": {"multikueue.io/run-for": "1h"}}
    template["spec"]["volumes"] = [
        *({"name": f"s-{name}", "secret": {"secretName": name}} for name in secrets),
        *({"name": f"m-{name}", "configMap": {"name": name}} for name in maps),
    ]
    await scene.hub.create(JOBS, manifest, namespace=scene.namespace)


async def there(scene: LimitedScene, resource: Resource, name: str) -> Object | None:
    """The object of that name on the worker."""
    return await get(scene.worker, resource, name, namespace=scene.namespace)


async def arrives(
    scene: LimitedScene, resource: Resource, name: str, *, owners: Iterable[str] = (), **data: str
) -> Object:
    """Wait until the worker has it with that data and these owners."""
    found = await eventually(
        lambda: there(scene, resource, name),
        what=f"{resource.kind} {name} on the worker has {data} and the owners {owners}",
        until=lambda seen: (
            seen is not None
            and seen.get("data") == data
            and sorted(each["name"] for each in seen["metadata"].get("ownerReferences") or ()) == sorted(owners)
        ),
    )
    assert found is not None
    return found


async def goes(scene: LimitedScene, resource: Resource, name: str) -> None:
    """Wait until the worker does not have it any more."""
    await eventually(
        lambda: there(scene, resource, name), what=f"{resource.kind} {name} is gone", until=lambda seen: seen is None
    )


async def waits(scene: LimitedScene, *parts: str, job: str = "j") -> str:
    """The message of the check once it has these parts."""

    async def message() -> str:
        return str(check_of(await scene.workload(job), scene.name).get("message", ""))

    return await eventually(
        message, what=f"the check shows {parts}", until=lambda text: all(part in text for part in parts)
    )


async def stored(scene: LimitedScene) -> list[str]:
    """What is in the mailbox of the cluster."""
    found = []
    for resource in (CONFIG_MAPS, SECRETS):
        page = await scene.hub.list_all(
            resource, namespace=mailbox_namespace(scene.name), label_selector=SENT_OBJECT_LABEL
        )
        found += [f"{resource.kind} {orjson.loads(raw)['metadata']['name']}" for raw in page.items]
    return found


@push_apart
async def test_objects_are_sent_kept_current_shared_and_removed_with_the_last_job(
    pair: Pair, transport: Transport
) -> None:
    async with (
        limited_scene(pair, "sent", rules=WITH_SENDING, transport=transport, queues=False) as scene,
        hub_managed(pair),
    ):
        await allow(scene)
        await scene.says("True", "Active", without="missing rights")
        await scene.hub.create(SECRETS, secret("license", key="one", other="x"), namespace=scene.namespace)
        await scene.hub.create(CONFIG_MAPS, config_map("settings", mode="fast"), namespace=scene.namespace)
        await submit(scene, "j", secrets=["license"], maps=["settings"])
        found = await arrives(scene, SECRETS, "license", owners=["j"], key=encoded("one"), other=encoded("x"))
        assert found["type"] == "Opaque"
        await arrives(scene, CONFIG_MAPS, "settings", owners=["j"], mode="fast")
        await scene.runs()

        await submit(scene, "k", secrets=["license"])
        await arrives(scene, SECRETS, "license", owners=["j", "k"], key=encoded("one"), other=encoded("x"))
        await scene.hub.patch(
            SECRETS, "license", {"data": {"key": encoded("two"), "other": None}}, namespace=scene.namespace
        )
        await arrives(scene, SECRETS, "license", owners=["j", "k"], key=encoded("two"))

        await scene.hub.delete(JOBS, "j", namespace=scene.namespace, propagation="Background")
        await goes(scene, CONFIG_MAPS, "settings")
        await arrives(scene, SECRETS, "license", owners=["k"], key=encoded("two"))
        await scene.hub.delete(JOBS, "k", namespace=scene.namespace, propagation="Background")
        await goes(scene, SECRETS, "license")
        if transport is Transport.PULL:
            await eventually(lambda: stored(scene), what="the mailbox has no contents", until=lambda seen: not seen)


@push_apart
async def test_what_users_of_the_worker_edit_or_delete_is_restored_while_its_job_runs(
    pair: Pair, transport: Transport
) -> None:
    async with (
        limited_scene(pair, "restored", rules=WITH_SENDING, transport=transport, queues=False) as scene,
        hub_managed(pair),
    ):
        await allow(scene)
        await scene.says("True", "Active", without="missing rights")
        await scene.hub.create(SECRETS, secret("license", key="one"), namespace=scene.namespace)
        await scene.hub.create(CONFIG_MAPS, config_map("settings", mode="fast"), namespace=scene.namespace)
        await submit(scene, "j", secrets=["license"], maps=["settings"])
        await arrives(scene, SECRETS, "license", owners=["j"], key=encoded("one"))
        await arrives(scene, CONFIG_MAPS, "settings", owners=["j"], mode="fast")
        edit = {"data": {"key": encoded("theirs"), "more": encoded("x")}}
        await scene.worker.patch(SECRETS, "license", edit, namespace=scene.namespace)
        await scene.worker.delete(CONFIG_MAPS, "settings", namespace=scene.namespace)
        edited = await arrives(scene, SECRETS, "license", owners=["j"], key=encoded("one"))
        restored = await arrives(scene, CONFIG_MAPS, "settings", owners=["j"], mode="fast")
        await scene.runs("j")

        # Its place is taken by an object of others while the job runs.
        await scene.worker.delete(CONFIG_MAPS, "settings", namespace=scene.namespace)
        await scene.worker.create(CONFIG_MAPS, config_map("settings", mode="theirs"), namespace=scene.namespace)
        await scene.worker.patch(SECRETS, "license", edit, namespace=scene.namespace)
        again = await arrives(scene, SECRETS, "license", owners=["j"], key=encoded("one"))
        assert again["metadata"]["uid"] == edited["metadata"]["uid"]
        theirs = await arrives(scene, CONFIG_MAPS, "settings", mode="theirs")
        assert theirs["metadata"]["uid"] != restored["metadata"]["uid"]


@push_apart
async def test_an_object_of_others_is_left_alone_and_is_the_reason_why_the_job_does_not_run_there(
    pair: Pair, transport: Transport
) -> None:
    async with (
        limited_scene(pair, "foreign", rules=WITH_SENDING, transport=transport, queues=False) as scene,
        hub_managed(pair),
    ):
        await allow(scene)
        await scene.says("True", "Active", without="missing rights")
        # Until the manager knows that the agent may write, nothing is sent, and a job runs with what the worker has.
        await scene.hub.create(SECRETS, secret("first", key="ours"), namespace=scene.namespace)
        await submit(scene, "first", secrets=["first"])
        await arrives(scene, SECRETS, "first", owners=["first"], key=encoded("ours"))
        await scene.worker.create(SECRETS, secret("license", key="theirs"), namespace=scene.namespace)
        await scene.hub.create(SECRETS, secret("license", key="ours"), namespace=scene.namespace)
        await submit(scene, "j", secrets=["license"])
        await waits(scene, f"{scene.name}: ", "there are objects of others", 'Secret "license"')
        assert await scene.copy() is None
        await arrives(scene, SECRETS, "license", key=encoded("theirs"))
        await scene.worker.delete(SECRETS, "license", namespace=scene.namespace)
        await arrives(scene, SECRETS, "license", owners=["j"], key=encoded("ours"))
        workload = await scene.workload()
        assert workload is not None
        assert not (workload["status"].get("schedulingStats") or {}).get("evictions"), "it only waited"


@push_apart
async def test_optional_objects_are_sent_where_the_hub_has_them_and_keep_no_job_from_a_cluster(
    pair: Pair, transport: Transport
) -> None:
    async with (
        limited_scene(pair, "optional", rules=WITH_SENDING, transport=transport, queues=False) as scene,
        hub_managed(pair),
    ):
        await allow(scene)
        await scene.says("True", "Active", without="missing rights")
        await scene.hub.create(SECRETS, secret("license", key="one"), namespace=scene.namespace)
        await scene.hub.create(CONFIG_MAPS, config_map("settings", mode="ours"), namespace=scene.namespace)
        await scene.worker.create(CONFIG_MAPS, config_map("settings", mode="theirs"), namespace=scene.namespace)
        manifest = job_manifest("j", namespace=scene.namespace, queue=scene.name)
        template = manifest["spec"]["template"]
        template["metadata"] = {"annotations": {"multikueue.io/run-for": "1h"}}
        (container,) = template["spec"]["containers"]
        container["envFrom"] = [
            {"secretRef": {"name": "license", "optional": True}},
            {"configMapRef": {"name": "later", "optional": True}},
        ]
        projected = [{"configMap": {"name": "settings", "optional": True}}]
        template["spec"]["volumes"] = [{"name": "v", "projected": {"sources": projected}}]
        await scene.hub.create(JOBS, manifest, namespace=scene.namespace)
        await arrives(scene, SECRETS, "license", owners=["j"], key=encoded("one"))
        await scene.runs("j")
        await arrives(scene, CONFIG_MAPS, "settings", mode="theirs")
        assert await there(scene, CONFIG_MAPS, "later") is None
        await scene.hub.create(CONFIG_MAPS, config_map("later", mode="new"), namespace=scene.namespace)
        await arrives(scene, CONFIG_MAPS, "later", owners=["j"], mode="new")
        await scene.hub.delete(JOBS, "j", namespace=scene.namespace, propagation="Background")
        await goes(scene, SECRETS, "license")
        await arrives(scene, CONFIG_MAPS, "settings", mode="theirs")


@push_apart
async def test_what_is_not_sent_has_its_reason_on_the_hub(pair: Pair, transport: Transport) -> None:
    async with (
        limited_scene(pair, "reasons", rules=WITH_SENDING, transport=transport, queues=False) as scene,
        hub_managed(pair),
    ):
        await scene.says("True", "Active", without="missing rights")
        token = {**secret("token"), "type": "kubernetes.io/service-account-token"}
        token["metadata"]["annotations"] = {"kubernetes.io/service-account.name": "default"}
        huge = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "huge"}, "data": {"a": "x" * 700_000}}
        for resource, body in (
            (SECRETS, token),
            (CONFIG_MAPS, huge),
            (CONFIG_MAPS, {**huge, "metadata": {"name": "huge-too"}}),
        ):
            await scene.hub.create(resource, body, namespace=scene.namespace)
        await submit(scene, "j", secrets=["token", "absent"], maps=["huge", "huge-too"])
        shown = await waits(scene, f'"{scene.namespace}": ', 'Secret "token"', 'ConfigMap "huge"')
        assert "not sent" not in shown, "it is off by default"

        await allow(scene)
        shown = await waits(
            scene,
            'Secret "token" (not sent: a Secret of type kubernetes.io/service-account-token is never sent)',
            'Secret "absent" (not sent: there is none on the hub)',
            'ConfigMap "huge-too" (not sent: it has 70',
        )
        assert 'ConfigMap "huge"' not in shown, "one of them is small enough"
        assert await scene.copy() is None

        await allow(scene, "Pods")
        await waits(scene, 'ConfigMap "huge" (not sent: annotation multikueue.io/send-objects: expected one or both')


@push_apart
async def test_without_the_rights_of_the_worker_nothing_is_sent_and_nothing_else_breaks(
    pair: Pair, transport: Transport
) -> None:
    async with (
        limited_scene(pair, "no-rights", rules=rules_of(ALL), transport=transport, queues=False) as scene,
        hub_managed(pair),
    ):
        await allow(scene)
        await scene.says("True", "Active", without="missing rights")
        await scene.hub.create(SECRETS, secret("license", key="one"), namespace=scene.namespace)
        await submit(scene, "j", secrets=["license"])
        await waits(scene, 'Secret "license" (not sent: the agent of the cluster may not write Secrets there')
        assert await stored(scene) == [], "contents are not stored for an agent that cannot use them"
        await submit(scene, "plain")
        await scene.runs("plain")
        await scene.grant(WITH_SENDING)
        await arrives(scene, SECRETS, "license", owners=["j"], key=encoded("one"))
        await scene.runs("j")


async def test_an_agent_reads_what_is_sent_to_its_cluster_and_to_no_other(pair: Pair) -> None:
    async with (
        limited_scene(pair, "reads", rules=WITH_SENDING, transport=Transport.PULL, queues=False) as scene,
        hub_managed(pair),
        agent_client(pair.hub, scene.name) as agent,
        agent_client(pair.hub, "another") as other,
    ):
        await allow(scene, "Secret")
        await scene.says("True", "Active", without="missing rights")
        await scene.hub.create(SECRETS, secret("license", key="one"), namespace=scene.namespace)
        await submit(scene, "j", secrets=["license"])
        await arrives(scene, SECRETS, "license", owners=["j"], key=encoded("one"))
        (name,) = [each.partition(" ")[2] for each in await stored(scene)]
        mailbox = mailbox_namespace(scene.name)
        assert (await agent.get_object(SECRETS, name, namespace=mailbox))["data"] == {"key": encoded("one")}
        for client, resource, namespace in (
            (other, SECRETS, mailbox),
            (agent, SECRETS, scene.namespace),
            (agent, CONFIG_MAPS, mailbox),
        ):
            with pytest.raises(Forbidden):
                await client.get(resource, name, namespace=namespace)
        for client in (agent, other):
            with pytest.raises(Forbidden):
                await client.list_page(SECRETS, namespace=mailbox)
