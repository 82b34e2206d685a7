# SPDX-License-Identifier: Apache-2.0
"""Pods on a worker: what is sent of a pod or of a group, and the status that comes back.

A group is one remote job: its manifest has the manifests of its pods in `members`, and its status has the status of
each pod, by the name and the uid of the pod on the hub. Promises that both have an upper size, and that a status is
only shown on the pod that it names. Addresses of the worker are not shown: on the hub a Service would send traffic
to them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import orjson

from multikueue.api.constants import (
    ADMISSION_SCHEDULING_GATE,
    ASSIGNMENT_ANNOTATION,
    MANAGED_LABEL,
    MANAGED_LABEL_VALUE,
    ORIGIN_UID_ANNOTATION,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    REMOTE_POD_LABEL,
    ROLE_HASH_ANNOTATION,
    SCHEDULING_GATES,
    WORKER_WORKLOAD_POD_LABEL,
)
from multikueue.api.defaulting import default_held
from multikueue.api.objects import JsonObject
from multikueue.api.resource import PODS
from multikueue.core.errors import BadInput
from multikueue.core.merge_patch import merge_patch
from multikueue.core.printable import excerpt
from multikueue.core.timestamps import format_time
from multikueue.jobs.declared.copies import local_metadata, remote_metadata, unmarked_template
from multikueue.jobs.framework.pod_templates import injected, restored_spec
from multikueue.jobs.framework.protocol import JobWrite, PodSetInfo, RemoteIdentity
from multikueue.jobs.kinds.pod_group import PodGroup, has_ended, has_succeeded, is_deleting, role_of, values_of
from multikueue.jobs.kinds.pod_roles import counted_in

MEMBERS: Final = "members"
"""The field of a composed object, and of the manifest of a group, that has the pods."""
REPORTED: Final = "reported"
"""The field of a member that is being deleted with the status that was reported last."""
REPLACED: Final = "replaced"
"""The field of a remote pod that the hub has no longer, and whose status is not reported."""
MAX_PODS: Final = 256
MAX_BYTES: Final = 512 * 1024
"""Of the manifests of a group; the object that carries them has to stay below 1.5 MB."""
MAX_STATUS_BYTES: Final = 32 * 1024
MAX_STATUSES_BYTES: Final = 384 * 1024
_PHASES: Final = frozenset({"Pending", "Running", "Succeeded", "Failed", "Unknown"})
_ENDED: Final = frozenset({"Succeeded", "Failed"})
_TEXTS: Final = ("reason", "message", "startTime")
_CONTAINERS: Final = {"containerStatuses": "containers", "initContainerStatuses": "initContainers"}
_CONTAINER_FIELDS: Final = (
    "name",
    "image",
    "imageID",
    "containerID",
    "ready",
    "started",
    "restartCount",
    "state",
    "lastState",
)
_CONDITION_FIELDS: Final = ("type", "status", "reason", "message", "lastTransitionTime", "lastProbeTime")
_SHOWN: Final = ("phase", "conditions", *_TEXTS, *_CONTAINERS)
_MOST_CONDITIONS: Final = 32
_MOST_TEXT: Final = 1024
_SCHEDULED: Final = "PodScheduled"
_GATED_REASON: Final = "SchedulingGated"
_NOT_SENT: Final = frozenset({"nodeName", "priority", "preemptionPolicy", "ephemeralContainers"})
"""Fields of a pod spec that the hub's API server or a debugging user sets."""
_TOKEN_VOLUME: Final = "kube-api-access-"
_TOKEN_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_POD: Final[JsonObject] = {"apiVersion": PODS.api_version, "kind": PODS.kind}


def problem(pods: Sequence[JsonObject], *, total: int) -> str:
    """Why these pods of one group cannot be sent to a worker; empty if they can."""
    count = max(total, len(pods))
    if count > MAX_PODS:
        return f"the group has {count} pods, and at most {MAX_PODS} of one group are sent to a worker cluster"
    size = sum(len(orjson.dumps([pod.get("spec"), pod["metadata"].get("annotations")])) for pod in pods)
    if size > MAX_BYTES:
        return f"the pods of the group have {size} bytes, and at most {MAX_BYTES} are sent to a worker cluster"
    return ""


def digest(pods: Iterable[JsonObject]) -> str:
    """Equal as long as the same pods of a group are sent."""
    living = sorted((str(pod["metadata"]["name"]), str(pod["metadata"]["uid"])) for pod in pods if not is_deleting(pod))
    return hashlib.blake2b(orjson.dumps(living), digest_size=16).hexdigest()


def remote_pod(pod: JsonObject, info: PodSetInfo | None, *, identity: RemoteIdentity) -> JsonObject:
    """One pod as it is created on a worker: without gate, owner, finalizer and node. Raises `InjectionConflict`."""
    template = {"metadata": remote_metadata(pod, identity), "spec": _spec(pod)}
    if info is not None:
        template = injected(template, info)
    metadata: JsonObject = template["metadata"]
    labels = {key: value for key, value in metadata["labels"].items() if key != MANAGED_LABEL}
    annotations = {**metadata["annotations"], ORIGIN_UID_ANNOTATION: str(pod["metadata"].get("uid", ""))}
    metadata = {**metadata, "labels": {**labels, WORKER_WORKLOAD_POD_LABEL: "true"}, "annotations": annotations}
    return {**_POD, "metadata": metadata, "spec": template["spec"]}


def remote_group(
    job: JsonObject,
    infos: Sequence[PodSetInfo],
    *,
    identity: RemoteIdentity,
    role: Callable[[JsonObject], str] = role_of,
) -> JsonObject:
    """A group as it is sent to a worker: the pods that quota is held for, and those of them that have ended.

    `role` is the name of the pod set of a pod. Raises `InjectionConflict`.
    """
    by_role = {info.name: info for info in infos}
    left = {info.name: info.count for info in infos}
    group = PodGroup(job[MEMBERS])
    places = _places(group)
    members = []
    for pod in (*group.succeeded, *group.living, *group.failed):
        info = by_role.get(role(pod)) or (infos[0] if len(infos) == 1 else None)
        if info is None or is_deleting(pod):
            continue
        if not has_succeeded(pod) and (left[info.name] <= 0 or places <= 0):
            continue
        made = remote_pod(pod, info, identity=identity)
        if has_ended(pod):
            made["status"] = {"phase": pod["status"]["phase"]}
        else:
            # Not for a pod that has succeeded: quota that is reserved later is not for it. A failed one is replaced.
            left[info.name] -= 1
            places -= 1
        members.append(made)
    return {**_POD, "metadata": remote_metadata(job, identity), MEMBERS: members}


def _places(group: PodGroup) -> int:
    """How many pods of the group may run, whatever quota is held for."""
    try:
        return group.total - (0 if group.is_serving else len(group.succeeded))
    except BadInput:
        return len(group.living)  # its pods contradict each other, which `problem` is about


def queued_pod(manifest: JsonObject, pod_sets: Sequence[JsonObject]) -> JsonObject:
    """A remote pod for the queues of the worker: gated, managed, and without what the hub's flavors added.

    The total count of a group is that of the pod sets: pods that have succeeded before are not sent.
    """
    (counted,) = counted_in((manifest,), pod_sets)
    role = role_of(counted)
    found = next((each for each in pod_sets if each.get("name") == role), pod_sets[0] if len(pod_sets) == 1 else None)
    spec: JsonObject = manifest["spec"]
    if found is not None:
        original = _ungated((found.get("template") or {}).get("spec") or {})  # Kueue's have the gates of the pod
        spec = _with_token(restored_spec(spec, original), original)
    gates = [*(spec.get("schedulingGates") or ()), {"name": ADMISSION_SCHEDULING_GATE}]
    labels = {**values_of(manifest, "labels"), MANAGED_LABEL: MANAGED_LABEL_VALUE}
    unmarked = unmarked_template({"metadata": {"labels": labels, "annotations": values_of(manifest, "annotations")}})
    own = unmarked["metadata"]
    annotations = dict(own.get("annotations") or {})
    if POD_GROUP_TOTAL_COUNT_ANNOTATION in annotations and pod_sets:
        annotations[POD_GROUP_TOTAL_COUNT_ANNOTATION] = str(sum(each.get("count", 1) for each in pod_sets))
        if found is not None:
            annotations[ROLE_HASH_ANNOTATION] = str(found.get("name"))  # Kueue would compute another name
    metadata = {
        **manifest["metadata"],
        "labels": {**own.get("labels", {}), WORKER_WORKLOAD_POD_LABEL: "true"},
        "annotations": annotations,
    }
    return {**manifest, "metadata": metadata, "spec": {**spec, "schedulingGates": gates}}


def local_pod(remote: JsonObject) -> JsonObject:
    """The pod as its user would submit it again, held as by the webhook, which may not select its namespace."""
    metadata = unmarked_template({"metadata": local_metadata(remote)})["metadata"]
    own = {field: dict(metadata.get(field) or {}) for field in ("labels", "annotations")}
    own["annotations"].pop(ORIGIN_UID_ANNOTATION, None)
    own["labels"].pop(REMOTE_POD_LABEL, None)
    return default_held({**_POD, "metadata": {**metadata, **own}, "spec": _spec(remote)})


def pods_selector(job: JsonObject) -> str:
    """The label selector of the pods of a remote job; empty for a pod that no agent created."""
    assignment = values_of(job, "annotations").get(ASSIGNMENT_ANNOTATION, "")
    return f"{REMOTE_POD_LABEL}={remote_pods_label(assignment)}" if assignment else ""


def remote_pods_label(assignment: str) -> str:
    """The value of the label of the pods of one assignment."""
    return hashlib.blake2b(assignment.encode(), digest_size=16).hexdigest()


def reported_status(pod: JsonObject) -> JsonObject:
    """The status of a remote pod as it is reported; without details of containers if it is too large."""
    status = shown_status(pod.get("status") or {}, pod)
    if _size(status) <= MAX_STATUS_BYTES:
        return status
    return {name: value for name, value in status.items() if name not in (*_CONTAINERS, "conditions")}


def is_reported(pod: JsonObject) -> bool:
    """Whether a member of a remote group has a status to report: it exists or has ended, and the hub still has it."""
    if REPLACED in pod:
        return False
    return REPORTED in pod if is_deleting(pod) else bool(pod["metadata"].get("uid") or pod.get("status"))


def reported_statuses(pods: Iterable[tuple[str, str, JsonObject]]) -> JsonObject:
    """The status of each pod of a group, given with its name and its uid on the hub; shortened if all are too large."""
    entries: list[JsonObject] = [{"name": name, "uid": uid, "status": status} for name, uid, status in pods]
    if _size(entries) > MAX_STATUSES_BYTES:
        entries = [{**entry, "status": _shortened(entry["status"])} for entry in entries]
    return {"pods": entries}


def _shortened(status: JsonObject) -> JsonObject:
    return {name: status[name] for name in ("phase", "reason", "startTime") if name in status}


def recorded_statuses(status: object) -> dict[tuple[str, str], JsonObject]:
    """The statuses of `reported_statuses`, by name and uid. Raises `BadInput`."""
    if not isinstance(status, Mapping):
        raise BadInput(f"expected the status of a pod group, found {excerpt(status)}")
    entries = status.get("pods")
    if not isinstance(entries, list):
        raise BadInput(f"pods: expected a list, found {excerpt(entries)}")
    if len(entries) > MAX_PODS:
        raise BadInput(f"pods: expected at most {MAX_PODS} statuses, found {len(entries)}")
    found: dict[tuple[str, str], JsonObject] = {}
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("status"), dict):
            raise BadInput(f"pods[{index}]: expected the status of a pod, found {excerpt(entry)}")
        found[str(entry.get("name")), str(entry.get("uid"))] = entry["status"]
    return found


def has_other_pods(group: PodGroup, status: JsonObject) -> bool:
    """Whether pods of the group are missing in the status of a remote one, and without them too few have succeeded."""
    try:
        total, found = group.total, recorded_statuses(status)
    except BadInput:
        return False  # reported where the status is shown
    living = [found.get((pod["metadata"]["name"], str(pod["metadata"]["uid"]))) for pod in group.living]
    succeeded = [each for each in living if each is not None and each.get("phase") == "Succeeded"]
    return len(group.succeeded) + len(succeeded) < total and None in living


def shown_status(status: object, pod: JsonObject) -> JsonObject:
    """What is shown of the status of a remote pod: known fields, of containers that `pod` has. Raises `BadInput`."""
    if not isinstance(status, Mapping):
        raise BadInput(f"expected a pod status, found {excerpt(status)}")
    phase = status.get("phase", "Pending")
    if phase not in _PHASES:
        raise BadInput(f"phase: expected one of {', '.join(sorted(_PHASES))}, found {excerpt(phase)}")
    shown: JsonObject = {"phase": phase}
    for name in _TEXTS:
        if status.get(name):
            shown[name] = str(status[name])[:_MOST_TEXT]
    conditions = [_fields(each, _CONDITION_FIELDS) for each in _objects(status, "conditions")[:_MOST_CONDITIONS]]
    if conditions:
        shown["conditions"] = conditions
    for name, containers in _CONTAINERS.items():
        named = {each.get("name") for each in (pod.get("spec") or {}).get(containers) or ()}
        found = {each.get("name"): _fields(each, _CONTAINER_FIELDS) for each in _objects(status, name)}
        kept = [each for key, each in found.items() if key in named]
        if kept:
            shown[name] = kept
    return shown


def mirrored(pod: JsonObject, remote: object) -> JobWrite | None:
    """The write that shows the remote status on a pod that is gated on the hub; None if it shows it. Raises `BadInput`.

    Until the remote pod is scheduled, the pod keeps its own condition, by which autoscalers of the hub leave it alone.
    """
    if has_ended(pod) or is_deleting(pod):
        return None
    size = _size(remote)
    if size > MAX_STATUS_BYTES:
        name = excerpt(pod["metadata"]["name"])
        raise BadInput(f"status of pod {name}: expected at most {MAX_STATUS_BYTES} bytes, found {size}")
    new = shown_status(remote, pod)
    conditions: list[JsonObject] = new.get("conditions") or []
    if not any(each.get("type") == _SCHEDULED and each.get("status") == "True" for each in conditions):
        own = [each for each in _objects(pod.get("status") or {}, "conditions") if each.get("type") == _SCHEDULED]
        new["conditions"] = [*own, *(each for each in conditions if each.get("type") != _SCHEDULED)]
    return _status_write(pod, new)


def unmirrored(pod: JsonObject, *, now: datetime) -> JobWrite | None:
    """The write that shows a pod as gated again, after its remote pod is gone; None if it is shown so, or has ended."""
    if has_ended(pod) or is_deleting(pod):
        return None
    old: JsonObject = pod.get("status") or {}
    own = next((each for each in _objects(old, "conditions") if each.get("type") == _SCHEDULED), None)
    if own is None or own.get("reason") != _GATED_REASON:
        own = {
            "type": _SCHEDULED,
            "status": "False",
            "reason": _GATED_REASON,
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastTransitionTime": format_time(now),
        }
    return _status_write(pod, {"phase": "Pending", "conditions": [own]})


def _status_write(pod: JsonObject, shown: JsonObject) -> JobWrite | None:
    old: JsonObject = pod.get("status") or {}
    patch = merge_patch(old, {**{name: value for name, value in old.items() if name not in _SHOWN}, **shown})
    return JobWrite(body={"status": patch}, subresource="status", target=pod) if patch else None


def _spec(pod: JsonObject) -> JsonObject:
    """The spec without what the API server of the hub has added, and without the gates of admission."""
    spec = {name: value for name, value in (pod.get("spec") or {}).items() if name not in _NOT_SENT}
    return without_token_volume(_ungated(spec))  # the API server of the worker mounts a token of its own


def _ungated(spec: JsonObject) -> JsonObject:
    """The spec without the gates of admission."""
    gates = [each for each in spec.get("schedulingGates") or () if each.get("name") not in SCHEDULING_GATES]
    others = {name: value for name, value in spec.items() if name != "schedulingGates"}
    return {**others, **({"schedulingGates": gates} if gates else {})}


def without_token_volume(spec: JsonObject) -> JsonObject:
    """A pod spec without the token volume that an API server has added, which has another name in each pod."""
    added = {str(each.get("name")) for each in spec.get("volumes") or () if _is_token(each)}
    if not added:
        return spec
    kept = {**spec, "volumes": [each for each in spec["volumes"] if each.get("name") not in added]}
    for field in ("initContainers", "containers"):
        if field in kept:
            kept[field] = [_without_token(each, added) for each in kept[field]]
    return kept


def _with_token(spec: JsonObject, original: JsonObject) -> JsonObject:
    """With the token as on the hub: the queues of the worker compare containers with those of the Workload.

    A token that the API server of the worker adds is mounted from a volume of another name.
    """
    volumes = [each for each in original.get("volumes") or () if _is_token(each)]
    if not volumes:
        return {"automountServiceAccountToken": False, **spec}
    names = {each["name"] for each in volumes}
    given: JsonObject = {**spec, "volumes": [*(spec.get("volumes") or ()), *volumes]}
    for field in ("initContainers", "containers"):
        mounts = {each.get("name"): each.get("volumeMounts") or [] for each in original.get(field) or ()}
        if field in given:
            given[field] = [_with_mounts(each, mounts.get(each.get("name"), ()), names) for each in given[field]]
    return given


def _with_mounts(container: JsonObject, mounts: Sequence[JsonObject], volumes: set[str]) -> JsonObject:
    added = [each for each in mounts if each.get("name") in volumes and each.get("mountPath") == _TOKEN_PATH]
    return {**container, "volumeMounts": [*(container.get("volumeMounts") or ()), *added]} if added else container


def _is_token(volume: JsonObject) -> bool:
    return str(volume.get("name")).startswith(_TOKEN_VOLUME) and "projected" in volume


def _without_token(container: JsonObject, volumes: set[str]) -> JsonObject:
    mounts = [
        each
        for each in container.get("volumeMounts") or ()
        if each.get("name") not in volumes or each.get("mountPath") != _TOKEN_PATH
    ]
    kept = {name: value for name, value in container.items() if name != "volumeMounts"}
    return {**kept, **({"volumeMounts": mounts} if mounts else {})}


def _fields(value: Mapping[str, Any], names: Iterable[str]) -> JsonObject:
    found = {name: value[name] for name in names if value.get(name) is not None}
    if isinstance(found.get("message"), str):
        found["message"] = found["message"][:_MOST_TEXT]
    return found


def _objects(value: Mapping[str, Any], name: str) -> list[JsonObject]:
    found = value.get(name) or []
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise BadInput(f"{name}: expected a list of objects, found {excerpt(found)}")
    return found


def _size(value: object) -> int:
    return len(orjson.dumps(value))


def ended_phase(status: Mapping[str, Any] | None) -> bool:
    """Whether a pod with this status has ended."""
    return bool(status) and (status or {}).get("phase") in _ENDED
