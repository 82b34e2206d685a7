# SPDX-License-Identifier: Apache-2.0
"""The pods of one assignment as one remote job: which exist, which have to be created, and which to be deleted.

A pod belongs to the group by its assignment, its epoch, its name, and the uid of the pod on the hub; one that has the
name of a former pod replaces it. A pod that is being deleted, or is gone, keeps the status that was reported last, so
that no pod that existed is created again; once it is gone it counts as failed if it had not ended. All of this is read
from the cluster and the mailbox, so that it survives a restart of the agent.

A group whose pods the hub has replaced, all of them, is not gone: pods that serve are created anew in its place. And no
group has stopped, or is gone, while pods of it run that the hub has no longer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

from multikueue.api.constants import (
    ASSIGNMENT_ANNOTATION,
    EPOCH_ANNOTATION,
    MANAGER_UID_ANNOTATION,
    ORIGIN_UID_ANNOTATION,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
)
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.epochs import marked_epoch
from multikueue.dispatch.worker.assignment_state import Obstacle, ReportedStatus
from multikueue.jobs.kinds.pod_group import PodGroup, is_active
from multikueue.jobs.kinds.remote_pods import MAX_PODS, MEMBERS, REPLACED, REPORTED, ended_phase, recorded_statuses

_UID_LENGTH: Final = 16
_IDENTITY: Final = (MANAGER_UID_ANNOTATION, ASSIGNMENT_ANNOTATION, EPOCH_ANNOTATION)
_POD_DELETED: Final = {
    "phase": "Failed",
    "reason": "PodDeleted",
    "message": "The pod was deleted on the worker cluster",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteGroup:
    """A group on this cluster; `job` is None while none of its pods exists."""

    job: JsonObject | None
    present: tuple[tuple[Key, str], ...] = ()
    """Key and uid of each pod that exists and is not being deleted."""
    missing: tuple[JsonObject, ...] = ()
    """The manifests of the pods that have to be created."""
    replaced: tuple[tuple[Key, str], ...] = ()
    """Key and uid of each pod that has to be deleted: the hub has no such pod any more."""


class AssignedPods(Protocol):
    """The pods on this cluster that were created for assignments; `RemoteJobs` of pods."""

    def of_assignment(self, name: str) -> Iterable[Key]:
        """Those of one assignment."""

    def get(self, key: Key) -> JsonObject | None:
        """The pod; None if there is none."""

    def manager_uid(self, job: JsonObject) -> str:
        """The uid of the management cluster that the pod was created for."""


def members_of(manifest: JsonObject, *, namespace: str) -> tuple[JsonObject, ...]:
    """The manifests of the members of a group; none of an object of its own. Raises `BadInput`."""
    if MEMBERS not in manifest:
        return ()
    where, members = f"spec.job.manifest.{MEMBERS}", manifest[MEMBERS]
    if not isinstance(members, list) or not 0 < len(members) <= MAX_PODS:
        found = len(members) if isinstance(members, list) else "no list"
        raise BadInput(f"{where}: expected 1 to {MAX_PODS} pods, found {found}")
    names: set[str] = set()
    kind = (manifest.get("apiVersion"), manifest.get("kind"))
    for index, member in enumerate(members):
        metadata = member.get("metadata") if isinstance(member, dict) else None
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not isinstance(metadata, dict) or not isinstance(name, str) or not name:
            raise BadInput(f"{where}[{index}]: expected a pod with a name")
        if (member.get("apiVersion"), member.get("kind")) != kind:
            raise BadInput(f"{where}[{index}]: expected the kind of the group, {kind[1]}")
        if metadata.get("namespace") != namespace:
            raise BadInput(f"{where}[{index}]: the pod is not of the namespace of its workload")
        if name in names:
            raise BadInput(f"{where}[{index}]: the name {name} is there twice")
        names.add(name)
    return tuple(members)


def remote_group(
    jobs: AssignedPods,
    manifest: JsonObject,
    members: tuple[JsonObject, ...],
    *,
    assignment: str,
    epoch: int,
    manager_uid: str,
    reported: ReportedStatus,
    stopping: bool,
    marked: Callable[[JsonObject], JsonObject],
    refusal: Obstacle | None = None,
) -> RemoteGroup:
    """The group of an assignment; `stopping`: its pods are being stopped, so that one that is gone has not failed.

    `marked` gives the manifest of a pod as it is created here. `refusal` is why the cluster refuses its missing pods,
    which is shown as their status.
    """
    seen: dict[str, JsonObject] = {}
    replaced: list[tuple[Key, str]] = []
    former: list[JsonObject] = []
    leaving: set[str] = set()
    others: list[JsonObject] = []
    wanted = {str(member["metadata"]["name"]): _uid(member) for member in members}
    for key in sorted(jobs.of_assignment(assignment)):
        pod = jobs.get(key)
        if pod is None:
            continue
        annotations = pod["metadata"].get("annotations") or {}
        if jobs.manager_uid(pod) != manager_uid or marked_epoch(annotations) != epoch:
            others.append(pod)
        elif wanted.get(key.name) != _uid(pod):
            leaving.add(key.name)
            if is_active(pod):
                former.append({**pod, REPLACED: True})
            if "deletionTimestamp" not in pod["metadata"]:
                replaced.append((key, str(pod["metadata"]["uid"])))
        else:
            seen[key.name] = pod
    if others:
        # The pods of another dispatch have to be gone first.
        return RemoteGroup(job=_job(manifest, others, others[0]), present=_living(others))
    runs = reported.epoch == epoch and reported.phase is AssignmentPhase.RUNNING
    known = _known(reported) if reported.epoch == epoch else {}
    ended = {pod: status for pod, status in known.items() if ended_phase(status)}
    deleting = any(map(_is_deleting, seen.values()))
    missing, composed = [], []
    for member in members:
        name, uid = _named(member)
        pod, status = seen.get(name), member.get("status")
        if pod is not None:
            pod = _of_whole_group(pod, member)
            composed.append(_while_deleted(pod, known.get((name, uid))) if _is_deleting(pod) else pod)
        elif ended_phase(status):
            composed.append(member)
        elif (name, uid) in ended:
            composed.append({**member, "status": ended[name, uid]})
        elif (name, uid) in known and seen and not stopping:
            composed.append({**member, "status": known[name, uid] if deleting else _POD_DELETED})
        else:
            if name not in leaving and (name, uid) not in known:
                missing.append(member)
            composed.append(member if refusal is None else {**member, "status": _refused(refusal)})
    found = RemoteGroup(job=None, missing=tuple(missing), replaced=tuple(replaced))
    if not seen and (missing or not all(ended_phase(each.get("status")) for each in composed)):
        renewed = runs and not stopping and refusal is None and PodGroup(members).is_serving
        if renewed and not any(pod in known and pod not in ended for pod in map(_named, members)):
            return replace(found, job=_job(manifest, [*composed, *former], marked(members[0])))
        if former and (runs or stopping):
            return RemoteGroup(job=_job(manifest, former, former[0]), present=_living(former), replaced=tuple(replaced))
        return found
    first = next(iter(seen.values()), composed[0])
    if stopping:
        return replace(
            found, job=_job(manifest, [*composed, *former], first), present=_living([*seen.values(), *former])
        )
    return replace(found, job=_job(manifest, composed, first), present=_living(seen.values()))


def _job(manifest: JsonObject, members: list[JsonObject], first: JsonObject) -> JsonObject:
    """The group as one object, with the annotations of a pod by which it is known, and a uid that stays."""
    metadata: JsonObject = first["metadata"]
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    present = [each["metadata"] for each in members if each["metadata"].get("uid")]
    deleted = [each["deletionTimestamp"] for each in present if "deletionTimestamp" in each]
    identity = "\n".join(annotations.get(key, "") for key in _IDENTITY)
    own = {
        "name": (manifest.get("metadata") or {}).get("name"),
        "namespace": metadata.get("namespace"),
        "labels": metadata.get("labels") or {},
        "annotations": annotations,
        "uid": hashlib.blake2b(identity.encode(), digest_size=_UID_LENGTH).hexdigest(),
    }
    if present and len(deleted) == len(present):
        own["deletionTimestamp"] = deleted[0]
    head: JsonObject = {name: manifest[name] for name in ("apiVersion", "kind") if name in manifest}
    return {**head, "metadata": own, MEMBERS: members}


def _known(reported: ReportedStatus) -> dict[tuple[str, str], JsonObject]:
    """The last status of each pod that existed, by its name and its uid on the hub."""
    if reported.job_status is None:
        return {}
    try:
        statuses = recorded_statuses(reported.job_status)
    except BadInput:
        return {}  # by an agent that knew no groups
    return {pod: status for pod, status in statuses.items() if not _was_refused(status)}


def _is_deleting(pod: JsonObject) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def _while_deleted(pod: JsonObject, reported: JsonObject | None) -> JsonObject:
    """The pod with the status that is reported meanwhile: what a kubelet says of a pod that it stops is no end."""
    return pod if reported is None else {**pod, REPORTED: reported}


def _of_whole_group(pod: JsonObject, member: JsonObject) -> JsonObject:
    """The pod with the total count of the group on the hub: in a queue of the worker it has another one."""
    total = (member["metadata"].get("annotations") or {}).get(POD_GROUP_TOTAL_COUNT_ANNOTATION)
    annotations = pod["metadata"].get("annotations") or {}
    if annotations.get(POD_GROUP_TOTAL_COUNT_ANNOTATION) == total or total is None:
        return pod
    own = {**annotations, POD_GROUP_TOTAL_COUNT_ANNOTATION: total}
    return {**pod, "metadata": {**pod["metadata"], "annotations": own}}


def _refused(refusal: Obstacle) -> JsonObject:
    return {"phase": "Pending", "reason": refusal.reason, "message": refusal.message}


def _was_refused(status: JsonObject) -> bool:
    return status.get("phase") == "Pending" and bool(status.get("reason"))


def _living(pods: Iterable[JsonObject]) -> tuple[tuple[Key, str], ...]:
    found = (pod["metadata"] for pod in pods if "deletionTimestamp" not in pod["metadata"])
    return tuple((Key(each["namespace"], each["name"]), str(each["uid"])) for each in found)


def _named(member: JsonObject) -> tuple[str, str]:
    return str(member["metadata"]["name"]), _uid(member)


def _uid(pod: JsonObject) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(ORIGIN_UID_ANNOTATION, ""))
