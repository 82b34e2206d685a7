# SPDX-License-Identifier: Apache-2.0
"""A hub with one worker cluster, reached by a kubeconfig; the manager of each is this project's or Kueue's.

Both are embedded clusters with controllers and without nodes: the course says how pods fare.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import orjson

from devcluster.cluster import Cluster
from devcluster.federation import enrolment
from devcluster.operators.templated import TemplatedOperator
from devcluster.ports import PortRegistry
from devcluster.providers.embedded.provider import EmbeddedProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.api import crds
from multikueue.api.constants import MULTIKUEUE_MANAGED_BY
from multikueue.api.resource import JOBS, LEADER_WORKER_SETS, MULTIKUEUE_CLUSTERS, PODS, SECRETS, WORKLOADS, Resource
from multikueue.kube.rest.client import KubeClient
from tests.bench.queueing.hubs import running_manager
from tests.bench.queueing.kueue import running_kueue
from tests.comparison.hub import NAMESPACE, ComparedHub
from tests.comparison.kinds_hub import FRAMEWORKS, RESOURCES, define_kinds, kinds_cluster
from tests.comparison.shown import comparable, job_lines, lines
from tests.support.managers import ensure, job_manifest, make_namespace, make_queue
from tests.support.operators.operated_kinds import kind_of
from tests.support.operators.operator import operating
from tests.support.workers import make_check

Object = dict[str, Any]

_CLUSTER: Final = "w"
_KUEUE: Final = "kueue.x-k8s.io/v1beta2"
MULTIKUEUE_TIMES: Final = {"multiKueue": {"gcInterval": "3s", "workerLostTimeout": "6s", "origin": "hub"}}
_LOOKS: Final = 40
_LOOK_SECONDS: Final = 0.25


class ComparedFederation:
    """Both clusters."""

    def __init__(
        self,
        hub: KubeClient,
        worker: KubeClient,
        *,
        jobs: Sequence[Resource],
        take_over: Callable[[], Awaitable[None]],
    ) -> None:
        """`take_over` stops the manager of the hub, and starts this project's in its place."""
        self.hub = ComparedHub(hub)
        self.worker = ComparedHub(worker)
        self.take_over = take_over
        self._jobs = jobs

    async def submit(self, name: str, *, cpu: str = "1", template: Object | None = None) -> None:
        """A Job that is dispatched; `template` has more fields of its pods."""
        body = job_manifest(name, namespace=NAMESPACE, queue="q", cpu=cpu, suspend=True)
        body["spec"] |= {"managedBy": MULTIKUEUE_MANAGED_BY, "backoffLimit": 0}
        body["spec"]["template"]["spec"] |= template or {}
        await self.hub.client.create(JOBS, body, namespace=NAMESPACE)

    async def pods(self, job: str, phase: str) -> None:
        """The pods of the remote Job are in this phase, once there are any."""
        found: list[Object] = []
        for _ in range(_LOOKS):
            raw = (await self.worker.client.list_all(PODS, namespace=NAMESPACE)).items
            found = [pod for pod in map(orjson.loads, raw) if _belongs(pod, job)]
            if found:
                break
            await anyio.sleep(_LOOK_SECONDS)
        else:
            raise LookupError(f"no pod of remote Job {NAMESPACE}/{job}")
        for pod in found:
            name = pod["metadata"]["name"]
            status = {"status": _pod_status(phase)}
            await self.worker.client.patch(PODS, name, status, namespace=NAMESPACE, subresource="status")

    async def lines(self) -> list[str]:
        """What is shown on the hub, and of remote jobs and Workloads."""
        found: list[str] = []
        for resource in self._jobs:
            for raw in (await self.worker.client.list_all(resource, namespace=NAMESPACE)).items:
                obj = {"kind": resource.kind, **orjson.loads(raw)}
                found += (f"remote {line}" for line in job_lines(obj, with_status=False))
        for raw in (await self.worker.client.list_all(WORKLOADS, namespace=NAMESPACE)).items:
            obj = orjson.loads(raw)
            conditions = (obj.get("status") or {}).get("conditions") or ()
            shown = ", ".join(sorted(f"{each['type']}={each['status']} {each['reason']}" for each in conditions))
            found.append(f"remote Workload {obj['metadata']['name']}: active {obj['spec'].get('active')}, {shown}")
        return [*(await lines(self.hub.client, NAMESPACE, jobs=self._jobs)), *map(comparable, found)]


@asynccontextmanager
async def running_federation(
    folder: Path,
    *,
    hub_kueue: Path | None,
    worker_kueue: Path | None,
    configuration: dict[str, Any],
    on_worker: Mapping[str, Any],
    every_kind: bool = False,
    taking_over: Mapping[str, Any] | None = None,
) -> AsyncIterator[ComparedFederation]:
    """Both clusters, each with this project's manager, or with that binary of Kueue's.

    `configuration` has sections of that of the hub, `on_worker` of that of the worker, and `taking_over` of that of the
    manager which takes the place of the hub's. With `every_kind` jobs of all kinds run on the worker.
    """
    async with AsyncExitStack() as stack:
        ports = stack.enter_context(PortRegistry())
        provider = await stack.enter_async_context(EmbeddedProvider(folder=folder))
        manifests = [*crds.manifests(), enrolment.system_namespace()]
        spec = ClusterSpec(manifests=manifests, scheduler=False)
        made = await provider.create("hub", folder=folder / "hub", spec=spec)
        hub = await stack.enter_async_context(made)
        if every_kind:
            worker = await stack.enter_async_context(kinds_cluster(stack, provider, folder / _CLUSTER))
            plays = await stack.enter_async_context(hub.client())
            await define_kinds(plays)
            await stack.enter_async_context(operating(TemplatedOperator(plays, kind_of(LEADER_WORKER_SETS))))
        else:
            spec = ClusterSpec(manifests=manifests)
            made = await provider.create(_CLUSTER, folder=folder / _CLUSTER, spec=spec)
            worker = await stack.enter_async_context(made)
        jobs: dict[str, Any] = {"integrations": {"frameworks": list(FRAMEWORKS) if every_kind else ["batch/job"]}}
        of_hub = await stack.enter_async_context(AsyncExitStack())

        async def run(on: AsyncExitStack, cluster: Cluster, kueue: Path | None, given: Mapping[str, Any]) -> None:
            managers = folder / f"manager-{cluster.name}-{'ours' if kueue is None else 'kueue'}"
            managers.mkdir()
            if kueue is None:
                manager = await running_manager(cluster, managers, given, ports=ports, extra=())
                on.push_async_callback(manager.process.stop)
            else:
                started = running_kueue(cluster, kueue, folder=managers, ports=ports, configuration=given)
                await on.enter_async_context(started)

        async def take_over() -> None:
            await of_hub.aclose()
            await run(of_hub, hub, None, {**MULTIKUEUE_TIMES, **(taking_over or configuration), **jobs})

        await run(stack, worker, worker_kueue, {**on_worker, **jobs})
        await run(of_hub, hub, hub_kueue, {**MULTIKUEUE_TIMES, **configuration, **jobs})
        to_hub, to_worker = [await stack.enter_async_context(each.client()) for each in (hub, worker)]
        federation = ComparedFederation(
            to_hub, to_worker, jobs=RESOURCES if every_kind else (JOBS,), take_over=take_over
        )
        for client in (to_hub, to_worker):
            await make_namespace(client, NAMESPACE)
        await federation.worker.queue(cpu="9")
        await connect_by_kubeconfig(to_hub, _CLUSTER, await anyio.Path(worker.kubeconfig).read_bytes())
        await make_check(to_hub, "mk", (_CLUSTER,))
        await make_queue(to_hub, "q", namespace=NAMESPACE, cpu="40", checks=("mk",))
        yield federation


async def connect_by_kubeconfig(hub: KubeClient, name: str, kubeconfig: bytes) -> None:
    """Make a worker cluster of this name on the hub, which reaches it by this kubeconfig."""
    metadata = {"name": name, "namespace": "kueue-system"}
    secret = {"metadata": metadata, "data": {"kubeconfig": b64encode(kubeconfig).decode()}}
    await ensure(hub, SECRETS, {"apiVersion": "v1", "kind": "Secret", **secret})
    source = {"kubeConfig": {"location": name, "locationType": "Secret"}}
    cluster = {"metadata": {"name": name}, "spec": {"clusterSource": source}}
    await ensure(hub, MULTIKUEUE_CLUSTERS, {"apiVersion": _KUEUE, "kind": "MultiKueueCluster", **cluster})


def _belongs(pod: Object, job: str) -> bool:
    metadata = pod["metadata"]
    return (metadata.get("labels") or {}).get("job-name") == job and "deletionTimestamp" not in metadata


def _pod_status(phase: str) -> Object:
    if phase == "Running":
        return {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]}
    ended = {"terminated": {"exitCode": int(phase == "Failed"), "reason": "Ended"}}
    container = {"name": "c", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": ended}
    return {"phase": phase, "containerStatuses": [container]}
