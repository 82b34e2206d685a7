# SPDX-License-Identifier: Apache-2.0
"""What clients are answered when the manager's webhooks, or the schemas of its kinds, refuse an object."""

from __future__ import annotations

from collections.abc import Awaitable
from copy import deepcopy

import pytest

from devcluster.cluster import Cluster
from multikueue.api.resource import CLUSTER_QUEUES, JOBS, KUEUE_RESOURCES, WORKLOADS, Resource
from multikueue.kube.errors import ApiError, Forbidden, Invalid
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import connections_closed, make_namespace, make_queue, running_manager
from tests.support.refused_manifests import REFUSED, UNFIT, Object, a_flavor, a_group, a_queue, pods
from tests.support.tenant_hubs import hub as hub
from tests.support.tenant_hubs import tenant

pytestmark = pytest.mark.anyio

RESOURCES = {resource.kind: resource for resource in (*KUEUE_RESOURCES, JOBS)}
BY_SCHEMA = frozenset(
    {
        "a flavor without a covered resource",
        "a list for an object",
        "a preemption that contradicts itself",
        "a preference that is never asked for",
        "a quantity that is none",
        "a queue that is no name",
        "a taint of an unknown effect",
        "a time that is none",
        "a toleration for a time without an end",
        "a toleration of a value that only has to exist",
        "a toleration of an unknown effect",
        "a toleration of an unknown operator",
        "a text for a number",
        "a workload that is no name",
        "borrowing without a cohort",
        "slices of no pods",
        "too many flavors",
    }
)
"""Of what webhooks refuse, what the schemas refuse as well, or before."""


async def answer_to(write: Awaitable[object]) -> ApiError | None:
    try:
        await write
    except ApiError as error:
        return error
    return None


def reason_of(error: ApiError | None) -> str:
    """What a client makes of the answer."""
    if error is None:
        return "taken"
    if isinstance(error, Forbidden) and (error.status, error.reason) == (403, "Forbidden") and error.denied_by_webhook:
        return "forbidden by a webhook"
    if isinstance(error, Invalid) and (error.status, error.reason) == (422, "Invalid"):
        return "invalid by a webhook" if error.denied_by_webhook else "invalid"
    if "failed to create typed patch object" in error.message and not error.denied_by_webhook:
        return "invalid"  # how an API server reports that its schema rejects an applied object
    return str(error)


async def write_status(client: KubeClient, obj: Object) -> None:
    """Make the object and write its status, which no API server takes along with a new object."""
    resource: Resource = RESOURCES[obj["kind"]]
    name, namespace = obj["metadata"]["name"], obj["metadata"].get("namespace")
    await client.create(resource, {key: value for key, value in obj.items() if key != "status"}, namespace=namespace)
    try:
        await client.patch(resource, name, {"status": obj["status"]}, namespace=namespace, subresource="status")
    finally:
        await client.delete(resource, name, namespace=namespace)


async def test_what_webhooks_refuse_is_forbidden_and_what_schemas_refuse_is_invalid(hub: Cluster) -> None:
    async with connections_closed(), hub.client() as client, running_manager(hub):
        # The webhook of Jobs looks for the queue, and nothing is to be admitted meanwhile.
        await make_queue(client, "lq", namespace="team")
        await client.patch(CLUSTER_QUEUES, "lq", {"spec": {"stopPolicy": "Hold"}})
        found: dict[str, str] = {}
        applied: dict[str, str] = {}
        for case, given in (REFUSED | {f"{name} (schema)": obj for name, obj in UNFIT.items()}).items():
            obj = deepcopy(given)
            resource, namespace = RESOURCES[obj["kind"]], obj["metadata"].get("namespace")
            if "status" in obj:
                found[case] = reason_of(await answer_to(write_status(client, obj)))
                continue
            found[case] = reason_of(await answer_to(client.create(resource, obj, namespace=namespace, dry_run=True)))
            # As `kubectl apply --server-side` does.
            apply = client.apply(resource, obj["metadata"]["name"], obj, namespace=namespace, manager="kubectl")
            applied[case] = reason_of(await answer_to(apply))
        wanted = {
            case: "invalid" if case in BY_SCHEMA or case.endswith("(schema)") else "forbidden by a webhook"
            for case in found
        }
        assert {case: seen for case, seen in found.items() if seen != wanted[case]} == {}
        assert {case: seen for case, seen in applied.items() if seen != wanted[case]} == {}


async def test_a_refused_change_names_the_object_and_every_wrong_field(hub: Cluster) -> None:
    async with connections_closed(), hub.client() as client, running_manager(hub):
        await make_queue(client, "team", namespace="team", cpu="4")
        wrong = [a_group(a_flavor(nominalQuota="-1"), a_flavor("g", nominalQuota="-2"))]
        error = await answer_to(client.patch(CLUSTER_QUEUES, "team", {"spec": {"resourceGroups": wrong}}))
        assert reason_of(error) == "forbidden by a webhook"
        assert error is not None
        path = "spec.resourceGroups[0].flavors[{}].resources[0].nominalQuota"
        assert error.message == (
            'admission webhook "vclusterqueue.kb.io" denied the request: ClusterQueue.kueue.x-k8s.io "team" is invalid:'
            f' [{path.format(0)}: Invalid value: "-1": must be greater than or equal to 0,'
            f' {path.format(1)}: Invalid value: "-2": must be greater than or equal to 0]'
        )


async def test_a_missing_right_is_forbidden_too_and_not_taken_for_a_webhook(hub: Cluster) -> None:
    async with hub.client() as admin:
        await make_namespace(admin, "team")
        async with tenant(hub, admin, "visitor", rules=()) as stranger:
            error = await answer_to(stranger.create(WORKLOADS, pods(), namespace="team"))
            queue = await answer_to(stranger.create(CLUSTER_QUEUES, a_queue()))
        for each in (error, queue):
            assert isinstance(each, Forbidden)
            assert not each.denied_by_webhook
