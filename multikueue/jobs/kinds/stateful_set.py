# SPDX-License-Identifier: Apache-2.0
"""apps/v1 StatefulSet (`docs/spec/kueue-api.md §4.1`): one Workload for all its pods, which are gated until admission.

Its controller makes the pods, often one after the other, so the Workload is made from the pod template and starts pods
as they come. A pod is started only under a name that the controller uses, and with no more requests than the template:
a pod that another client made in the name of the StatefulSet runs on its quota or not at all.

On a worker these pods are a pod group, which is queued with its first pod. The pods of the hub show the status of their
remote pods, so that the controller of the hub makes the next pod, and counts them as ready.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from multikueue.api.constants import (
    DEFAULT_POD_SET,
    PARTITION_POLICY_ANNOTATION,
    POD_FRAMEWORK,
    POD_GROUP_FAST_ADMISSION_ANNOTATION,
    POD_GROUP_NAME_LABEL,
    POD_GROUP_SERVING_ANNOTATION,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    POD_SUSPENDING_PARENT_ANNOTATION,
    PRIORITY_CLASS_LABEL,
    QUEUE_NAME_LABEL,
    STATEFUL_SET_FRAMEWORK,
)
from multikueue.api.defaulting import JobSurroundings
from multikueue.api.featuregates import Gate
from multikueue.api.objects import JsonObject
from multikueue.api.reasons import PodEvent, WorkloadCondition
from multikueue.api.resource import PODS, STATEFUL_SETS, Resource
from multikueue.api.stored_template import stored_template
from multikueue.core.conditions import is_true_in
from multikueue.core.errors import BadInput
from multikueue.core.parsing import MAX_INT32, parse_unsigned
from multikueue.jobs.framework import templated_queue
from multikueue.jobs.framework.admission import common_refusals
from multikueue.jobs.framework.capabilities import HeldPod, MemberWrite
from multikueue.jobs.framework.counts import count_of
from multikueue.jobs.framework.pod_set_differences import differences, summary
from multikueue.jobs.framework.pod_templates import INJECTED_KEYS
from multikueue.jobs.framework.protocol import (
    JobEnd,
    JobIntegration,
    JobWrite,
    PodSetInfo,
    PriorityHint,
    Reclaimable,
    RemoteIdentity,
    StatusSync,
)
from multikueue.jobs.framework.templated_queue import labels_of, template_of
from multikueue.jobs.framework.topology_requests import topology_request
from multikueue.jobs.framework.traits import Hold, JobTraits
from multikueue.jobs.kinds import pod_group, remote_pods
from multikueue.jobs.kinds.oversized_pods import surplus
from multikueue.jobs.kinds.pod import started_pod, stopped_pod
from multikueue.jobs.kinds.pod_group import role_of, values_of

_PODS: Final = "pods"
"""The field of a job with its pods."""
_LABEL_LENGTH: Final = 63
_ORDINAL: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_IN_ONE: Final = "the pods of a StatefulSet have the Workload of the StatefulSet"
_NO_MANIFEST: Final = "the remote job of a StatefulSet is a pod group"


class StatefulSetIntegration:
    """The integration `statefulset`."""

    framework: str = STATEFUL_SET_FRAMEWORK
    resource: Resource = STATEFUL_SETS
    traits: JobTraits = JobTraits(
        hold=Hold.PODS,
        sent_as=PODS,
        holds_pods=True,
        owns_only_pods=True,
        reviewed_subresources=("scale",),
        needs=(POD_FRAMEWORK,),
    )
    copies_labels: bool = False

    def with_pods(self, job: JsonObject, pods: Sequence[HeldPod]) -> JsonObject:
        """The StatefulSet with its pods in an extra field."""
        return {**job, _PODS: tuple(pods)}

    def pod_template(self, job: JsonObject) -> JsonObject:
        """`spec.template`."""
        return template_of(job)

    def held_back(self, job: JsonObject) -> str:
        """The first few gated pods that request more than the template."""
        return summary(
            [
                f"pod {held.pod['metadata']['name']} stays gated: {held.problem}"
                for held in _held(job)
                if held.problem and pod_group.is_gated(held.pod) and not pod_group.is_deleting(held.pod)
            ]
        )

    def is_empty(self, job: JsonObject) -> bool:
        """Whether it is scaled to zero. Raises `BadInput`."""
        return not _replicas(job)

    def group_of(self, member: JsonObject) -> str:
        """None: each StatefulSet has a Workload of its own."""
        return ""

    def composed(self, members: Sequence[JsonObject]) -> JsonObject:
        """The first one, since no several share a Workload."""
        return members[0]

    def members(self, job: JsonObject) -> tuple[JsonObject, ...]:
        """Itself."""
        return (job,)

    def incomplete(self, job: JsonObject) -> str:
        """That it is to have no pods. Raises `BadInput`."""
        return "it is scaled to zero" if self.is_empty(job) else ""

    def waits(self, job: JsonObject) -> bool:
        """Whether a pod is gated that may be started."""
        return bool(_startable(job))

    def replacements(self, job: JsonObject, workload: JsonObject) -> str:
        """None are due: its controller makes them."""
        return ""

    def upkeep(self, job: JsonObject, workload: JsonObject | None) -> tuple[MemberWrite, ...]:
        """Delete pods that are not its own, and those that run and have no place or no quota."""
        name = job["metadata"]["name"]
        writes = []
        for held in _held(job):
            pod = held.pod
            if pod_group.is_deleting(pod):
                continue
            runs = pod_group.is_active(pod)
            if _ordinal(job, pod) is None:
                why = f"its name is not one of StatefulSet {name}, whose pods are {name}-0, {name}-1 and so on"
            elif runs and _replicas(job) and _ordinal(job, pod) not in _places(job):
                why = f"its scheduling gate was removed, and StatefulSet {name} has {_replicas(job)} other pods"
            elif runs and held.problem and _is_oversized(pod, workload):
                why = f"its scheduling gate was removed or it was resized, and {held.problem}"
            else:
                continue
            message = f"Deleted pod {pod['metadata']['name']}: {why}"
            writes.append(MemberWrite(write=_deleted(pod), reason=PodEvent.EXCESS_POD_DELETED, message=message))
        return tuple(writes)

    def defaulted(self, job: JsonObject, surroundings: JobSurroundings) -> JsonObject:
        """With its queue in the pod template."""
        return templated_queue.with_queue(job, self.framework)

    def updated(self, new: JsonObject, old: JsonObject) -> JsonObject:
        """With its queue, or without one, in the pod template as in its labels."""
        if self.queue_name(new):
            return templated_queue.with_queue(new, self.framework)
        return templated_queue.without_queue(new) if templated_queue.is_left(new, old) else new

    def refusals(
        self, new: JsonObject, old: JsonObject | None, *, has_default_queue: bool, gate: Gate
    ) -> tuple[str, ...]:
        """What holds for every kind, and that its size and the demands of its pods change at zero replicas only."""
        if new.get("kind") == "Scale":
            return () if old is None else _size_refusals(new, old)
        if not any(self.queue_name(each) for each in (new, old or {})):
            return ()
        # Only the API server writes the status, and an update of the rest may show any.
        seen = new if old is None else {**new, "status": old.get("status") or {}}
        found = [*common_refusals(seen, old, self, has_default_queue=has_default_queue, gate=gate)]
        found += templated_queue.template_refusals(new, self, why=_IN_ONE)
        if old is not None:
            found += self._update_refusals(new, old)
        return tuple(dict.fromkeys(found))

    def _update_refusals(self, new: JsonObject, old: JsonObject) -> list[str]:
        found = list(_size_refusals(new, old))
        if not old["spec"].get("replicas", 1) or "deletionTimestamp" in old["metadata"]:
            return found
        if templated_queue.is_left(new, old):
            path = f"metadata.labels[{QUEUE_NAME_LABEL}]"
            found.append(f"{path}: Required value: can be removed only while spec.replicas is 0")
        if self.queue_name(old) and _demands(template_of(new)) != _demands(template_of(old)):
            found.append(
                "spec.template.spec: Invalid value: what its pods request and where they may run can be changed only"
                " while spec.replicas is 0, since quota is reserved for them as they are"
            )
        return found

    def managed_by(self, job: JsonObject) -> str:
        """StatefulSets have no such field."""
        return ""

    def queue_name(self, job: JsonObject) -> str:
        """The label `kueue.x-k8s.io/queue-name`."""
        return labels_of(job).get(QUEUE_NAME_LABEL, "")

    def is_suspended(self, job: JsonObject) -> bool:
        """Whether no pod runs or may be scheduled."""
        return not self.is_active(job)

    def is_active(self, job: JsonObject) -> bool:
        """Whether a pod runs, terminates or may be scheduled; without its pods, whether one is ready."""
        if _PODS not in job:
            return bool((job.get("status") or {}).get("readyReplicas"))
        return any(pod_group.is_active(held.pod) for held in _held(job))

    def may_have_pods(self, job: JsonObject) -> bool:
        """Whether it is active."""
        return self.is_active(job)

    def pod_sets(self, job: JsonObject) -> tuple[JsonObject, ...]:
        """One pod set `main` of all its pods. Raises `BadInput`."""
        template = template_of(job)
        kept = {
            field: {key: value for key, value in values_of(template, field).items() if key not in INJECTED_KEYS}
            for field in ("labels", "annotations")
        }
        metadata = {field: values for field, values in kept.items() if values}
        pod_set: JsonObject = {
            "name": DEFAULT_POD_SET,
            "count": _replicas(job),
            "template": stored_template({"metadata": metadata, "spec": template.get("spec") or {}}),
        }
        request = topology_request(kept["annotations"])
        return ({**pod_set, **({"topologyRequest": request} if request is not None else {})},)

    def priority(self, job: JsonObject) -> PriorityHint:
        """The label, else the class of its pods."""
        return PriorityHint(
            workload_class=labels_of(job).get(PRIORITY_CLASS_LABEL, ""),
            pod_class=str((template_of(job).get("spec") or {}).get("priorityClassName") or ""),
        )

    def matches(self, job: JsonObject, workload: JsonObject, infos: Sequence[PodSetInfo] = ()) -> bool:
        """Whether the Workload is for as many pods with the same demands; one of a set at zero is left to its end.

        Raises `BadInput`.
        """
        wanted: Sequence[JsonObject] = workload["spec"].get("podSets") or ()
        if self.is_empty(job):
            return True
        if len(wanted) != 1 or wanted[0].get("count", 1) != _replicas(job):
            return False
        return _demands(self.pod_sets(job)[0]["template"]) == _demands(wanted[0].get("template") or {})

    def differences(self, job: JsonObject, workload: JsonObject, infos: Sequence[PodSetInfo] = ()) -> tuple[str, ...]:
        """The differences from a Workload that a user created. Raises `BadInput`."""
        wanted: Sequence[JsonObject] = workload["spec"].get("podSets") or ()
        if len(wanted) != 1:
            return (f"podSets: StatefulSet has 1, Workload has {len(wanted)}",)
        return differences(self.pod_sets(job)[0], wanted[0], at="podSets[0]")

    def start(self, job: JsonObject, infos: Sequence[PodSetInfo]) -> JobWrite:
        """Inject into each gated pod that may be started, and remove its gate. Raises `InjectionConflict`."""
        return _joined([started_pod(pod, infos[0]) for pod in _startable(job)] if infos else [])

    def stop(self, job: JsonObject, pod_sets: Sequence[JsonObject]) -> JobWrite | None:
        """Mark and delete each pod that was started; its controller makes gated ones in their place."""
        writes: list[JobWrite] = []
        for held in _held(job):
            if pod_group.is_active(held.pod) and not pod_group.is_deleting(held.pod):
                writes += stopped_pod(held.pod)
        return _joined(writes) if writes else None

    def finished(self, job: JsonObject) -> JobEnd | None:
        """A StatefulSet never ends; scaled to zero it has no Workload."""
        return None

    def pods_ready(self, job: JsonObject) -> bool:
        """Whether as many pods are ready as it is to have. Raises `BadInput`."""
        ready = [held for held in _held(job) if is_true_in(held.pod.get("status") or {}, "Ready")]
        return len(ready) >= _replicas(job)

    def pods_started(self, job: JsonObject) -> bool:
        """Whether a pod runs."""
        return any((held.pod.get("status") or {}).get("phase") == "Running" for held in _held(job))

    def pod_selector(self, job: JsonObject) -> str:
        """None: its pods are known by their owner."""
        return ""

    def reclaimable(self, job: JsonObject) -> tuple[Reclaimable, ...]:
        """None: a pod that ends is made again."""
        return ()

    def remote_manifest(self, job: JsonObject, infos: Sequence[PodSetInfo], *, identity: RemoteIdentity) -> JsonObject:
        """Its pods that may be started, as a pod group with the name of the Workload. Raises `InjectionConflict`."""
        names = {field: values_of(job, field) for field in ("labels", "annotations")}
        metadata = {"name": identity.workload_name, "namespace": job["metadata"]["namespace"], **names}
        pods = [_member(job, pod, group=identity.workload_name) for pod in _startable(job)]
        group = {"metadata": metadata, remote_pods.MEMBERS: pods}
        return remote_pods.remote_group(group, infos, identity=identity)

    def queued_manifest(self, manifest: JsonObject, pod_sets: Sequence[JsonObject]) -> JsonObject:
        """Raises `BadInput`."""
        raise BadInput(_NO_MANIFEST)

    def local_manifest(self, remote: JsonObject) -> JsonObject:
        """Raises `BadInput`."""
        raise BadInput(_NO_MANIFEST)

    def sync_status(self, local: JsonObject, remote_status: JsonObject) -> StatusSync:
        """The status of each remote pod, on the pod that it was made from. Raises `BadInput`."""
        found = remote_pods.recorded_statuses(remote_status)
        pods = [(held.pod, (held.pod["metadata"]["name"], str(held.pod["metadata"]["uid"]))) for held in _held(local)]
        return StatusSync(write=_shown(remote_pods.mirrored(pod, found[key]) for pod, key in pods if key in found))

    def not_sent(self, job: JsonObject) -> str:
        """Why its pods cannot be sent to a worker. Raises `BadInput`."""
        return remote_pods.problem([held.pod for held in _held(job)], total=_replicas(job))

    def sent_digest(self, job: JsonObject) -> str:
        """Of the pods that may be started."""
        return remote_pods.digest(_startable(job))

    def awaits_members(self, job: JsonObject) -> bool:
        """Whether its controller has made no pod yet."""
        return not _startable(job)

    def suspended_status(self, local: JsonObject, *, now: datetime) -> JobWrite | None:
        """The pods show that they are gated."""
        return None

    def stopped_status(self, local: JsonObject, *, now: datetime) -> JobWrite | None:
        """Its pods are shown as gated again, after their remote pods are gone."""
        gated = [held.pod for held in _held(local) if pod_group.is_gated(held.pod)]
        return _shown(remote_pods.unmirrored(pod, now=now) for pod in gated)


STATEFUL_SET: Final[JobIntegration] = StatefulSetIntegration()


def _replicas(job: JsonObject) -> int:
    return count_of(job.get("spec") or {}, "replicas", at="spec", default=1)


def _held(job: JsonObject) -> tuple[HeldPod, ...]:
    found: tuple[HeldPod, ...] = job.get(_PODS) or ()
    return found


def _startable(job: JsonObject) -> list[JsonObject]:
    """The gated pods that its controller made, as far as their names and requests show."""
    wanted = _places(job)
    return [
        held.pod
        for held in _held(job)
        if not held.problem
        and pod_group.is_gated(held.pod)
        and not pod_group.is_deleting(held.pod)
        and _ordinal(job, held.pod) in wanted
    ]


def _places(job: JsonObject) -> range:
    """The numbers of its pods. Raises `BadInput`."""
    first = parse_unsigned(
        ((job.get("spec") or {}).get("ordinals") or {}).get("start") or 0,
        field="spec.ordinals.start",
        maximum=MAX_INT32,
    )
    return range(first, first + _replicas(job))


def _is_oversized(pod: JsonObject, workload: JsonObject | None) -> bool:
    """Whether quota is reserved, and not for a pod of that size; without quota all its pods are stopped."""
    pod_sets: Sequence[JsonObject] = ((workload or {}).get("spec") or {}).get("podSets") or ()
    status: JsonObject = (workload or {}).get("status") or {}
    if len(pod_sets) != 1 or not is_true_in(status, WorkloadCondition.QUOTA_RESERVED):
        return False
    return bool(surplus(pod, pod_sets[0], status))


def _member(job: JsonObject, pod: JsonObject, *, group: str) -> JsonObject:
    """A pod as one of the group that is sent: the group is complete with any number of its pods, and never ends."""
    metadata: JsonObject = pod["metadata"]
    labels = {**values_of(pod, "labels"), **({POD_GROUP_NAME_LABEL: group} if len(group) <= _LABEL_LENGTH else {})}
    policy = values_of(job, "annotations").get(PARTITION_POLICY_ANNOTATION)
    annotations = {
        **values_of(pod, "annotations"),
        **({PARTITION_POLICY_ANNOTATION: policy} if policy else {}),
        POD_GROUP_NAME_LABEL: group,
        POD_GROUP_TOTAL_COUNT_ANNOTATION: str(_replicas(job)),
        POD_GROUP_FAST_ADMISSION_ANNOTATION: "true",
        POD_GROUP_SERVING_ANNOTATION: "true",
    }
    annotations.pop(POD_SUSPENDING_PARENT_ANNOTATION, None)
    return {**pod, "metadata": {**metadata, "labels": labels, "annotations": annotations}}


def _ordinal(job: JsonObject, pod: JsonObject) -> int | None:
    """The number in the name of a pod; None if its name is no name of this StatefulSet."""
    name, _, number = str(pod["metadata"]["name"]).rpartition("-")
    if name != job["metadata"]["name"] or not _ORDINAL.fullmatch(number):
        return None
    return int(number)


def _demands(template: JsonObject) -> str:
    """What quota and flavors depend on, whatever the labels are."""
    return role_of({"spec": template.get("spec") or {}})


def _size_refusals(new: JsonObject, old: JsonObject) -> tuple[str, ...]:
    """Why the size may not change so, from two StatefulSets or two Scales."""
    before, after = (
        (each.get("spec") or {}).get("replicas", 0 if each.get("kind") == "Scale" else 1) for each in (old, new)
    )
    if before == after or not after:
        return ()
    if before:
        return (
            f"spec.replicas: Invalid value: {after}: quota is reserved for all {before} pods at once: scale it to 0"
            f" first, and then to {after}",
        )
    left = (old.get("status") or {}).get("replicas") or 0
    if left:
        return (f"spec.replicas: Forbidden: {left} of its pods are still being removed: scale it up when none is left",)
    return ()


def _joined(writes: Sequence[JobWrite]) -> JobWrite:
    """Several writes to pods as one."""
    kept = [_to_pod(each) for each in writes]
    if not kept:
        return JobWrite()
    first, *others = kept
    return JobWrite(
        body=first.body,
        subresource=first.subresource,
        delete=first.delete,
        target=first.target,
        resource=first.resource,
        also=tuple(others),
    )


def _shown(writes: Iterable[JobWrite | None]) -> JobWrite | None:
    due = [write for write in writes if write is not None]
    return _joined(due) if due else None


def _to_pod(write: JobWrite) -> JobWrite:
    return JobWrite(
        body=write.body, subresource=write.subresource, delete=write.delete, target=write.target, resource=PODS
    )


def _deleted(pod: JsonObject) -> JobWrite:
    return JobWrite(delete=True, target=pod, resource=PODS)
