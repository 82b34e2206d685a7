# SPDX-License-Identifier: Apache-2.0
"""A manager inside the test, and the objects its users make.

Owns starting a `Manager` on free ports beside the test, waiting for what it does with a deadline, and short builders
of queues and jobs.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from time import monotonic
from typing import Any, TypeVar

import anyio
import orjson

from devcluster.cluster import Cluster
from devcluster.ports import PortRegistry
from manager.app import Dispatch, Manager
from manager.options import DISABLED, EVENT_BURST, EVENT_QPS, ManagerOptions
from manager.webhooks.configurations import MUTATING_NAME, VALIDATING_NAME
from multikueue.api import configuration_file
from multikueue.api.constants import QUEUE_NAME_LABEL
from multikueue.api.resource import (
    CLUSTER_QUEUES,
    JOBS,
    LOCAL_QUEUES,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    NAMESPACES,
    PODS,
    RESOURCE_FLAVORS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    WORKLOADS,
)
from multikueue.core.clock import SystemClock
from multikueue.kube.errors import AlreadyExists, InternalError, NotFound
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.support.shown_objects import shown

T = TypeVar("T")
Object = dict[str, Any]

_DEADLINE = 60.0


def free_port() -> int:
    """A port that is free now, and that the kernel gives to no outgoing connection."""
    with PortRegistry() as ports:
        return ports.take()


@asynccontextmanager
async def running_manager(
    cluster: Cluster,
    *,
    settings: str = "",
    webhooks: bool = True,
    leader_election: bool = False,
    job_integrations: bool = True,
    identity: str | None = None,
    dispatch: Dispatch | None = None,
    user: str | None = None,
    own_process: bool = False,
    visibility: bool = False,
    event_qps: float = EVENT_QPS,
    event_burst: int = EVENT_BURST,
) -> AsyncIterator[Manager]:
    """A manager of `cluster` that leads, as long as the context lasts; as `user`, or as the administrator.

    Without `visibility` it does not serve that API: its registration would outlive the manager, and keep namespaces
    from being deleted.

    Managers that follow each other have one port for their webhooks. With another one each would change the conversion
    of the definitions, which costs a real API server more than the rest of a short test.
    """
    own = cluster.client()
    if user is not None:
        own = KubeClient(credentials.from_dict(cluster.issue_client_certificate(user)))
    folder = getattr(cluster, "folder", None)  # what stands in for a cluster may be asked only for clients
    with PortRegistry() as ports:
        port = ports.take(kept_in=folder and folder / "webhooks-port")
        options = ManagerOptions(
            webhook_url=f"https://127.0.0.1:{port}" if webhooks else None,
            webhooks=webhooks,
            leader_election=leader_election,
            job_integrations=job_integrations,
            metrics_bind="127.0.0.1:0",
            health_bind="127.0.0.1:0",
            visibility_bind="127.0.0.1:0" if visibility else DISABLED,
            identity=identity,
            event_qps=event_qps,
            event_burst=event_burst,
        )
        manager = Manager(
            configuration_file.load(settings),
            own,
            options=options,
            clock=SystemClock(),
            random=Random(1),
            dispatch=dispatch,
            own_process=own_process,
        )
        async with cluster.client() as client, own, anyio.create_task_group() as tasks:
            tasks.start_soon(manager.run)
            try:
                if not leader_election:
                    await eventually(lambda: _value(manager.leading), what="the manager leads")
                    if webhooks and job_integrations:
                        await webhooks_answer(client)
                yield manager
            finally:
                tasks.cancel_scope.cancel()
                if webhooks:
                    with anyio.CancelScope(shield=True):
                        await _uninstall_webhooks(client)


async def _uninstall_webhooks(client: KubeClient) -> None:
    """Otherwise the API server would call a manager that has ended."""
    for resource, name in (
        (MUTATING_WEBHOOK_CONFIGURATIONS, MUTATING_NAME),
        (VALIDATING_WEBHOOK_CONFIGURATIONS, VALIDATING_NAME),
    ):
        try:
            await client.delete(resource, name)
        except NotFound:
            continue


@asynccontextmanager
async def connections_closed() -> AsyncIterator[None]:
    """Wait at the end until what was opened inside is closed: a TLS connection closes after that of the server."""
    before = _open_sockets()
    yield
    await eventually(lambda: _value(_open_sockets() <= before), what="all connections are closed", deadline=20)


async def connections_settled(*, seconds: float = 2.0) -> None:
    """Wait until no connection was opened or closed for `seconds`: a watch of a new kind may be refused at first."""
    last, since = _open_sockets(), monotonic()
    with anyio.fail_after(60):
        while monotonic() - since < seconds:
            await anyio.sleep(0.1)
            now = _open_sockets()
            if now != last:
                last, since = now, monotonic()


def _open_sockets() -> set[str]:
    found = set()
    for entry in os.scandir("/proc/self/fd"):
        try:
            target = os.readlink(entry.path)
        except FileNotFoundError:  # the descriptor of this very scan
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found


async def webhooks_answer(client: KubeClient) -> None:
    """Wait until the API server calls the webhooks; it reads a configuration a moment after it is stored."""
    job = job_manifest("probe", namespace="default", queue="probe")

    async def probe() -> bool:
        try:
            stored = orjson.loads(await client.create(JOBS, job, namespace="default", dry_run=True))
        except InternalError as error:
            if "failed calling webhook" not in str(error):
                raise
            return False  # no answer within the server's ten seconds, while the machine is busy
        return bool(stored["spec"].get("suspend"))

    await eventually(probe, what="the webhooks are asked")


async def _value(value: T) -> T:
    return value


def _pause(waited: float) -> float:
    """Until the next probe, in seconds: a tenth of the time waited, since the machine works for what is waited for."""
    return min(0.2, max(0.02, waited / 10))


async def eventually(
    probe: Callable[[], Awaitable[T]], *, what: str, deadline: float = _DEADLINE, until: Callable[[T], bool] = bool
) -> T:
    """What `probe` gives once `until` holds of it; fails with the last answer when it never does."""
    last: T | None = None
    began = anyio.current_time()
    with anyio.move_on_after(deadline):
        while True:
            last = await probe()
            if until(last):
                return last
            await anyio.sleep(_pause(anyio.current_time() - began))
    raise AssertionError(f"not within {deadline:.0f} s: {what}; last seen:\n{shown(last)}")


async def ensure(client: KubeClient, resource: Any, obj: Object) -> None:
    """Create, or leave what is there."""
    try:
        await client.create(resource, obj, namespace=obj["metadata"].get("namespace"))
    except AlreadyExists:
        return


async def make_namespace(client: KubeClient, name: str) -> None:
    """A namespace."""
    await ensure(client, NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


async def make_queue(
    client: KubeClient,
    name: str,
    *,
    namespace: str,
    cpu: str = "10",
    cohort: str | None = None,
    preemption: Object | None = None,
    checks: tuple[str, ...] = (),
    flavor: str = "default",
) -> None:
    """A flavor, a ClusterQueue with cpu and memory of it, a namespace, and a LocalQueue of the same name."""
    await ensure(
        client,
        RESOURCE_FLAVORS,
        {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": flavor}},
    )
    await make_namespace(client, namespace)
    spec: Object = {
        "namespaceSelector": {},
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": cpu}]}],
            }
        ],
    }
    if cohort:
        spec["cohortName"] = cohort
    if preemption:
        spec["preemption"] = preemption
    if checks:
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": check} for check in checks]}
    await client.create(
        CLUSTER_QUEUES,
        {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec},
    )
    await client.create(
        LOCAL_QUEUES,
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"clusterQueue": name},
        },
        namespace=namespace,
    )


def job_manifest(
    name: str,
    *,
    namespace: str,
    queue: str | None,
    cpu: str = "1",
    parallelism: int = 1,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    suspend: bool | None = None,
) -> Object:
    """A Job of one container."""
    labels = {**({QUEUE_NAME_LABEL: queue} if queue else {}), **(labels or {})}
    job: Object = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations or {}},
        "spec": {
            "parallelism": parallelism,
            "completions": parallelism,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}],
                }
            },
        },
    }
    if suspend is not None:
        job["spec"]["suspend"] = suspend
    return job


async def make_job(
    client: KubeClient,
    name: str,
    *,
    namespace: str,
    queue: str | None,
    cpu: str = "1",
    parallelism: int = 1,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    suspend: bool | None = None,
) -> Object:
    """A Job of one container, as the server stored it."""
    job = job_manifest(
        name,
        namespace=namespace,
        queue=queue,
        cpu=cpu,
        parallelism=parallelism,
        labels=labels,
        annotations=annotations,
        suspend=suspend,
    )
    stored: Object = orjson.loads(await client.create(JOBS, job, namespace=namespace))
    return stored


async def workload_of(client: KubeClient, job: str, *, namespace: str) -> Object | None:
    """The Workload that the Job of that name owns."""
    page = await client.list_all(WORKLOADS, namespace=namespace)
    for raw in page.items:
        found: Object = orjson.loads(raw)
        if any(owner["name"] == job for owner in found["metadata"].get("ownerReferences") or ()):
            return found
    return None


def condition(obj: Object | None, kind: str) -> Object:
    """The condition of that type; empty when there is none."""
    entries = ((obj or {}).get("status") or {}).get("conditions") or ()
    return next((entry for entry in entries if entry["type"] == kind), {})


def is_true(obj: Object | None, kind: str) -> bool:
    """Whether the condition of that type is True."""
    return bool(condition(obj, kind).get("status") == "True")


async def wait_condition(
    client: KubeClient, job: str, kind: str, *, namespace: str, status: str = "True", reason: str | None = None
) -> Object:
    """The Workload of the Job, once the condition has that status and, where given, that reason."""

    async def probe() -> Object | None:
        return await workload_of(client, job, namespace=namespace)

    found = await eventually(
        probe,
        what=f"{kind}={status} {reason or ''} on the Workload of {namespace}/{job}",
        until=lambda seen: (
            condition(seen, kind).get("status") == status
            and (reason is None or condition(seen, kind).get("reason") == reason)
        ),
    )
    assert found is not None
    return found


async def get(client: KubeClient, resource: Any, name: str, *, namespace: str | None = None) -> Object | None:
    """The object, or None."""
    try:
        return await client.get_object(resource, name, namespace=namespace)
    except NotFound:
        return None


async def finish_pods(client: KubeClient, job: str, *, namespace: str, phase: str = "Succeeded") -> int:
    """Let every pod of the Job end; how many there were."""
    page = await client.list_all(PODS, namespace=namespace, label_selector=f"batch.kubernetes.io/job-name={job}")
    ended = 0
    for raw in page.items:
        pod = orjson.loads(raw)
        if pod.get("status", {}).get("phase") in ("Succeeded", "Failed") or "deletionTimestamp" in pod["metadata"]:
            continue
        status = {"phase": phase, "conditions": [{"type": "Ready", "status": "False", "reason": "PodCompleted"}]}
        await client.patch(PODS, pod["metadata"]["name"], {"status": status}, namespace=namespace, subresource="status")
        ended += 1
    return ended
