# SPDX-License-Identifier: Apache-2.0
"""The steps of the provisioning example on one cluster: there is no other to go to, so a user decides what follows."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import orjson

from devcluster import manifests
from devcluster.cluster import Cluster
from multikueue.api.resource import WORKLOADS
from multikueue.cli.local.provisioning.run import ProvisioningExample, configure, is_empty
from multikueue.cli.local.provisioning.story import ExampleView, happened_here
from multikueue.kube.rest.client import KubeClient

_NAME = "cluster"


class OneClusterDemo(ProvisioningExample):
    """The Job starts when its capacity is provisioned; revoked, it is deactivated until a user activates it."""

    async def run(self) -> str:
        """The cluster provisions twice. Raises `DemoFailed`."""
        self._began = time.monotonic()
        async with self._provisioners() as clusters:
            client = clusters[_NAME]
            await manifests.apply_when_served(client, self._objects)
            self._say("the node of the cluster has 2 cpu, the Job has 3 pods of 6 cpu")
            await manifests.create_all(client, [self._job])
            await self._until(client, clusters, "pods of the Job run", lambda seen: seen.active > 0)
            self._say("demo: the autoscaler takes the capacity away")
            await configure(client, revoke="*")
            await self._until(client, clusters, "its Workload is deactivated", _is_over)
            self._say("demo: the autoscaler has capacity again, and the user sets spec.active of the Workload")
            await configure(client, revoke=None)
            await self._activate(client)
            await self._until(client, clusters, "the Job is complete", lambda seen: seen.complete)
            self._say("demo: the Job is deleted")
            await manifests.delete_all(client, [self._job])
            await self._until(client, clusters, "nothing is left", is_empty)
            await manifests.delete_all(client, self._objects)
        return "The Job ran on capacity that was provisioned for it, twice; nothing is left."

    def _clusters(self) -> Mapping[str, Cluster]:
        return {_NAME: self._federation.hub}

    def _sentences(self, before: ExampleView, after: ExampleView) -> Iterator[str]:
        return happened_here(before, after)

    async def _activate(self, client: KubeClient) -> None:
        namespace = self._job["metadata"]["namespace"]
        for raw in (await client.list_all(WORKLOADS, namespace=namespace)).items:
            name = orjson.loads(raw)["metadata"]["name"]
            await client.patch(WORKLOADS, name, {"spec": {"active": True}}, namespace=namespace)


def _is_over(seen: ExampleView) -> bool:
    return seen.deactivated and not seen.active and is_empty(seen)
