# SPDX-License-Identifier: Apache-2.0
"""v1 Pod and pod groups (`docs/spec/kueue-api.md §4.1`): gated until admission, and deleted when it ends.

A pod cannot be suspended again, so a preempted one is deleted, and its user or controller makes another one. The pods
of a group share one Workload, with a pod set for each role. What of a group counts is in `pod_group`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from multikueue.api.constants import (
    DEFAULT_POD_SET,
    MANAGED_LABEL,
    MANAGED_LABEL_VALUE,
    ORIGIN_UID_ANNOTATION,
    POD_FRAMEWORK,
    PRIORITY_CLASS_LABEL,
    QUEUE_NAME_LABEL,
    SCHEDULING_GATES,
)
from multikueue.api.featuregates import Gate
from multikueue.api.objects import JsonObject
from multikueue.api.reasons import FinishedReason, PodEvent, WorkloadCondition
from multikueue.api.resource import PODS, Resource
from multikueue.api.stored_template import stored_template
from multikueue.api.validation.pod import pod_errors
from multikueue.core.conditions import is_true_in
from multikueue.core.errors import BadInput
from multikueue.jobs.framework.admission import common_refusals
from multikueue.jobs.framework.capabilities import MemberWrite
from multikueue.jobs.framework.pod_set_differences import differences
from multikueue.jobs.framework.pod_templates import INJECTED_KEYS, same, same_as_stored
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
from multikueue.jobs.framework.topology_requests import topology_request
from multikueue.jobs.framework.traits import Hold, JobTraits
from multikueue.jobs.kinds import pod_group, remote_pods
from multikueue.jobs.kinds.oversized_pods import surplus
from multikueue.jobs.kinds.pod_group import PodGroup, counts_of, role_of, values_of
from multikueue.jobs.kinds.pod_roles import counted_in
from multikueue.jobs.kinds.pod_writes import deleted, released, started_pod, stopped_pod, together

_MEMBERS: Final = remote_pods.MEMBERS
_STARTED: Final = ("Running", "Succeeded", "Failed")
_NO_GROUP: Final = "a pod group is not created again from its pods on a worker; its user has to submit it"


class PodIntegration:
    """The integration `pod`."""

    framework: str = POD_FRAMEWORK
    resource: Resource = PODS
    traits: JobTraits = JobTraits(
        hold=Hold.GATE, grouped=True, needs_managed_label=True, reviewed_fields=(), owns_pods_itself=True
    )
    copies_labels: bool = False

    def group_of(self, member: JsonObject) -> str:
        """The label or annotation `kueue.x-k8s.io/pod-group-name`."""
        return pod_group.group_of(member)

    def composed(self, members: Sequence[JsonObject]) -> JsonObject:
        """The oldest pod under the name of the group, with all pods in an extra field."""
        pods = sorted(members, key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))
        first = pods[0]
        metadata = {
            key: first["metadata"][key]
            for key in ("namespace", "labels", "annotations", "creationTimestamp")
            if key in first["metadata"]
        }
        name = pod_group.group_of(first)
        return {**first, "metadata": {**metadata, "name": name, "uid": ""}, _MEMBERS: pods}

    def members(self, job: JsonObject) -> tuple[JsonObject, ...]:
        """The pods of the group; the pod itself if it is in none."""
        return tuple(job.get(_MEMBERS) or (job,))

    def with_pod_sets(self, job: JsonObject, pod_sets: Sequence[JsonObject]) -> JsonObject:
        """The group with each pod counted in a pod set of its Workload, whatever that is named."""
        return {**job, _MEMBERS: list(counted_in(self.members(job), pod_sets))} if _MEMBERS in job else job

    def incomplete(self, job: JsonObject) -> str:
        """Pods of the group that do not exist yet. Raises `BadInput`."""
        if _MEMBERS not in job:
            return ""
        group = self._group(job)
        if group.is_fast or not group.missing():
            return ""
        return f"{len(group.living)} of {group.total} pods of the group exist"

    def waits(self, job: JsonObject) -> bool:
        """Whether a pod is gated that is not being deleted."""
        return any(pod_group.is_gated(pod) for pod in self._group(job).living)

    def replacements(self, job: JsonObject, workload: JsonObject) -> str:
        """The pods that failed or were deleted, in a group that may replace them. Raises `BadInput`."""
        if _MEMBERS not in job:
            return ""
        group = self._group(job)
        if not group.failed or not group.is_retriable or not group.missing():
            return ""
        return f"{group.missing()} of {group.total} pods failed or were deleted, and have to be created again"

    def upkeep(self, job: JsonObject, workload: JsonObject | None) -> tuple[MemberWrite, ...]:
        """Delete pods in excess or beyond quota, and let go of pods that are needed no longer. Raises `BadInput`."""
        group = self._group(job)
        if _MEMBERS in job and all(pod_group.is_deleting(pod) and pod_group.is_gated(pod) for pod in group.pods):
            # None has run here, where it could be replaced: the group was deleted.
            return tuple(MemberWrite(write=released(pod)) for pod in group.pods if pod_group.is_held_back(pod))
        status: JsonObject = (workload or {}).get("status") or {}
        if (
            workload is None
            or is_true_in(status, WorkloadCondition.FINISHED)
            or "deletionTimestamp" in workload["metadata"]
        ):
            over = [pod for pod in group.pods if pod_group.has_ended(pod)]
            if workload is None and _MEMBERS in job:
                over = [pod for pod in over if pod_group.is_deleting(pod)]
            return tuple(MemberWrite(write=released(pod)) for pod in over if pod_group.is_held_back(pod))
        reserved = is_true_in(status, WorkloadCondition.QUOTA_RESERVED)
        oversized = _oversized(group.pods, workload, single=_MEMBERS not in job) if reserved else ()
        if oversized or _MEMBERS not in job:
            return oversized
        roles: dict[str, int] | None = None
        templates = [each.get("template") or {} for each in workload["spec"].get("podSets") or ()]
        if reserved:
            roles = {str(each["name"]): int(each.get("count", 1)) for each in workload["spec"].get("podSets") or ()}
        message = f"Deleted: the group {job['metadata']['name']} has its {group.total} pods already, or they differ"
        return (
            *(
                MemberWrite(write=deleted(pod), reason=PodEvent.EXCESS_POD_DELETED, message=message)
                for pod in group.excess(roles, templates=templates)
            ),
            *(MemberWrite(write=released(pod)) for pod in group.replaced() if pod_group.is_held_back(pod)),
        )

    def managed_by(self, job: JsonObject) -> str:
        """Pods have no such field."""
        return ""

    def queue_name(self, job: JsonObject) -> str:
        """The label of the first pod that has one."""
        names = (values_of(pod, "labels").get(QUEUE_NAME_LABEL, "") for pod in self.members(job))
        return next(filter(None, names), "")

    def is_suspended(self, job: JsonObject) -> bool:
        """Whether no pod runs or may be scheduled."""
        return not self.is_active(job)

    def is_active(self, job: JsonObject) -> bool:
        """Whether a pod runs, terminates or may be scheduled."""
        return any(pod_group.is_active(pod) for pod in self.members(job))

    def may_have_pods(self, job: JsonObject) -> bool:
        """Whether it is active: it has the pods that it is."""
        return self.is_active(job)

    def pod_sets(self, job: JsonObject) -> tuple[JsonObject, ...]:
        """One pod set `main` of a single pod; of a group one for each role. Raises `BadInput`."""
        if _MEMBERS not in job:
            return (_pod_set(job, DEFAULT_POD_SET, 1),)
        group = self._group(job)
        living = group.living or group.pods
        if group.is_fast:
            return (_pod_set(living[0], role_of(living[0]), group.total),)
        counted = [*group.succeeded, *living][: group.total]
        examples = {role_of(pod): pod for pod in reversed(counted)}
        counts = counts_of(counted)
        return tuple(_pod_set(examples[role], role, counts[role]) for role in sorted(counts))

    def priority(self, job: JsonObject) -> PriorityHint:
        """The label, else the class of the first pod."""
        first = self.members(job)[0]
        return PriorityHint(
            workload_class=values_of(first, "labels").get(PRIORITY_CLASS_LABEL, ""),
            pod_class=str((first.get("spec") or {}).get("priorityClassName") or ""),
        )

    def matches(self, job: JsonObject, workload: JsonObject, infos: Sequence[PodSetInfo] = ()) -> bool:
        """Whether gated pods still have the demands of the Workload; pods that were started cannot change.

        Raises `BadInput`.
        """
        wanted: Sequence[JsonObject] = workload["spec"].get("podSets") or ()
        if _MEMBERS not in job:
            if len(wanted) != 1:
                return False
            own, stored = self.pod_sets(job)[0]["template"], wanted[0].get("template") or {}
            return not pod_group.is_gated(job) or same_as_stored(own, stored)
        group, roles = self._group(job), {str(each.get("name")): each.get("count", 1) for each in wanted}
        if group.is_fast:
            living = group.living
            return list(roles.values()) == [group.total] and (
                not living or any(role_of(pod) in roles for pod in living)
            )
        if self.is_active(job) or group.missing() or group.succeeded:
            return True  # what does not fit is in excess, or is still missing
        return counts_of(group.living) == roles

    def differences(self, job: JsonObject, workload: JsonObject, infos: Sequence[PodSetInfo] = ()) -> tuple[str, ...]:
        """The differences between gated pods and a Workload that a user created for them. Raises `BadInput`."""
        if self.is_active(job):
            return ()
        found = self.pod_sets(job)
        wanted: Sequence[JsonObject] = workload["spec"].get("podSets") or ()
        if len(found) != len(wanted):
            return (f"podSets: Pods have {len(found)}, Workload has {len(wanted)}",)
        by_name = {each.get("name"): each for each in wanted}
        return tuple(
            text
            for index, pod_set in enumerate(found)
            for text in differences(
                _as_submitted(pod_set),
                _as_submitted(by_name.get(pod_set["name"], wanted[index])),
                at=f"podSets[{index}]",
            )
        )

    def start(self, job: JsonObject, infos: Sequence[PodSetInfo]) -> JobWrite:
        """Inject into each gated pod and remove its gate. Raises `InjectionConflict`."""
        by_role = {info.name: info for info in infos}
        writes = []
        for pod in self._group(job).living:
            info = by_role.get(role_of(pod)) if _MEMBERS in job else None
            info = info or (infos[0] if len(infos) == 1 else None)
            if pod_group.is_gated(pod) and info is not None:
                writes.append(started_pod(pod, info))
        first, *others = writes or [JobWrite()]
        return JobWrite(body=first.body, target=first.target, also=tuple(others))

    def stop(self, job: JsonObject, pod_sets: Sequence[JsonObject]) -> JobWrite | None:
        """Mark and delete each pod that was started; gated pods wait for the next admission."""
        writes: list[JobWrite] = []
        for pod in self.members(job):
            if pod_group.is_active(pod) and not pod_group.is_deleting(pod):
                writes += stopped_pod(pod)
        if not writes:
            return None
        first, *others = writes
        return JobWrite(body=first.body, subresource=first.subresource, target=first.target, also=tuple(others))

    def finished(self, job: JsonObject) -> JobEnd | None:
        """The end of a pod; of a group when all pods succeeded, or none is left of one that cannot be retried."""
        group = self._group(job)
        if _MEMBERS not in job:
            return _end(job) if pod_group.has_ended(job) else None
        try:
            total = group.total
        except BadInput:
            return None  # it cannot be queued, which is reported elsewhere
        succeeded = 0 if group.is_serving else len(group.succeeded)
        message = f"Pods succeeded: {succeeded}/{total}."
        if succeeded >= total:
            return JobEnd(reason=FinishedReason.SUCCEEDED, message=message)
        if not group.is_retriable and group.failed and not group.living and not self.is_active(job):
            return JobEnd(reason=FinishedReason.FAILED, message=message)
        return None

    def pods_ready(self, job: JsonObject) -> bool:
        """Whether all pods are ready or succeeded. Raises `BadInput`."""
        group = self._group(job)
        ready = [pod for pod in group.living if is_true_in(pod.get("status") or {}, "Ready")]
        return len(ready) + len(group.succeeded) >= (group.total if _MEMBERS in job else 1)

    def pods_started(self, job: JsonObject) -> bool:
        """Whether a pod runs, terminates or has ended."""
        return any((pod.get("status") or {}).get("phase") in _STARTED for pod in self.members(job))

    def pod_selector(self, job: JsonObject) -> str:
        """That of the pods of a remote job; on the hub none: the job is its pods."""
        return remote_pods.pods_selector(job)

    def reclaimable(self, job: JsonObject) -> tuple[Reclaimable, ...]:
        """The succeeded pods of each role of a group."""
        if _MEMBERS not in job:
            return ()
        group = self._group(job)
        counts = {} if group.is_serving else counts_of(group.succeeded)
        return tuple(Reclaimable(name=role, count=counts[role]) for role in sorted(counts))

    def refusals(
        self, new: JsonObject, old: JsonObject | None, *, has_default_queue: bool, gate: Gate
    ) -> tuple[str, ...]:
        """What holds for every kind, and `pod_errors`; pods that are not queued are not checked."""
        if all(
            pod is None or (MANAGED_LABEL not in values_of(pod, "labels") and not pod_group.group_of(pod))
            for pod in (new, old)
        ):
            return ()
        common: tuple[str, ...] = ()
        if any(values_of(pod, "labels").get(MANAGED_LABEL) == MANAGED_LABEL_VALUE for pod in (new, old or {})):
            common = common_refusals(new, old, self, has_default_queue=has_default_queue, gate=gate)
        return tuple(dict.fromkeys((*common, *map(str, pod_errors(new, old)))))

    def remote_manifest(self, job: JsonObject, infos: Sequence[PodSetInfo], *, identity: RemoteIdentity) -> JsonObject:
        """The pod without gate, or the group with its pods in the field `members`. Raises `InjectionConflict`."""
        if _MEMBERS in job:
            return remote_pods.remote_group(job, infos, identity=identity)
        return remote_pods.remote_pod(job, infos[0] if infos else None, identity=identity)

    def queued_manifest(self, manifest: JsonObject, pod_sets: Sequence[JsonObject]) -> JsonObject:
        """One remote pod, gated for the queues of the worker."""
        return remote_pods.queued_pod(manifest, pod_sets)

    def local_manifest(self, remote: JsonObject) -> JsonObject:
        """The pod as its user would submit it. Raises `BadInput` for a pod of a group."""
        if pod_group.group_of(remote):
            raise BadInput(_NO_GROUP)
        return remote_pods.local_pod(remote)

    def sync_status(self, local: JsonObject, remote_status: JsonObject) -> StatusSync:
        """The status of the remote pod, or of each remote pod of the group. Raises `BadInput`."""
        if _MEMBERS not in local:
            return StatusSync(write=remote_pods.mirrored(local, remote_status))
        found = remote_pods.recorded_statuses(remote_status)
        names = {pod["metadata"]["name"]: pod for pod in self.members(local)}
        # Others are not of this group, or were replaced here meanwhile.
        known = ((pod, found.get((name, str(pod["metadata"]["uid"])))) for name, pod in names.items())
        return StatusSync(write=together(remote_pods.mirrored(pod, each) for pod, each in known if each is not None))

    def not_sent(self, job: JsonObject) -> str:
        """Why the group cannot be sent to a worker. Raises `BadInput`."""
        return remote_pods.problem(self.members(job), total=self._group(job).total) if _MEMBERS in job else ""

    def sent_digest(self, job: JsonObject) -> str:
        """Of the pods of the group; empty for a pod of its own, which never changes."""
        return remote_pods.digest(self.members(job)) if _MEMBERS in job else ""

    def awaits_members(self, job: JsonObject) -> bool:
        """Whether all pods of a group were deleted, and none has replaced them."""
        return _MEMBERS in job and all(map(pod_group.is_deleting, self.members(job)))

    def has_other_members(self, job: JsonObject, remote_status: JsonObject) -> bool:
        """Whether pods of the group are missing in the status, and without them too few have succeeded."""
        return _MEMBERS in job and remote_pods.has_other_pods(self._group(job), remote_status)

    def remote_end(self, job: JsonObject) -> JobEnd | None:
        """A pod that is being deleted has not ended, whatever phase the kubelet gives it when it stops it."""
        return None if any(map(pod_group.is_deleting, self.members(job))) else self.finished(job)

    def remotely_stopped(self, job: JsonObject) -> bool:
        """Whether no pod runs, since all are gated or were deleted; pods that have ended are not stopped."""
        if self.is_active(job):
            return False
        return all(
            pod_group.is_deleting(pod) or pod_group.is_gated(pod) or (_MEMBERS not in job) for pod in self._present(job)
        )

    def remote_status(self, job: JsonObject) -> JsonObject | None:
        """What is reported: nothing of a pod that does not exist yet, or of one that is being deleted.

        A member of a group that is being deleted keeps the status that was reported before, if there was any.
        """
        if _MEMBERS not in job:
            return None if pod_group.is_deleting(job) else remote_pods.reported_status(job)
        return remote_pods.reported_statuses(
            (
                str(pod["metadata"]["name"]),
                values_of(pod, "annotations").get(ORIGIN_UID_ANNOTATION, ""),
                remote_pods.reported_status({**pod, "status": pod[remote_pods.REPORTED]})
                if pod_group.is_deleting(pod)
                else remote_pods.reported_status(pod),
            )
            for pod in self.members(job)
            if remote_pods.is_reported(pod)
        )

    def is_same_member(self, member: JsonObject, manifest: JsonObject) -> bool:
        """Whether both have the same containers."""
        here, there = (remote_pods.without_token_volume(each.get("spec") or {}) for each in (member, manifest))
        return same(here.get("containers"), there.get("containers"))

    def _present(self, job: JsonObject) -> Sequence[JsonObject]:
        """The pods of a remote job that exist on the worker."""
        return [pod for pod in self.members(job) if pod["metadata"].get("uid")]

    def suspended_status(self, local: JsonObject, *, now: datetime) -> JobWrite | None:
        """The API server reports that a pod is gated."""
        return None

    def stopped_status(self, local: JsonObject, *, now: datetime) -> JobWrite | None:
        """Gated pods are shown as gated again, after their remote pods are gone."""
        gated = [pod for pod in self.members(local) if pod_group.is_gated(pod)]
        return together(remote_pods.unmirrored(pod, now=now) for pod in gated)

    def _group(self, job: JsonObject) -> PodGroup:
        return PodGroup(self.members(job))


BARE_POD: Final[JobIntegration] = PodIntegration()


def _pod_set(pod: JsonObject, name: str, count: int) -> JsonObject:
    kept = {
        field: {key: value for key, value in values_of(pod, field).items() if key not in INJECTED_KEYS}
        for field in ("labels", "annotations")
    }
    spec = {key: value for key, value in (pod.get("spec") or {}).items() if key not in ("schedulingGates", "nodeName")}
    others = [
        gate
        for gate in (pod.get("spec") or {}).get("schedulingGates") or ()
        if gate.get("name") not in SCHEDULING_GATES
    ]
    metadata = {field: values for field, values in kept.items() if values}
    template = {"metadata": metadata, "spec": {**spec, **({"schedulingGates": others} if others else {})}}
    pod_set: JsonObject = {"name": name, "count": count, "template": stored_template(template)}
    request = topology_request(kept["annotations"])
    return {**pod_set, **({"topologyRequest": request} if request is not None else {})}


def _as_submitted(pod_set: JsonObject) -> JsonObject:
    """The pod set without what an API server adds to pods: it differs between a pod of the hub and its remote pod."""
    template: JsonObject = pod_set.get("template") or {}
    spec = pod_group.without_default_tolerations(remote_pods.without_token_volume(template.get("spec") or {}))
    return {**pod_set, "template": {**template, "spec": spec}}


def _oversized(pods: Iterable[JsonObject], workload: JsonObject, *, single: bool) -> tuple[MemberWrite, ...]:
    """The deletions of pods that run, and request more than the pod set that they are counted in."""
    pod_sets: dict[str, JsonObject] = {str(each.get("name")): each for each in workload["spec"].get("podSets") or ()}
    writes = []
    for pod in pods:
        pod_set = next(iter(pod_sets.values()), None) if single else pod_sets.get(role_of(pod))
        if pod_set is None or not pod_group.is_active(pod) or pod_group.is_deleting(pod):
            continue
        beyond = surplus(pod, pod_set, workload["status"])
        if beyond:
            name = pod["metadata"]["name"]
            message = (
                f"Deleted pod {name}: its scheduling gate was removed or it was resized, and it requests more than its"
                f" Workload: {beyond}"
            )
            writes.append(MemberWrite(write=deleted(pod), reason=PodEvent.EXCESS_POD_DELETED, message=message))
    return tuple(writes)


def _end(pod: JsonObject) -> JobEnd:
    status: JsonObject = pod.get("status") or {}
    if pod_group.has_succeeded(pod):
        return JobEnd(reason=FinishedReason.SUCCEEDED, message=str(status.get("message") or "Pod succeeded"))
    message = status.get("message") or status.get("reason")
    return JobEnd(
        reason=FinishedReason.FAILED,
        message=str(message or ("Pod failed" if status.get("phase") == "Failed" else "Pod was deleted")),
    )
