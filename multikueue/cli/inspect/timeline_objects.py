# SPDX-License-Identifier: Apache-2.0
"""The objects of the hub and the workers that belong to one workload, for `mkctl timeline`.

A worker is read if its kubeconfig is known: from `--worker`, from a federation of `mkctl up`, or from the Secret that
the manager uses for a push cluster. A worker that cannot be read is listed with the reason and does not affect others.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio
import orjson

from multikueue.api.constants import KUBECONFIG_SECRET_KEY, TRANSPORT_ANNOTATION, KubeConfigLocation, TransportType
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import assignment_name
from multikueue.api.resource import (
    EVENTS,
    MULTIKUEUE_CLUSTERS,
    PODS,
    REMOTE_ASSIGNMENTS,
    SECRETS,
    WORKLOADS,
    Resource,
)
from multikueue.cli.hub_options import HubOptions, WorkloadRef
from multikueue.cli.inspect.left_out import LeftOutPart
from multikueue.cli.inspect.workload_of_job import find_on_hub
from multikueue.cli.job_kinds import kind_of_owner, owner_of, served_kinds
from multikueue.core.errors import MultikueueError
from multikueue.core.keys import Key
from multikueue.dispatch.timeline import TimelineObjects, WorkerObjects
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.slices import assigned_as
from multikueue.kube.errors import Forbidden, NotFound
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.credentials import ClusterConfig

_TIMEOUT: Final = 10.0  # seconds for one worker, since it may be lost


@dataclass(frozen=True, slots=True)
class UnreachableCluster:
    """A worker that could not be read, and why."""

    cluster: str
    why: str


@dataclass(frozen=True, slots=True)
class TimelineSources:
    """The objects that were found, the workers that could not be read, and the parts the user may not read."""

    objects: TimelineObjects
    unreachable: tuple[UnreachableCluster, ...] = ()
    left_out: tuple[LeftOutPart, ...] = ()


@dataclass(frozen=True, slots=True)
class JobName:
    """The job of a Workload, or the first pod of its group."""

    integration: JobIntegration
    key: Key

    @property
    def resource(self) -> Resource:
        """Its kind."""
        return self.integration.resource


async def read(options: HubOptions, ref: WorkloadRef) -> TimelineSources:
    """Everything about the workload that the user may read. Raises `BadInput`, and `KubeError` for the hub.

    Only the Workloads of the namespace must be readable; other parts that may not be read are listed in `left_out`.
    """
    config = credentials.load(options.kubeconfig, context=options.context)
    ref = ref.within(config.namespace)
    left_out: list[LeftOutPart] = []

    async def some(what: str, resource: Resource, **query: str) -> list[JsonObject]:
        try:
            return await _objects(hub, resource, **query)
        except Forbidden:
            group = f" ({resource.group})" if resource.group else ""
            where = f"in namespace {query['namespace']}" if "namespace" in query else "in the whole cluster"
            left_out.append(LeftOutPart(what, (f"list {resource.plural}{group} {where}",)))
            return []

    async with KubeClient(config, user_agent="mkctl") as hub:
        kinds = await served_kinds(hub, options)
        workloads = await _objects(hub, WORKLOADS, namespace=ref.key.namespace)
        workload = await find_on_hub(hub, workloads, ref, kinds=kinds)
        metadata: JsonObject = workload["metadata"]
        key = Key(metadata["namespace"], metadata["name"])
        owner = owner_of(workload)
        integration = None if owner is None else kind_of_owner(owner, kinds)
        named = (
            None if owner is None or integration is None else JobName(integration, Key(key.namespace, owner["name"]))
        )
        job = None
        if named is not None:
            try:
                job = await _optional(hub, named.resource, named.key)
            except Forbidden:
                resource = named.resource
                group = f" ({resource.group})" if resource.group else ""
                right = f"get {resource.plural}{group} in namespace {key.namespace}"
                left_out.append(LeftOutPart(f"the {resource.kind}", (right,)))
        uids = {metadata["uid"], *(each["uid"] for each in metadata.get("ownerReferences") or ())}
        events = await some("events", EVENTS, namespace=key.namespace)
        clusters = await some("when clusters were lost and reconnected", MULTIKUEUE_CLUSTERS)
        assigned, assigned_uid = assigned_as(workload)
        of_it = f"metadata.name={assignment_name(assigned)}"
        assignments = await some(
            "assignments to the clusters and their status", REMOTE_ASSIGNMENTS, field_selector=of_it
        )
        configs, unreachable = await _workers(hub, options, clusters)
    others = () if named is None else _longer_names(named, workloads)
    workers, failed = await _read_workers({} if named is None else configs, named, others)
    objects = TimelineObjects(
        workload=workload,
        job=job,
        events=tuple(event for event in events if (event.get("regarding") or {}).get("uid") in uids),
        assignments=tuple(each for each in assignments if each["spec"]["workload"].get("uid") == assigned_uid),
        clusters=tuple(clusters),
        workers=workers,
    )
    return TimelineSources(objects, (*unreachable, *failed), tuple(left_out))


async def _workers(
    hub: KubeClient, options: HubOptions, clusters: Collection[JsonObject]
) -> tuple[dict[str, ClusterConfig], list[UnreachableCluster]]:
    """The kubeconfig of each worker, and the workers without a known one."""
    found: dict[str, ClusterConfig] = {}
    unreachable: list[UnreachableCluster] = []
    for cluster in clusters:
        name: str = cluster["metadata"]["name"]
        annotations: JsonObject = cluster["metadata"].get("annotations") or {}
        source: JsonObject = ((cluster.get("spec") or {}).get("clusterSource") or {}).get("kubeConfig") or {}
        try:
            if name in options.workers:
                found[name] = credentials.load(options.workers[name])
            elif (
                annotations.get(TRANSPORT_ANNOTATION) != TransportType.AGENT
                and source
                and source.get("locationType", KubeConfigLocation.SECRET) == KubeConfigLocation.SECRET
            ):
                found[name] = await kubeconfig_in(hub, Key(options.manager_namespace, str(source["location"])))
            else:
                unreachable.append(
                    UnreachableCluster(name, "its kubeconfig is not known here; pass it with --worker CLUSTER=FILE")
                )
        except (MultikueueError, binascii.Error) as error:
            unreachable.append(UnreachableCluster(name, str(error)))
    known = {cluster["metadata"]["name"] for cluster in clusters}
    for name in () if known else sorted(options.workers):
        # MultiKueueClusters may not be read, or there are none: use the kubeconfigs of --worker anyway.
        try:
            found[name] = credentials.load(options.workers[name])
        except MultikueueError as error:
            unreachable.append(UnreachableCluster(name, str(error)))
    return found, unreachable


async def kubeconfig_in(hub: KubeClient, secret: Key) -> ClusterConfig:
    """The kubeconfig in the Secret of a push cluster. Raises `BadInput`, `KubeError` and `binascii.Error`."""
    data: JsonObject = (await hub.get_object(SECRETS, secret.name, namespace=secret.namespace)).get("data") or {}
    source = f"Secret {secret}"
    text = base64.b64decode(str(data.get(KUBECONFIG_SECRET_KEY) or ""))
    return credentials.from_dict(credentials.parse(text, source=source), source=source)


def _longer_names(job: JobName, workloads: Iterable[JsonObject]) -> tuple[str, ...]:
    """Other jobs of its namespace whose names begin like those of its pods."""
    owners = (owner for each in workloads for owner in each["metadata"].get("ownerReferences") or ())
    names = {str(owner.get("name") or "") for owner in owners}
    return tuple(sorted(name for name in names if name.startswith(f"{job.key.name}-")))


async def _read_workers(
    configs: Mapping[str, ClusterConfig], job: JobName | None, others: Collection[str]
) -> tuple[dict[str, WorkerObjects], list[UnreachableCluster]]:
    found: dict[str, WorkerObjects] = {}
    unreachable: list[UnreachableCluster] = []
    if job is None:
        return found, unreachable

    async def read_one(name: str, config: ClusterConfig) -> None:
        try:
            with anyio.fail_after(_TIMEOUT):
                found[name] = await _worker(config, job, others)
        except (MultikueueError, TimeoutError) as error:
            unreachable.append(UnreachableCluster(name, str(error) or f"no answer within {_TIMEOUT:.0f} s"))

    async with anyio.create_task_group() as tasks:
        for name, config in configs.items():
            tasks.start_soon(partial(read_one, name, config))
    return {name: found[name] for name in configs if name in found}, unreachable


async def _worker(config: ClusterConfig, job: JobName, others: Collection[str]) -> WorkerObjects:
    async with KubeClient(config, user_agent="mkctl") as worker:
        found = await _optional(worker, job.resource, job.key)
        events = await _objects(worker, EVENTS, namespace=job.key.namespace)
    return WorkerObjects(job=found, events=tuple(event for event in events if is_about(event, job, others)))


def is_about(event: JsonObject, job: JobName, others: Collection[str] = ()) -> bool:
    """Whether an event is about the job or one of its pods, by name: a deleted job leaves events but no UID.

    `others` are jobs with longer names.
    """
    regarding: JsonObject = event.get("regarding") or {}
    name, begin = str(regarding.get("name") or ""), f"{job.key.name}-"
    if regarding.get("kind") != PODS.kind or name == job.key.name:
        return (regarding.get("kind"), name) == (job.resource.kind, job.key.name)
    if any(name == other or name.startswith(f"{other}-") for other in others):
        return False
    if job.resource == PODS or not name.startswith(begin):
        return False
    # NAME-xxxxx, or NAME-INDEX-xxxxx, if no object is in between; names with more parts are of a job that is gone.
    return not job.integration.traits.owns_pods_itself or name.removeprefix(begin).count("-") <= 1


async def _optional(client: KubeClient, resource: Resource, key: Key) -> JsonObject | None:
    try:
        return await client.get_object(resource, key.name, namespace=key.namespace)
    except NotFound:
        return None


async def _objects(
    client: KubeClient, resource: Resource, *, namespace: str | None = None, field_selector: str | None = None
) -> list[JsonObject]:
    try:
        page = await client.list_all(resource, namespace=namespace, field_selector=field_selector)
    except NotFound:
        return []
    return [orjson.loads(raw) for raw in page.items]
