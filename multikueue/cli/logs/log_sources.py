# SPDX-License-Identifier: Apache-2.0
"""Where the pods of a job of any kind run, and what the hub keeps of one whose pods are gone.

The cluster is that of the job's Workload, which only the manager writes. A job that is not dispatched has its pods on
the hub itself. The pods of a group share one Workload, which names each of them as an owner.

The labels by which pods are found are those of the remote job where it can be read: the pods of a batch Job have its
uid as a label, and the remote Job has another one than the Job on the hub.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import orjson

from multikueue.api.constants import (
    MANAGED_LABEL,
    MANAGED_LABEL_VALUE,
    MULTIKUEUE_MANAGED_BY,
    ORIGIN_LABEL,
    PREBUILT_WORKLOAD_ANNOTATION,
    PREBUILT_WORKLOAD_LABEL,
    REMOTE_POD_LABEL,
    TRANSPORT_ANNOTATION,
    WORKLOAD_NAME_ANNOTATION,
    KubeConfigLocation,
    TransportType,
)
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.resource import CONFIG_MAPS, MULTIKUEUE_CLUSTERS, PODS, WORKLOADS
from multikueue.cli.hub_options import HubOptions
from multikueue.cli.inspect.timeline_objects import kubeconfig_in
from multikueue.core.conditions import is_true_in
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.job_problems import SUMMARY, record_name
from multikueue.jobs.framework.capabilities import GroupedKind
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.slices import assigned_as
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
    """Of its pods on the hub; empty for a Pod."""
    workload: str = ""
    """The name of the Workload for which its remote job was created."""
    group: frozenset[str] = frozenset()
    """The names of the pods of its group; empty if it is in none."""

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


async def place_of(hub: KubeClient, integration: JobIntegration, key: Key, *, all_pods: bool = False) -> JobPlace:
    """Where the job runs now, or ran. Raises `BadInput` if there is no such job, and `KubeError`.

    With `all_pods` a pod of a group has ended when the group has.
    """
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
    group: frozenset[str] = frozenset()
    workload = ""

    def place(cluster: str | None) -> JobPlace:
        return JobPlace(
            integration=integration,
            job=key,
            uid=uid,
            cluster=cluster,
            ended=ended,
            selector=selector,
            workload=workload,
            group=group,
        )

    has_managed_by = integration.traits.has_managed_by
    if has_managed_by and integration.managed_by(job) != MULTIKUEUE_MANAGED_BY:
        return place(HUB)
    page = await hub.list_all(WORKLOADS, namespace=key.namespace)
    own: list[JsonObject] = [each for each in map(orjson.loads, page.items) if uid in _owners(each)]
    newest: JsonObject = max(own, key=lambda each: str(each["metadata"].get("creationTimestamp")), default={})
    status: JsonObject = newest.get("status") or {}
    cluster = str(status.get("clusterName") or "")
    workload = assigned_as(newest)[0].name if newest else ""
    if isinstance(integration, GroupedKind) and integration.group_of(job) and newest:
        group = frozenset(str(owner["name"]) for owner in newest["metadata"]["ownerReferences"])
        if all_pods:
            ended = is_true_in(status, WorkloadCondition.FINISHED)
    return place(cluster or (None if has_managed_by else HUB))


async def pod_of_group(hub: KubeClient, integration: JobIntegration, name: Key) -> Key | None:
    """The pod to begin with of the group of that name; None if that is the name of a pod, or of no group.

    Raises `KubeError`.
    """
    if not isinstance(integration, GroupedKind):
        return None
    try:
        await hub.get(integration.resource, name.name, namespace=name.namespace, metadata_only=True)
    except NotFound:
        page = await hub.list_all(
            integration.resource, namespace=name.namespace, label_selector=f"{MANAGED_LABEL}={MANAGED_LABEL_VALUE}"
        )
        found: list[JsonObject] = [orjson.loads(raw) for raw in page.items]
        chosen = preferred(sorted((each for each in found if integration.group_of(each) == name.name), key=_age))
        return None if chosen is None else Key(name.namespace, str(chosen["metadata"]["name"]))
    return None


async def config_of(hub: KubeClient, options: HubOptions, cluster: str) -> ClusterConfig | None:
    """The kubeconfig of a worker; None if it is not known here. Raises `BadInput`.

    It is that of the options, else the Secret of a push cluster if the user may read it.
    """
    if cluster in options.workers:
        return credentials.load(options.workers[cluster])
    try:
        found = await hub.get_object(MULTIKUEUE_CLUSTERS, cluster)
        source: JsonObject = ((found.get("spec") or {}).get("clusterSource") or {}).get("kubeConfig") or {}
        has_agent = (found["metadata"].get("annotations") or {}).get(TRANSPORT_ANNOTATION) == TransportType.AGENT
        in_secret = source.get("locationType", KubeConfigLocation.SECRET) == KubeConfigLocation.SECRET
        if has_agent or not source or not in_secret:
            return None
        return await kubeconfig_in(hub, Key(options.manager_namespace, str(source["location"])))
    except (Forbidden, NotFound):
        return None
    except binascii.Error as error:
        raise BadInput(f"the kubeconfig of cluster {cluster} is not base64: {error}") from error


async def pods_of(client: KubeClient, place: JobPlace, *, all_pods: bool = False) -> list[JsonObject]:
    """The pods of the job on one cluster, oldest first; of a pod, with `all_pods`, those of its group.

    Raises `KubeError`.
    """
    job = place.job
    if all_pods and place.group:
        label = REMOTE_POD_LABEL if place.cluster else f"{MANAGED_LABEL}={MANAGED_LABEL_VALUE}"
        found = await client.list_all(PODS, namespace=job.namespace, label_selector=label)
        members: list[JsonObject] = [orjson.loads(raw) for raw in found.items]
        return sorted((pod for pod in members if pod["metadata"]["name"] in place.group), key=_age)
    if not place.selector:
        try:
            return [await client.get_object(PODS, job.name, namespace=job.namespace)]
        except NotFound:
            return []
    selector = await _selector_on(client, place)
    if not selector:
        return []
    page = await client.list_page(PODS, namespace=job.namespace, label_selector=selector, limit=_MOST_PODS)
    pods: list[JsonObject] = [orjson.loads(raw) for raw in page.items]
    return sorted(pods, key=_age)


async def _selector_on(client: KubeClient, place: JobPlace) -> str:
    """Of the pods on the cluster of that place; empty if the job has none there. Raises `KubeError`."""
    if not place.cluster:
        return place.selector
    try:
        found = await client.get_object(place.integration.resource, place.job.name, namespace=place.job.namespace)
    except (Forbidden, NotFound) as error:
        if place.uid not in place.selector:
            return place.selector  # labels that remote pods have as well
        if isinstance(error, Forbidden):
            raise
        return ""
    return place.integration.pod_selector(found) if _is_remote_job(found, place) else ""


def _is_remote_job(found: JsonObject, place: JobPlace) -> bool:
    """Whether a job of that name on the worker was sent there for the Workload, and is no other job."""
    labels: dict[str, str] = found["metadata"].get("labels") or {}
    annotations: dict[str, str] = found["metadata"].get("annotations") or {}
    named = (
        annotations.get(PREBUILT_WORKLOAD_ANNOTATION),
        annotations.get(WORKLOAD_NAME_ANNOTATION),
        labels.get(PREBUILT_WORKLOAD_LABEL),  # of a Kueue whose place the manager has taken
    )
    return ORIGIN_LABEL in labels and bool(place.workload) and place.workload in named


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


def _age(obj: JsonObject) -> tuple[str, str]:
    return str(obj["metadata"].get("creationTimestamp")), str(obj["metadata"]["name"])


def _owners(obj: JsonObject) -> list[str]:
    return [str(owner.get("uid")) for owner in obj["metadata"].get("ownerReferences") or ()]
