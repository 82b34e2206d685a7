# SPDX-License-Identifier: Apache-2.0
"""S and Q: what the hub says of worker clusters and checks, and what it takes for a kubeconfig.

Where a kubeconfig matters only the push transport can be meant: an agent that dials out needs none.
"""

from __future__ import annotations

import pytest

from multikueue.api.resource import MULTIKUEUE_CLUSTERS, MULTIKUEUE_CONFIGS, SECRETS
from multikueue.kube.errors import Invalid
from tests.support.managers import eventually, get
from tests.support.push_workers import SYSTEM
from tests.support.scenes import Scene, Stage, scene
from tests.support.sites import Transport
from tests.support.workers import KUEUE

pytestmark = pytest.mark.anyio


def secret_of(made: Scene) -> str:
    """The name of the first worker's Secret."""
    return made.w1.name if made.stage.transport is Transport.PUSH else f"{made.w1.name}-kubeconfig"


async def test_s1_conditions_follow_the_secret(stage: Stage) -> None:
    async with scene(stage, "s1") as made:
        await made.check_says("True", "Active")
        name = secret_of(made)
        good = await get(made.client, SECRETS, name, namespace=SYSTEM)
        assert good is not None
        await made.client.patch(SECRETS, name, {"data": {"kubeconfig": "e30="}}, namespace=SYSTEM)
        said = await made.cluster_says(made.w1, "False", "BadKubeConfig")
        assert said["message"].startswith("load client config failed: ")
        said = await made.check_says("True", "SomeActiveClusters")
        assert said["message"] == f"Inactive clusters: [{made.w1.name}]"
        await made.client.delete(SECRETS, name, namespace=SYSTEM)
        await made.cluster_says(made.w1, "False", "BadKubeConfig", part="not found")
        del good["metadata"]["resourceVersion"], good["metadata"]["uid"]
        await made.client.create(SECRETS, good, namespace=SYSTEM)
        await made.cluster_says(made.w1, "True", "Active")
        await made.check_says("True", "Active")


async def test_s3_a_cluster_is_named_once_in_a_config(stage: Stage) -> None:
    async with scene(stage, "s3") as made:
        with pytest.raises(Invalid):
            await made.client.patch(MULTIKUEUE_CONFIGS, made.name, {"spec": {"clusters": [made.w1.name] * 2}})


@pytest.mark.transports("push")
@pytest.mark.parametrize(
    "insecure", [{"insecure-skip-tls-verify": True}, {"certificate-authority": "/tmp/ca.crt"}], ids=["no TLS", "a file"]
)
async def test_s4_s7_an_insecure_kubeconfig_is_refused_and_only_the_other_worker_is_nominated(
    stage: Stage, insecure: dict[str, object]
) -> None:
    async with scene(stage, f"s4-{sorted(insecure)}") as made:
        await made.w1.set_kubeconfig(made.w1.kubeconfig("first", **insecure))
        await made.cluster_says(made.w1, "False", "InsecureKubeConfig", part=next(iter(insecure)))
        workload = await made.submit()
        await made.w2.asked(workload)
        await eventually(
            made.status,
            what="only the other one is nominated",
            until=lambda status: status.get("nominatedClusterNames") == [made.w2.name],
        )
        assert await made.w1.clone(workload) is None
        await made.w1.set_kubeconfig(made.w1.kubeconfig("first"))
        await made.cluster_says(made.w1, "True", "Active")
        await made.w1.asked(workload)


@pytest.mark.transports("push")
@pytest.mark.parametrize("path", ["/tmp/kubeconfig", "kubeconfig", "/etc/multikueue/kubeconfigs/../x"])
async def test_s6_a_path_outside_the_one_folder_is_refused(stage: Stage, path: str) -> None:
    async with scene(stage, f"s6-{path}") as made:
        source = {"kubeConfig": {"location": path, "locationType": "Path"}}
        await made.client.patch(MULTIKUEUE_CLUSTERS, made.w1.name, {"spec": {"clusterSource": source}})
        await made.cluster_says(made.w1, "False", "BadKubeConfig")
        source = {"kubeConfig": {"location": made.w1.name, "locationType": "Secret"}}
        await made.client.patch(MULTIKUEUE_CLUSTERS, made.w1.name, {"spec": {"clusterSource": source}})
        await made.cluster_says(made.w1, "True", "Active")


async def test_q2_a_worker_that_does_not_answer_is_inactive_until_it_does(stage: Stage) -> None:
    async with scene(stage, "q2") as made:
        await made.w1.cut()
        await made.cluster_says(made.w1, "False", "ClientConnectionFailed")
        await made.check_says("True", "SomeActiveClusters")
        await made.w2.cut()
        said = await made.check_says("False", "NoUsableClusters")
        assert said["message"] == f"Inactive clusters: [{made.w1.name} {made.w2.name}]"
        for worker in (made.w1, made.w2):
            await worker.mend()
            await made.cluster_says(worker, "True", "Active")
        await made.check_says("True", "Active")


async def test_a_check_without_its_config_is_bad(stage: Stage) -> None:
    async with scene(stage, "no-config") as made:
        await made.client.delete(MULTIKUEUE_CONFIGS, made.name)
        said = await made.check_says("False", "BadConfig")
        assert f'MultiKueueConfig "{made.name}" not found' in said["message"]


CLUSTER = {"apiVersion": KUEUE, "kind": "MultiKueueCluster"}
CONFIG = {"apiVersion": KUEUE, "kind": "MultiKueueConfig"}


def source(**fields: object) -> dict[str, object]:
    """A cluster with that source."""
    return {**CLUSTER, "spec": {"clusterSource": fields}}


def config(*names: str) -> dict[str, object]:
    """A config of those clusters."""
    return {**CONFIG, "spec": {"clusters": list(names)}}


# docs/spec/multikueue.md §2.2, in its order.
ACCEPTED = {
    "a secret": source(kubeConfig={"location": "s", "locationType": "Secret"}),
    "a path": source(kubeConfig={"location": "/p", "locationType": "Path"}),
    "a profile": source(clusterProfileRef={"name": "p"}),
    "one cluster": config("a"),
    "several clusters": config("a", "b", "c"),
}
REJECTED = {
    "no source": source(),
    "both sources": source(kubeConfig={"location": "s"}, clusterProfileRef={"name": "p"}),
    "an empty location": source(kubeConfig={"location": ""}),
    "a location that is too long": source(kubeConfig={"location": "x" * 257}),
    "a bad location type": source(kubeConfig={"location": "s", "locationType": "Url"}),
    "an empty profile name": source(clusterProfileRef={"name": ""}),
    "a profile name that is too long": source(clusterProfileRef={"name": "x" * 257}),
    "no clusters": config(),
    "the same cluster twice": config("a", "a"),
    "too many clusters": config(*(f"c{number}" for number in range(21))),
    "a cluster name that is too long": config("x" * 257),
}


@pytest.mark.transports("pull")
async def test_v1_what_the_api_accepts_and_rejects_of_clusters_and_configs(stage: Stage) -> None:
    async with scene(stage, "v1") as made:

        async def taken(body: dict[str, object]) -> bool:
            resource = MULTIKUEUE_CLUSTERS if body["kind"] == "MultiKueueCluster" else MULTIKUEUE_CONFIGS
            try:
                await made.client.create(resource, {**body, "metadata": {"name": "v1"}}, dry_run=True)
            except Invalid:
                return False
            return True

        assert [case for case, body in ACCEPTED.items() if not await taken(body)] == []
        assert [case for case, body in REJECTED.items() if await taken(body)] == []


@pytest.mark.transports("pull")
async def test_v2_the_location_type_defaults_to_secret_and_conditions_are_counted(stage: Stage) -> None:
    async with scene(stage, "v2") as made:
        body = {**source(kubeConfig={"location": "nowhere"}), "metadata": {"name": f"{made.name}-v2"}}
        await made.client.create(MULTIKUEUE_CLUSTERS, body)
        found = await get(made.client, MULTIKUEUE_CLUSTERS, f"{made.name}-v2")
        assert found is not None
        assert found["spec"]["clusterSource"]["kubeConfig"]["locationType"] == "Secret"

        def conditions(count: int) -> dict[str, object]:
            stamp = {"status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            return {"status": {"conditions": [{"type": f"T{number}", **stamp} for number in range(count)]}}

        patch = (MULTIKUEUE_CLUSTERS, f"{made.name}-v2")
        await made.client.patch(*patch, conditions(16), subresource="status")
        with pytest.raises(Invalid):
            await made.client.patch(*patch, conditions(17), subresource="status")
        await made.client.delete(MULTIKUEUE_CLUSTERS, f"{made.name}-v2")
