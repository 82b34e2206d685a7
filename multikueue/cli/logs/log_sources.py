# SPDX-License-Identifier: Apache-2.0
"""Where the pods of a job of any kind run, and what the hub keeps of one whose pods are gone.

The cluster is that of the job's Workload, which only the manager writes. A job that is not dispatched has its pods on
the hub itself.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import orjson

from multikueue.api.constants import (
    MULTIKUEUE_MANAGED_BY,
    TRANSPORT_ANNOTATION,
    KubeConfigLocation,
    Transport,
)
from multikueue.api.meta import JsonObject
from multikueue.api.resource import CONFIG_MAPS, MULTIKUEUE_CLUSTERS, PODS, WORKLOADS
from multikueue.cli.hub_options import HubOptions
from multikueue.cli.inspect.timeline_objects import kubeconfig_in
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.job_failures import SUMMARY, record_name
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.kube.errors import Forbidden, NotFound
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.credentials import ClusterConfig

HUB: Final = ""
"""The cluster of a job that runs on the hub itself."""
_MOST_PODS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlace:
    """A job and the cluster of its pods: None while it waits for one."""

    integration: JobIntegration
    job: Key
    uid: str
    cluster: str | None
    ended: bool
    selector: str
    """Of its pods; empty for a Pod."""

    @property
    def where(self) -> str:
        """The cluster, for messages."""
        return f"cluster {self.cluster}" if self.cluster else "the hub"

    @property
    def named(self) -> str:
        """The job, for messages."""
        return f"{self.integration.resource.kind} {self.job}"

    @property
    def argument(self) -> str:
        """The job, for the command line."""
        return f"{self.integration.resource.kind.lower()}/{self.job}"


async def place_of(hub: KubeClient, integration: JobIntegration, key: Key) -> JobPlace:
    """Where the job runs now, or ran. Raises `BadInput` if there is no such job, and `KubeError`."""
    resource = integration.resource
    try:
        job = await hub.get_object(resource, key.name, namespace=key.namespace)
    except NotFound as error:
        raise BadInput(f"{resource.kind} {key} not found on the hub") from error
    selector = integration.pod_selector(job)
    if not selector and resource != PODS:
        raise BadInput(f"the pods of a {resource.kind} have no labels by which they are found; use kubectl logs")
    uid = str(job["metadata"]["uid"])
    ended = integration.finished(job) is not None

    def place(cluster: str | None) -> JobPlace:
        return JobPlace(integration=integration, job=key, uid=uid, cluster=cluster, ended=ended, selector=selector)

    has_managed_by = integration.traits.has_managed_by
    if has_managed_by and integration.managed_by(job) != MULTIKUEUE_MANAGED_BY:
        return place(HUB)
    page = await hub.list_all(WORKLOADS, namespace=key.namespace)
    own: list[JsonObject] = [each for each in map(orjson.loads, page.items) if uid in _owners(each)]
    newest: JsonObject = max(own, key=lambda each: str(each["metadata"].get("creationTimestamp")), default={})
    cluster = str((newest.get("status") or {}).get("clusterName") or "")
    return place(cluster or (None if has_managed_by else HUB))


async def config_of(hub: KubeClient, options: HubOptions, cluster: str) -> ClusterConfig | None:
    """The kubeconfig of a worker; None if it is not known here. Raises `BadInput`.

    It is that of the options, else the Secret of a push cluster if the user may read it.
    """
    if cluster in options.workers:
        return credentials.load(options.workers[cluster])
    try:
        found = await hub.get_object(MULTIKUEUE_CLUSTERS, cluster)
        source: JsonObject = ((found.get("spec") or {}).get("clusterSource") or {}).get("kubeConfig") or {}
        has_agent = (found["metadata"].get("annotations") or {}).get(TRANSPORT_ANNOTATION) == Transport.AGENT
        in_secret = source.get("locationType", KubeConfigLocation.SECRET) == KubeConfigLocation.SECRET
        if has_agent or not source or not in_secret:
            return None
        return await kubeconfig_in(hub, Key(options.manager_namespace, str(source["location"])))
    except (Forbidden, NotFound):
        return None
    except binascii.Error as error:
        raise BadInput(f"the kubeconfig of cluster {cluster} is not base64: {error}") from error


async def pods_of(client: KubeClient, place: JobPlace) -> list[JsonObject]:
    """The pods of the job on one cluster, oldest first. Raises `KubeError`."""
    job = place.job
    if not place.selector:
        try:
            return [await client.get_object(PODS, job.name, namespace=job.namespace)]
        except NotFound:
            return []
    page = await client.list_page(PODS, namespace=job.namespace, label_selector=place.selector, limit=_MOST_PODS)
    pods: list[JsonObject] = [orjson.loads(raw) for raw in page.items]
    return sorted(pods, key=lambda pod: (str(pod["metadata"].get("creationTimestamp")), str(pod["metadata"]["name"])))


def containers_of(pod: JsonObject, wanted: str = "") -> list[str]:
    """The containers whose logs are shown: the wanted one, else the first. Empty if there is none of that name."""
    spec: JsonObject = pod.get("spec") or {}
    named = [str(each["name"]) for field in ("containers", "initContainers") for each in spec.get(field) or ()]
    if wanted:
        return [name for name in named if name == wanted]
    return named[:1]


def preferred(pods: Iterable[JsonObject]) -> JsonObject | None:
    """The pod that is shown of several: the newest that runs, else the newest that has started, else the newest."""
    ranks = {"Running": 3, "Failed": 2, "Succeeded": 2}
    return max(
        enumerate(pods),
        key=lambda entry: (ranks.get(str((entry[1].get("status") or {}).get("phase")), 1), entry[0]),
        default=(0, None),
    )[1]


async def kept_lines(hub: KubeClient, place: JobPlace) -> dict[str, str] | None:
    """The data of the ConfigMap about a failed job; None if there is none. Raises `KubeError`."""
    try:
        found = await hub.get_object(CONFIG_MAPS, record_name(place.job, place.uid), namespace=place.job.namespace)
    except NotFound:
        return None
    data: dict[str, str] = found.get("data") or {}
    # A user may have made one of that name.
    return data if place.uid in _owners(found) and SUMMARY in data else None


def _owners(obj: JsonObject) -> list[str]:
    return [str(owner.get("uid")) for owner in obj["metadata"].get("ownerReferences") or ()]
