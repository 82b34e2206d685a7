# SPDX-License-Identifier: Apache-2.0
"""The assignment that a workload and its job make (`docs/spec/multikueue.md §5.3`).

Owns the body of a RemoteAssignment and its fingerprint. Pure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from multikueue.api.constants import (
    CLUSTER_LABEL,
    JOB_UID_LABEL,
    MULTIKUEUE_PREEMPTION_GATE,
    ORIGIN_LABEL,
    PARTITION_POLICY_ANNOTATION,
    VERDICTS_ANNOTATION,
    GatePosition,
    PartitionPolicy,
)
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import Intent, assignment_name, mailbox_namespace
from multikueue.api.resource import REMOTE_ASSIGNMENTS
from multikueue.dispatch.hub.facts import Adoption
from multikueue.dispatch.protocol.propagated_metadata import propagated_annotations, propagated_labels
from multikueue.dispatch.protocol.wire import FINGERPRINT_ANNOTATION, cluster_label
from multikueue.jobs.framework.capabilities import ForwardingKind, RuntimeKind, SentGroups, SentSpec
from multikueue.jobs.framework.pod_templates import pod_set_infos
from multikueue.jobs.framework.protocol import JobIntegration, PodSetInfo, RemoteIdentity
from multikueue.jobs.framework.slices import assigned_as, is_elastic, sizes_of

_GATE: Final = {"name": MULTIKUEUE_PREEMPTION_GATE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """What all assignments of one dispatch share."""

    workload: JsonObject
    job: JsonObject
    integration: JobIntegration
    flavors: Mapping[str, JsonObject]
    origin: str
    manager_uid: str
    epoch: int
    lease_seconds: int
    awaits_start: bool = False
    adopts: Adoption | None = None
    verdicts: tuple[str, ...] = ()
    provisioning: tuple[JsonObject, ...] = ()
    """The provisioning checks that are delegated, as they are sent."""


def fingerprint(workload: JsonObject, *, members: str = "", forwarded: str = "") -> str:
    """Equal as long as what was sent of the workload does not change.

    `members` is a digest of those of a group, `forwarded` one of the fields of its job that are forwarded.
    """
    admission: JsonObject = (workload.get("status") or {}).get("admission") or {}
    parts = (workload.get("spec"), admission.get("podSetAssignments"), *(each for each in (members, forwarded) if each))
    return hashlib.blake2b(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS), digest_size=16).hexdigest()


def assignment(
    dispatch: Dispatch,
    cluster: str,
    *,
    policy: PartitionPolicy,
    intent: Intent = Intent.RESERVE,
    clones: bool = True,
    gate: GatePosition | None = None,
    provisions: bool = False,
) -> JsonObject:
    """The object for the mailbox of `cluster`, where `policy` applies. Raises `InjectionConflict`.

    `provisions`: its capacity is provisioned before the job runs.

    `clones` is whether a queueing engine there needs a Workload; if not, half of the object is not sent. `gate` is the
    desired position of the clone's preemption gate; None for a clone without one.
    """
    metadata: JsonObject = dispatch.workload["metadata"]
    spec: JsonObject = dispatch.workload["spec"]
    key, uid = assigned_as(dispatch.workload)
    name = assignment_name(key)
    infos = pod_set_infos(dispatch.workload, dispatch.flavors)
    resource = dispatch.integration.traits.sent_as or dispatch.integration.resource
    # With the job's uid a worker's engine would look for an owner that does not exist there.
    labels = {
        key: value for key, value in propagated_labels(metadata.get("labels") or {}).items() if key != JOB_UID_LABEL
    }
    manifest = dispatch.integration.remote_manifest(
        dispatch.job,
        infos,
        identity=RemoteIdentity(
            workload_name=key.name,
            origin=dispatch.origin,
            epoch=dispatch.epoch,
            manager_uid=dispatch.manager_uid,
            cluster=cluster,
            assignment=name,
        ),
    )
    if policy is PartitionPolicy.FENCED:
        # For an agent that starts while it cannot read its mailbox.
        manifest["metadata"]["annotations"][PARTITION_POLICY_ANNOTATION] = str(policy)
    body: JsonObject = {
        "workload": {"namespace": key.namespace, "name": key.name, "uid": uid},
        "origin": dispatch.origin,
        "managerUID": dispatch.manager_uid,
        "epoch": dispatch.epoch,
        "intent": str(intent),
        "queueName": spec.get("queueName", ""),
        "job": {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": manifest["metadata"]["name"],
            "manifest": manifest,
        },
        "podSetAssignments": [_pod_set(dispatch.workload, info) for info in infos],
        "partitionPolicy": str(policy),
        "leaseSeconds": dispatch.lease_seconds,
    }
    if isinstance(dispatch.integration, RuntimeKind):
        # The agent does not read the runtimes of the hub, by which quota is counted.
        body["workloadSpec"] = spec
    if clones:
        # The gates of the hub prevent preemption on the hub; on the worker nothing would open them.
        sent = dispatch.integration.sent_spec(spec) if isinstance(dispatch.integration, SentSpec) else spec
        if dispatch.adopts is None or dispatch.adopts.cluster != cluster:
            sent = _admitted(sent, infos)
        body["workloadSpec"] = sent if gate is None else {**sent, "preemptionGates": [_GATE]}
        body["workloadLabels"] = labels | {ORIGIN_LABEL: dispatch.origin}
        body["workloadAnnotations"] = propagated_annotations(metadata.get("annotations") or {})
    if dispatch.awaits_start:
        body["awaitsStart"] = True
    if provisions:
        body["provisioning"] = list(dispatch.provisioning)
    if gate is not None:
        body["preemptionGate"] = str(gate)
    if dispatch.adopts is not None and dispatch.adopts.cluster == cluster:
        body["adopts"] = {"managerUID": dispatch.adopts.manager_uid, "jobUID": dispatch.adopts.job_uid}
    if spec.get("priority") is not None:
        body["priority"] = spec["priority"]
    return {
        "apiVersion": REMOTE_ASSIGNMENTS.api_version,
        "kind": REMOTE_ASSIGNMENTS.kind,
        "metadata": {
            "name": name,
            "namespace": mailbox_namespace(cluster),
            "labels": {CLUSTER_LABEL: cluster_label(cluster)},
            "annotations": {
                CLUSTER_LABEL: cluster,
                FINGERPRINT_ANNOTATION: fingerprint(
                    dispatch.workload,
                    members=_members(dispatch),
                    forwarded=forwarded_digest(dispatch.integration, dispatch.job),
                ),
                **({VERDICTS_ANNOTATION: "; ".join(dispatch.verdicts)} if dispatch.verdicts else {}),
            },
        },
        "spec": body,
    }


def limited_to_slice(job: JsonObject, workload: JsonObject, kind: JobIntegration) -> JsonObject | None:
    """The job with at most the pods of the slice, of which it may want more by now; None if it cannot be sent so."""
    if not is_elastic(workload) or not isinstance(kind, ForwardingKind):
        return job
    return kind.limited(job, sizes_of(workload["spec"].get("podSets") or ()))


def as_sent(body: JsonObject, current: JsonObject, kind: JobIntegration | None) -> JsonObject:
    """The body that replaces the assignment `current`: a running job keeps the fields that are not forwarded.

    Otherwise an agent, which does not know the feature gates of the hub, would forward what goes along with it.
    """
    if kind is None or not isinstance(kind, ForwardingKind):
        return body
    spec, sent = body["spec"], current["spec"]
    runs = sent.get("intent") == str(Intent.RUN)
    if not runs or any(sent.get(name) != spec[name] for name in ("workload", "epoch")):
        return body
    manifest = kind.as_sent(spec["job"]["manifest"], (sent.get("job") or {}).get("manifest") or {})
    return {**body, "spec": {**spec, "job": {**spec["job"], "manifest": manifest}}}


def forwards(kind: JobIntegration | None) -> bool:
    """Whether fields of a running job of that kind are forwarded."""
    return kind is not None and isinstance(kind, ForwardingKind) and kind.forwards()


def forwarded_digest(kind: JobIntegration | None, job: JsonObject | None) -> str:
    """The digest of the fields of a job that may change while it runs; empty if there are none."""
    if kind is None or job is None or not isinstance(kind, ForwardingKind):
        return ""
    return kind.forwarded_digest(job)


def _members(dispatch: Dispatch) -> str:
    """The digest of the members of a group; empty for a job of its own."""
    integration = dispatch.integration
    return integration.sent_digest(dispatch.job) if isinstance(integration, SentGroups) else ""


def _admitted(spec: JsonObject, infos: Sequence[PodSetInfo]) -> JsonObject:
    """The spec of a Workload with the pods for which the hub has reserved quota, where these are not all.

    The worker does not choose the number once more: its job has that one, and the quota of the hub is for no more.
    """
    counts = {info.name: info.count for info in infos}
    pod_sets: list[JsonObject] = spec.get("podSets") or []
    if not any("minCount" in each and counts.get(each["name"], each["count"]) < each["count"] for each in pod_sets):
        return spec
    reduced = [
        {key: value for key, value in each.items() if key != "minCount"}
        | {"count": counts.get(each["name"], each["count"])}
        for each in pod_sets
    ]
    return {**spec, "podSets": reduced}


def _pod_set(workload: JsonObject, info: PodSetInfo) -> JsonObject:
    admission: JsonObject = workload["status"]["admission"]
    admitted: JsonObject = next((item for item in admission["podSetAssignments"] if item["name"] == info.name), {})
    return {
        "name": info.name,
        "count": info.count,
        "flavors": admitted.get("flavors") or {},
        "resourceUsage": admitted.get("resourceUsage") or {},
        "nodeLabels": dict(info.node_selector),
        "tolerations": list(info.tolerations),
    }
