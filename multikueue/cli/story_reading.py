# SPDX-License-Identifier: Apache-2.0
"""What hub and workers have to tell about one workload.

Owns the reading for `mkctl story`. A worker is asked where its kubeconfig lies at hand: one that was named, one of a
federation of `mkctl up`, or the one in a Secret that the hub's manager itself uses. Promises that a worker that cannot
be asked is named with the reason, and keeps nobody from hearing the others.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio
import orjson

from multikueue.api.constants import KUBECONFIG_SECRET_KEY, TRANSPORT_ANNOTATION, KubeConfigLocation, Transport
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import assignment_name
from multikueue.api.resource import (
    EVENTS,
    JOBS,
    MULTIKUEUE_CLUSTERS,
    REMOTE_ASSIGNMENTS,
    SECRETS,
    WORKLOADS,
    Resource,
)
from multikueue.cli.live_explanation import find
from multikueue.cli.reaching import Reach, Target
from multikueue.core.errors import MultikueueError
from multikueue.core.keys import Key
from multikueue.federation.story import Tale, WorkerTale
from multikueue.kube import credentials
from multikueue.kube.client import KubeClient
from multikueue.kube.credentials import ClusterConfig
from multikueue.kube.errors import NotFound

_PATIENCE: Final = 10.0  # seconds for one worker: the story of a lost cluster must not wait for it


@dataclass(frozen=True, slots=True)
class Unheard:
    """A worker that was not heard, and why."""

    cluster: str
    why: str


async def read(given: Reach, asked: Target) -> tuple[Tale, tuple[Unheard, ...]]:
    """The tale, and who could not be asked. Raises `BadInput` and `KubeError` for trouble with the hub."""
    config = credentials.load(given.kubeconfig, context=given.context)
    asked = asked.within(config.namespace)
    async with KubeClient(config, user_agent="mkctl") as hub:
        workload = find(await _objects(hub, WORKLOADS, namespace=asked.key.namespace), asked)
        metadata: JsonObject = workload["metadata"]
        key = Key(metadata["namespace"], metadata["name"])
        owner = next((each for each in metadata.get("ownerReferences") or () if each["kind"] == JOBS.kind), None)
        job = None if owner is None else await _optional(hub, JOBS, Key(key.namespace, owner["name"]))
        uids = {metadata["uid"], *(() if owner is None else (owner["uid"],))}
        events = await _objects(hub, EVENTS, namespace=key.namespace)
        clusters = await _objects(hub, MULTIKUEUE_CLUSTERS)
        copies = await _objects(hub, REMOTE_ASSIGNMENTS, field_selector=f"metadata.name={assignment_name(key)}")
        configs, unheard = await _workers(hub, given, clusters)
    name = key.name if owner is None else str(owner["name"])
    workers, silent = await _heard(configs, Key(key.namespace, name))
    tale = Tale(
        workload=workload,
        job=job,
        events=tuple(event for event in events if (event.get("regarding") or {}).get("uid") in uids),
        assignments=tuple(copy for copy in copies if copy["spec"]["workload"].get("uid") == metadata["uid"]),
        clusters=tuple(clusters),
        workers=workers,
    )
    return tale, (*unheard, *silent)


async def _workers(
    hub: KubeClient, given: Reach, clusters: Iterable[JsonObject]
) -> tuple[dict[str, ClusterConfig], list[Unheard]]:
    """How each worker is reached, and those of whom nothing is known here."""
    found: dict[str, ClusterConfig] = {}
    unheard: list[Unheard] = []
    for cluster in clusters:
        name: str = cluster["metadata"]["name"]
        annotations: JsonObject = cluster["metadata"].get("annotations") or {}
        source: JsonObject = ((cluster.get("spec") or {}).get("clusterSource") or {}).get("kubeConfig") or {}
        try:
            if name in given.workers:
                found[name] = credentials.load(given.workers[name])
            elif (
                annotations.get(TRANSPORT_ANNOTATION) != Transport.AGENT
                and source
                and source.get("locationType", KubeConfigLocation.SECRET) == KubeConfigLocation.SECRET
            ):
                found[name] = await _from_secret(hub, Key(given.namespace, str(source["location"])))
            else:
                unheard.append(Unheard(name, "no kubeconfig of it is at hand; name one with --worker"))
        except (MultikueueError, binascii.Error) as error:
            unheard.append(Unheard(name, str(error)))
    return found, unheard


async def _from_secret(hub: KubeClient, secret: Key) -> ClusterConfig:
    data: JsonObject = (await hub.get_object(SECRETS, secret.name, namespace=secret.namespace)).get("data") or {}
    source = f"Secret {secret}"
    text = base64.b64decode(str(data.get(KUBECONFIG_SECRET_KEY) or ""))
    return credentials.from_dict(credentials.parse(text, source=source), source=source)


async def _heard(configs: Mapping[str, ClusterConfig], job: Key) -> tuple[dict[str, WorkerTale], list[Unheard]]:
    found: dict[str, WorkerTale] = {}
    unheard: list[Unheard] = []

    async def ask(name: str, config: ClusterConfig) -> None:
        try:
            with anyio.fail_after(_PATIENCE):
                found[name] = await _worker(config, job)
        except (MultikueueError, TimeoutError) as error:
            unheard.append(Unheard(name, str(error) or f"no answer within {_PATIENCE:.0f} s"))

    async with anyio.create_task_group() as tasks:
        for name, config in configs.items():
            tasks.start_soon(partial(ask, name, config))
    return {name: found[name] for name in configs if name in found}, unheard


async def _worker(config: ClusterConfig, key: Key) -> WorkerTale:
    async with KubeClient(config, user_agent="mkctl") as worker:
        job = await _optional(worker, JOBS, key)
        events = await _objects(worker, EVENTS, namespace=key.namespace)
    return WorkerTale(job=job, events=tuple(event for event in events if _about(event, key.name)))


def _about(event: JsonObject, job: str) -> bool:
    """Of the Job or a pod of it. By name: a Job that was removed leaves its events behind, and no uid to know it by."""
    regarding: JsonObject = event.get("regarding") or {}
    name = str(regarding.get("name") or "")
    if regarding.get("kind") == "Pod":
        # NAME-xxxxx, or NAME-INDEX-xxxxx of an indexed Job.
        return name.startswith(f"{job}-") and name.removeprefix(f"{job}-").count("-") <= 1
    return (regarding.get("kind"), name) == (JOBS.kind, job)


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
