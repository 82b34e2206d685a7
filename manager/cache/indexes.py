# SPDX-License-Identifier: Apache-2.0
"""Which kinds the manager follows, what objects are found by, and what is kept of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import orjson

from manager.cache.ended_workloads import ENDED_INDEX, ended, priority_class, queue_of
from manager.cache.followed_kind import FollowedKind
from manager.workload.assigned_hosts import hosts_of
from multikueue.api.constants import (
    COMPONENT_WORKLOAD_INDEX_ANNOTATION,
    MAILBOX_OBJECT_NAME,
    MANAGED_LABEL,
    MANAGED_LABEL_VALUE,
)
from multikueue.api.meta import JsonObject
from multikueue.api.objects import controller_of
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    CLUSTER_REGISTRATIONS,
    CLUSTER_REPORTS,
    COHORTS,
    JOB_LOG_REQUESTS,
    LEASES,
    LIMIT_RANGES,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    NAMESPACES,
    POD_TEMPLATES,
    PODS,
    PRIORITY_CLASSES,
    PROVISIONING_REQUEST_CONFIGS,
    PROVISIONING_REQUESTS,
    REMOTE_ASSIGNMENTS,
    RESOURCE_FLAVORS,
    RUNTIME_CLASSES,
    SECRETS,
    TOPOLOGIES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)
from multikueue.core.conditions import is_true_in
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.jobs.framework.capabilities import GroupedKind, PodHoldingKind, ReplicatedKind, RuntimeKind
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.slices import assigned_as, is_elastic
from multikueue.jobs.framework.templated_queue import named_by
from multikueue.jobs.framework.workloads import origin_uid, prebuilt_name
from multikueue.kube.cache.packing import packed
from multikueue.kube.cache.store import Indexer

OWNER_INDEX: Final = "owner"
"""Workloads by `Kind.group/namespace/name` of each of their owners."""
GROUP_INDEX: Final = "group"
"""Jobs by `namespace/name` of the group that they are members of."""
NAMED_OWNER_INDEX: Final = "namedOwner"
"""Pods by the `named_term` of the job that they name by annotation and label."""
CONTROLLER_INDEX: Final = "controller"
"""Pods by the uid of the owner that controls them."""
RUNTIME_INDEX: Final = "runtime"
"""Jobs by the `runtime_term` of the runtime they name."""
PREBUILT_INDEX: Final = "prebuilt"
"""Jobs by `namespace/name` of the prebuilt Workload they name."""
QUEUE_INDEX: Final = "queue"
"""Workloads by `namespace/LocalQueue`."""
PRIORITY_CLASS_INDEX: Final = "priorityClass"
"""Workloads by the name of their WorkloadPriorityClass."""
TOPOLOGY_HOST_INDEX: Final = "topologyHost"
"""Workloads by the hosts on which a topology has placed their pods."""
CLUSTER_QUEUE_INDEX: Final = "clusterQueue"
"""Workloads by the ClusterQueue they hold quota in; LocalQueues by the one they point to."""
DISPATCH_INDEX: Final = "dispatch"
"""Workloads that are not finished by the cluster they were granted to, `""` while they hold quota and have none."""
SLICE_INDEX: Final = "slice"
"""Slices of elastic jobs: by `""` all of them, by `slice_term` one, by `chain_term` those of one job."""
REPLICA_INDEX: Final = "replica"
"""Workloads of one replica of their owner, by the `replica_term` of the owner and their state."""
PLACED: Final = "placed"
"""Of a replica that is on a cluster and has not finished."""
READY: Final = "ready"
"""Of a replica that holds quota and is on no cluster."""
WORKLOAD_INDEX: Final = "workload"
"""ProvisioningRequests by `namespace/name` of the Workload that controls them."""
NAMESPACE_INDEX: Final = "namespace"
"""JobLogRequests by their namespace."""
LOGGED_JOB_INDEX: Final = "loggedJob"
"""JobLogRequests by the `owner_term` of the job that they are for."""

_SENT: Final = ("workloadSpec", "workloadLabels", "workloadAnnotations", "podSetAssignments")


def topology_hosts(workload: JsonObject) -> Iterable[str]:
    """The hosts that a Workload was given by a topology."""
    return hosts_of((workload.get("status") or {}).get("admission"))


def without_owners_of_fields(obj: JsonObject) -> bytes:
    """The object without `metadata.managedFields`, a third of it or more, which the manager never reads; packed."""
    obj["metadata"].pop("managedFields", None)
    return packed(orjson.dumps(obj))


def without_what_was_sent(obj: JsonObject) -> bytes:
    """An assignment without the parts its cluster makes the job from: the larger part, read live if needed; packed."""
    obj["metadata"].pop("managedFields", None)
    spec: JsonObject = obj.get("spec") or {}
    for name in _SENT:
        spec.pop(name, None)
    spec.get("job", {}).pop("manifest", None)
    return packed(orjson.dumps(obj))


def metadata_only(obj: JsonObject) -> bytes:
    """The object without its content: of PodTemplates, which may be large, only the existence counts."""
    metadata: JsonObject = obj["metadata"]
    metadata.pop("managedFields", None)
    return orjson.dumps({"metadata": metadata})


def owner_term(*, api_version: str, kind: str, namespace: str, name: str) -> str:
    """The term of `OWNER_INDEX` for the objects of that owner."""
    group, _, _ = api_version.rpartition("/")
    return f"{kind}.{group}/{namespace}/{name}"


def _owners(obj: JsonObject) -> Iterable[str]:
    metadata = obj["metadata"]
    return [
        owner_term(
            api_version=owner["apiVersion"], kind=owner["kind"], namespace=metadata["namespace"], name=owner["name"]
        )
        for owner in metadata.get("ownerReferences") or ()
    ]


def named_term(kind: JobIntegration | PodHoldingKind, key: Key) -> str:
    """The term of `NAMED_OWNER_INDEX` for the pods of that job."""
    return f"{kind.framework} {key}"


def _controller(obj: JsonObject) -> Iterable[str]:
    owner = controller_of(obj)
    return [str(owner["uid"])] if owner else ()


def _namespace(obj: JsonObject) -> Iterable[str]:
    return [str(obj["metadata"]["namespace"])]


def _logged_job(request: JsonObject) -> Iterable[str]:
    job = request["spec"]["job"]
    namespace: str = request["metadata"]["namespace"]
    return [owner_term(api_version=job["apiVersion"], kind=job["kind"], namespace=namespace, name=job["name"])]


def _prebuilt(integration: JobIntegration) -> Callable[[JsonObject], Iterable[str]]:
    def names(job: JsonObject) -> Iterable[str]:
        namespace: str = job["metadata"]["namespace"]
        found = (prebuilt_name(each, integration) for each in _replicas(job, integration))
        return [str(Key(namespace, name)) for name in found if name]

    return names


def _replicas(job: JsonObject, integration: JobIntegration) -> Iterable[JsonObject]:
    """The job as each of its replicas, of a kind that has a Workload for each of them; else itself."""
    if not isinstance(integration, ReplicatedKind) or not origin_uid(job):
        return (job,)
    try:
        return [integration.replica(job, index) for index in range(integration.replicas(job))]
    except BadInput:  # it is reported when the first one is reconciled
        return ()


def runtime_term(resource: Resource, key: Key) -> str:
    """The term of `RUNTIME_INDEX` for the jobs that name that runtime."""
    return f"{resource.kind} {key}"


def _reserved_in(obj: JsonObject) -> Iterable[str]:
    name = ((obj.get("status") or {}).get("admission") or {}).get("clusterQueue")
    return [name] if name else ()


def _dispatched_to(obj: JsonObject) -> Iterable[str]:
    status: JsonObject = obj.get("status") or {}
    ended = is_true_in(status, WorkloadCondition.FINISHED)
    waits = status.get("clusterName") or status.get("admission")
    return [status.get("clusterName") or ""] if waits and not ended else ()


def replica_term(namespace: str, uid: str, state: str) -> str:
    """The term of `REPLICA_INDEX` for the replicas of the owner with that uid that are in that state."""
    return f"{namespace}/{state}/{uid}"


def replicas_by_owner(obj: JsonObject) -> Iterable[str]:
    """The indexer of `REPLICA_INDEX`."""
    metadata: JsonObject = obj["metadata"]
    owner = controller_of(obj)
    if owner is None or COMPONENT_WORKLOAD_INDEX_ANNOTATION not in (metadata.get("annotations") or {}):
        return ()
    states = [PLACED if cluster else READY for cluster in _dispatched_to(obj)]
    return [replica_term(metadata["namespace"], owner["uid"], state) for state in states]


def slice_term(workload: Key) -> str:
    """The term of `SLICE_INDEX` for one slice."""
    return f"slice {workload}"


def chain_term(assigned: Key, uid: str) -> str:
    """The term of `SLICE_INDEX` for the slices with that `assigned_as`."""
    return f"chain {assigned} {uid}"


def slices_by_job(obj: JsonObject) -> Iterable[str]:
    """The indexer of `SLICE_INDEX`."""
    if not is_elastic(obj) or controller_of(obj) is None:
        return ()
    metadata = obj["metadata"]
    return ["", slice_term(Key(metadata["namespace"], metadata["name"])), chain_term(*assigned_as(obj))]


def _controlling_workload(obj: JsonObject) -> Iterable[str]:
    owner = controller_of(obj)
    return [str(Key(obj["metadata"]["namespace"], owner["name"]))] if owner and owner["kind"] == WORKLOADS.kind else ()


def _points_to(obj: JsonObject) -> Iterable[str]:
    name = (obj.get("spec") or {}).get("clusterQueue")
    return [name] if name else ()


def followed(
    *,
    namespace: str,
    jobs: Iterable[JobIntegration],
    configured: Iterable[FollowedKind] = (),
) -> tuple[FollowedKind, ...]:
    """What a manager follows; `jobs` are the enabled integrations, `configured` what its Configuration adds."""
    jobs = tuple(jobs)
    plain = (
        CLUSTER_QUEUES,
        COHORTS,
        RESOURCE_FLAVORS,
        TOPOLOGIES,
        ADMISSION_CHECKS,
        MULTIKUEUE_CLUSTERS,
        MULTIKUEUE_CONFIGS,
        PROVISIONING_REQUEST_CONFIGS,
        WORKLOAD_PRIORITY_CLASSES,
        PRIORITY_CLASSES,
        NAMESPACES,
        LIMIT_RANGES,
        RUNTIME_CLASSES,
        CLUSTER_REPORTS,
        CLUSTER_REGISTRATIONS,
    )
    return (
        *(FollowedKind(resource=resource) for resource in plain),
        FollowedKind(resource=LOCAL_QUEUES, indexers={CLUSTER_QUEUE_INDEX: _points_to}),
        FollowedKind(
            resource=WORKLOADS,
            indexers={
                OWNER_INDEX: _owners,
                QUEUE_INDEX: queue_of,
                CLUSTER_QUEUE_INDEX: _reserved_in,
                DISPATCH_INDEX: _dispatched_to,
                ENDED_INDEX: ended,
                REPLICA_INDEX: replicas_by_owner,
                SLICE_INDEX: slices_by_job,
                PRIORITY_CLASS_INDEX: priority_class,
                TOPOLOGY_HOST_INDEX: topology_hosts,
            },
            shrink=without_owners_of_fields,
        ),
        FollowedKind(resource=REMOTE_ASSIGNMENTS, shrink=without_what_was_sent),
        FollowedKind(resource=JOB_LOG_REQUESTS, indexers={NAMESPACE_INDEX: _namespace, LOGGED_JOB_INDEX: _logged_job}),
        FollowedKind(
            resource=PROVISIONING_REQUESTS,
            indexers={WORKLOAD_INDEX: _controlling_workload},
            shrink=without_owners_of_fields,
            on_demand=True,
        ),
        FollowedKind(resource=POD_TEMPLATES, shrink=metadata_only, on_demand=True),
        FollowedKind(resource=SECRETS, namespace=namespace),
        *configured,
        FollowedKind(resource=LEASES, field_selector=f"metadata.name={MAILBOX_OBJECT_NAME}"),
        *(
            FollowedKind(
                resource=integration.resource,
                indexers={
                    PREBUILT_INDEX: _prebuilt(integration),
                    **_groups(integration),
                    **_controllers(integration, jobs),
                    **_runtimes(integration),
                },
                shrink=without_owners_of_fields,
                label_selector=f"{MANAGED_LABEL}={MANAGED_LABEL_VALUE}"
                if integration.traits.needs_managed_label
                else None,
                framework=integration.framework,
            )
            for integration in jobs
            if not integration.traits.pods_are_jobs
        ),
        *(
            FollowedKind(resource=resource, shrink=without_owners_of_fields, on_demand=True)
            for resource in dict.fromkeys(
                resource for each in jobs if isinstance(each, RuntimeKind) for resource in each.runtimes
            )
        ),
    )


def _controllers(integration: JobIntegration, jobs: Sequence[JobIntegration]) -> Mapping[str, Indexer]:
    if integration.resource != PODS:
        return {}
    labelled = [each for each in jobs if each.traits.holds_pods and each.traits.pod_label]

    def named(pod: JsonObject) -> Iterable[str]:
        found = ((kind, named_by(pod, kind)) for kind in labelled)
        return [named_term(kind, Key(pod["metadata"]["namespace"], name)) for kind, name in found if name]

    return {CONTROLLER_INDEX: _controller, NAMED_OWNER_INDEX: named}


def _groups(integration: JobIntegration) -> Mapping[str, Indexer]:
    if not isinstance(integration, GroupedKind):
        return {}
    group_of = integration.group_of

    def group(obj: JsonObject) -> Iterable[str]:
        name = group_of(obj)
        return [str(Key(obj["metadata"]["namespace"], name))] if name else ()

    return {GROUP_INDEX: group}


def _runtimes(integration: JobIntegration) -> Mapping[str, Indexer]:
    if not isinstance(integration, RuntimeKind):
        return {}
    runtime_of = integration.runtime_of

    def runtime(obj: JsonObject) -> Iterable[str]:
        found = runtime_of(obj)
        return [] if found is None else [runtime_term(found.resource, found.key)]

    return {RUNTIME_INDEX: runtime}
