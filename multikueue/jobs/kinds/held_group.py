# SPDX-License-Identifier: Apache-2.0
"""What StatefulSet and LeaderWorkerSet share: pods that have one Workload, and are gated until it is admitted.

Their controller makes the pods, often one after the other, so the Workload is made from the pod templates and starts
pods as they come. A pod is started only under a name that the controller uses, and with no more requests than its
template: a pod that another client made in its place runs on its quota or not at all.

On a worker these pods are a pod group, which is queued with its first pod. The pods of the hub show the status of their
remote pods, so that the controller of the hub makes the next pod, and counts them as ready.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from multikueue.api.constants import (
    PARTITION_POLICY_ANNOTATION,
    POD_GROUP_FAST_ADMISSION_ANNOTATION,
    POD_GROUP_NAME_LABEL,
    POD_GROUP_SERVING_ANNOTATION,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    POD_SUSPENDING_PARENT_ANNOTATION,
)
from multikueue.api.objects import JsonObject, controller_of
from multikueue.api.reasons import PodEvent, WorkloadCondition
from multikueue.api.resource import PODS
from multikueue.api.stored_template import stored_template
from multikueue.core.conditions import is_true_in
from multikueue.jobs.framework.capabilities import HeldPod, MemberWrite
from multikueue.jobs.framework.pod_set_differences import differences, summary
from multikueue.jobs.framework.pod_templates import INJECTED_KEYS
from multikueue.jobs.framework.protocol import JobWrite, PodSetInfo, RemoteIdentity, StatusSync
from multikueue.jobs.framework.topology_requests import topology_request
from multikueue.jobs.kinds import pod_group, remote_pods
from multikueue.jobs.kinds.controlled_pods import ControlledPods
from multikueue.jobs.kinds.oversized_pods import surplus
from multikueue.jobs.kinds.pod_group import role_of, values_of
from multikueue.jobs.kinds.pod_writes import started_pod, stopped_pod

_PODS: Final = "pods"
"""The field of a job with its pods."""
_LABEL_LENGTH: Final = 63


class HeldGroup(ControlledPods):
    """An integration of such a kind; a job is passed to it with its pods."""

    @abstractmethod
    def size(self, job: JsonObject) -> int:
        """How many pods it is to have. Raises `BadInput`."""

    @abstractmethod
    def pod_sets(self, job: JsonObject) -> tuple[JsonObject, ...]:
        """Those of its Workload. Raises `BadInput`."""

    @abstractmethod
    def place_of(self, job: JsonObject, pod: JsonObject) -> str:
        """The pod set that a pod is counted in, by its name; empty if it has no place in the job. Raises `BadInput`."""

    @abstractmethod
    def misnamed(self, job: JsonObject, pod: JsonObject) -> str:
        """What names the pods of this job have, if this is none of them at any size; else empty."""

    @abstractmethod
    def pod_template(self, job: JsonObject, pod: JsonObject) -> JsonObject:
        """The template that quota for the pod is requested by."""

    def with_pods(self, job: JsonObject, pods: Sequence[HeldPod]) -> JsonObject:
        """The job with its pods in an extra field."""
        return {**job, _PODS: tuple(pods)}

    def held_back(self, job: JsonObject) -> str:
        """The first few gated pods that request more than their template."""
        return summary(
            [
                f"pod {held.pod['metadata']['name']} stays gated: {held.problem}"
                for held in _held(job)
                if held.problem and pod_group.is_gated(held.pod) and not pod_group.is_deleting(held.pod)
            ]
        )

    def is_empty(self, job: JsonObject) -> bool:
        """Whether it is scaled to zero. Raises `BadInput`."""
        return not self.size(job)

    def group_of(self, member: JsonObject) -> str:
        """None: each job has Workloads of its own."""
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
        return bool(self._startable(job))

    def replacements(self, job: JsonObject, workload: JsonObject) -> str:
        """None are due: its controller makes them."""
        return ""

    def upkeep(self, job: JsonObject, workload: JsonObject | None) -> tuple[MemberWrite, ...]:
        """Delete pods that are not its own, and those that run and have no place or no quota."""
        writes = []
        for held in _held(job):
            pod = held.pod
            why = "" if pod_group.is_deleting(pod) else self._why_deleted(job, held, workload)
            if why:
                message = f"Deleted pod {pod['metadata']['name']}: {why}"
                writes.append(MemberWrite(write=_deleted(pod), reason=PodEvent.EXCESS_POD_DELETED, message=message))
        return tuple(writes)

    def _why_deleted(self, job: JsonObject, held: HeldPod, workload: JsonObject | None) -> str:
        pod, runs = held.pod, pod_group.is_active(held.pod)
        misnamed = self.misnamed(job, pod)
        if misnamed and (runs or (controller_of(pod) or {}).get("uid") == job["metadata"].get("uid")):
            return f"its name is not one of {misnamed}"
        if not runs:
            return ""
        if self.size(job) and not self.place_of(job, pod):
            named = f"{self.resource.kind} {job['metadata']['name']}"
            return f"its scheduling gate was removed, and {named} has {self.size(job)} other pods"
        if held.problem and self._is_oversized(job, pod, workload):
            return f"its scheduling gate was removed or it was resized, and {held.problem}"
        return ""

    def is_active(self, job: JsonObject) -> bool:
        """Whether a pod runs, terminates or may be scheduled; without its pods, whether one is ready."""
        if _PODS not in job:
            return bool((job.get("status") or {}).get("readyReplicas"))
        return any(map(pod_group.is_active, _pods(job)))

    def may_have_pods(self, job: JsonObject) -> bool:
        """Whether it is active."""
        return self.is_active(job)

    def matches(self, job: JsonObject, workload: JsonObject, infos: Sequence[PodSetInfo] = ()) -> bool:
        """Whether the Workload is for as many pods with the same demands; one of a job at zero is left to its end.

        Raises `BadInput`.
        """
        if self.is_empty(job):
            return True
        wanted: Sequence[JsonObject] = workload["spec"].get("podSets") or ()
        return [_counted(each) for each in self.pod_sets(job)] == [_counted(each) for each in wanted]

    def differences(self, job: JsonObject, workload: JsonObject, infos: Sequence[PodSetInfo] = ()) -> tuple[str, ...]:
        """The differences from a Workload that a user created. Raises `BadInput`."""
        wanted: Sequence[JsonObject] = workload["spec"].get("podSets") or ()
        own = self.pod_sets(job)
        if len(wanted) != len(own):
            return (f"podSets: {self.resource.kind} has {len(own)}, Workload has {len(wanted)}",)
        pairs = zip(own, wanted, strict=True)
        return tuple(
            text
            for index, (mine, other) in enumerate(pairs)
            for text in differences(mine, other, at=f"podSets[{index}]")
        )

    def start(self, job: JsonObject, infos: Sequence[PodSetInfo]) -> JobWrite:
        """Inject into each gated pod that may be started, and remove its gate. Raises `InjectionConflict`."""
        by_name = {info.name: info for info in infos}
        alone = infos[0] if len(infos) == 1 else None
        found = [(pod, by_name.get(self.place_of(job, pod), alone)) for pod in self._startable(job)]
        return _joined([started_pod(pod, info) for pod, info in found if info is not None])

    def stop(self, job: JsonObject, pod_sets: Sequence[JsonObject]) -> JobWrite | None:
        """Mark and delete each pod that was started; its controller makes gated ones in their place."""
        writes: list[JobWrite] = []
        for pod in _pods(job):
            if pod_group.is_active(pod) and not pod_group.is_deleting(pod):
                writes += stopped_pod(pod)
        return _joined(writes) if writes else None

    def pods_ready(self, job: JsonObject) -> bool:
        """Whether as many pods are ready as it is to have. Raises `BadInput`."""
        ready = [pod for pod in _pods(job) if is_true_in(pod.get("status") or {}, "Ready")]
        return len(ready) >= self.size(job)

    def pods_started(self, job: JsonObject) -> bool:
        """Whether a pod runs."""
        return any((pod.get("status") or {}).get("phase") == "Running" for pod in _pods(job))

    def remote_manifest(self, job: JsonObject, infos: Sequence[PodSetInfo], *, identity: RemoteIdentity) -> JsonObject:
        """Its pods that may be started, as a pod group with the name of the Workload. Raises `InjectionConflict`."""
        names = {field: values_of(job, field) for field in ("labels", "annotations")}
        metadata = {"name": identity.workload_name, "namespace": job["metadata"]["namespace"], **names}
        total = self.size(job)
        pods = [_member(job, pod, group=identity.workload_name, total=total) for pod in self._startable(job)]
        group = {"metadata": metadata, remote_pods.MEMBERS: pods}
        return remote_pods.remote_group(group, infos, identity=identity, role=lambda pod: self.place_of(job, pod))

    def sync_status(self, local: JsonObject, remote_status: JsonObject) -> StatusSync:
        """The status of each remote pod, on the pod that it was made from. Raises `BadInput`."""
        found = remote_pods.recorded_statuses(remote_status)
        pods = [(pod, (pod["metadata"]["name"], str(pod["metadata"]["uid"]))) for pod in _pods(local)]
        return StatusSync(write=_shown(remote_pods.mirrored(pod, found[key]) for pod, key in pods if key in found))

    def not_sent(self, job: JsonObject) -> str:
        """Why its pods cannot be sent to a worker. Raises `BadInput`."""
        return remote_pods.problem(_pods(job), total=self.size(job))

    def sent_digest(self, job: JsonObject) -> str:
        """Of the pods that may be started."""
        return remote_pods.digest(self._startable(job))

    def awaits_members(self, job: JsonObject) -> bool:
        """Whether its controller has made no pod yet."""
        return not self._startable(job)

    def has_other_members(self, job: JsonObject, remote_status: JsonObject) -> bool:
        """Never: its pods serve, and have no end on a worker."""
        return False

    def stopped_status(self, local: JsonObject, *, now: datetime) -> JobWrite | None:
        """Its pods are shown as gated again, after their remote pods are gone."""
        gated = [pod for pod in _pods(local) if pod_group.is_gated(pod)]
        return _shown(remote_pods.unmirrored(pod, now=now) for pod in gated)

    def _startable(self, job: JsonObject) -> list[JsonObject]:
        """The gated pods that its controller made, as far as their names and requests show."""
        return [
            held.pod
            for held in _held(job)
            if not held.problem
            and pod_group.is_gated(held.pod)
            and not pod_group.is_deleting(held.pod)
            and self.place_of(job, held.pod)
        ]

    def _is_oversized(self, job: JsonObject, pod: JsonObject, workload: JsonObject | None) -> bool:
        """Whether quota is reserved, and not for a pod of that size; without quota all its pods are stopped."""
        pod_sets: Sequence[JsonObject] = ((workload or {}).get("spec") or {}).get("podSets") or ()
        status: JsonObject = (workload or {}).get("status") or {}
        if not is_true_in(status, WorkloadCondition.QUOTA_RESERVED):
            return False
        name = self.place_of(job, pod)
        alone = pod_sets[0] if len(pod_sets) == 1 else None
        pod_set = next((each for each in pod_sets if each.get("name") == name), alone)
        return pod_set is not None and bool(surplus(pod, pod_set, status))


def _held(job: JsonObject) -> tuple[HeldPod, ...]:
    found: tuple[HeldPod, ...] = job.get(_PODS) or ()
    return found


def _pods(job: JsonObject) -> list[JsonObject]:
    return [held.pod for held in _held(job)]


def pod_set_of(template: JsonObject, *, name: str, count: int) -> JsonObject:
    """A pod set of so many pods of a template, without what admission adds to it."""
    kept = {
        field: {key: value for key, value in values_of(template, field).items() if key not in INJECTED_KEYS}
        for field in ("labels", "annotations")
    }
    metadata = {field: values for field, values in kept.items() if values}
    pod_set: JsonObject = {
        "name": name,
        "count": count,
        "template": stored_template({"metadata": metadata, "spec": template.get("spec") or {}}),
    }
    request = topology_request(kept["annotations"])
    return {**pod_set, **({"topologyRequest": request} if request is not None else {})}


def demands(template: JsonObject) -> str:
    """What quota and flavors depend on, whatever the labels are."""
    return role_of({"spec": template.get("spec") or {}})


def _counted(pod_set: JsonObject) -> tuple[int, str]:
    return pod_set.get("count", 1), demands(pod_set.get("template") or {})


def _member(job: JsonObject, pod: JsonObject, *, group: str, total: int) -> JsonObject:
    """A pod as one of the group that is sent: the group is complete with any number of its pods, and never ends."""
    metadata: JsonObject = pod["metadata"]
    labels = {**values_of(pod, "labels"), **({POD_GROUP_NAME_LABEL: group} if len(group) <= _LABEL_LENGTH else {})}
    policy = values_of(job, "annotations").get(PARTITION_POLICY_ANNOTATION)
    annotations = {
        **values_of(pod, "annotations"),
        **({PARTITION_POLICY_ANNOTATION: policy} if policy else {}),
        POD_GROUP_NAME_LABEL: group,
        POD_GROUP_TOTAL_COUNT_ANNOTATION: str(total),
        POD_GROUP_FAST_ADMISSION_ANNOTATION: "true",
        POD_GROUP_SERVING_ANNOTATION: "true",
    }
    annotations.pop(POD_SUSPENDING_PARENT_ANNOTATION, None)
    return {**pod, "metadata": {**metadata, "labels": labels, "annotations": annotations}}


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
