# SPDX-License-Identifier: Apache-2.0
"""The spec of an assignment, read from the mailbox."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from multikueue.api.constants import PartitionPolicy
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import Intent
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.parsing import MAX_INT32, parse_unsigned
from multikueue.dispatch.protocol.wire import assigned_epoch, intent_of
from multikueue.dispatch.sending.sent_objects import SentReference, references_of
from multikueue.dispatch.worker.assignment_state import AssignmentFacts
from multikueue.dispatch.worker.demands import demands
from multikueue.dispatch.worker.dependencies import Dependency, dependencies, sendable_objects
from multikueue.dispatch.worker.ledger import Demand
from multikueue.jobs.framework.capabilities import GroupedKind, PodSetsKind
from multikueue.jobs.framework.recovery import is_same_work
from multikueue.provisioning.delegated import settings_of
from multikueue.provisioning.settings import ProvisioningSettings
from worker_agent.local.jobs import GROUP_PREFIX, RemoteJobKey, RemoteJobs
from worker_agent.local.queueing.queued_work import CloneSpec
from worker_agent.local.remote_group import members_of


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentSpec:
    """What an assignment wants on this cluster; `jobs` is None for a kind that the agent does not support."""

    facts: AssignmentFacts
    uid: str
    manager_uid: str
    awaits_start: bool
    """Whether the hub waits for the start of the job, so that it is not held back (ADR 0025)."""
    job: Key
    manifest: JsonObject
    jobs: RemoteJobs | None
    members: tuple[JsonObject, ...]
    """The manifests of the members of a group; none for a job of its own."""
    demands: tuple[Demand, ...]
    dependencies: tuple[Dependency, ...]
    """The objects without which its pods do not start."""
    sent: tuple[SentReference, ...]
    """What the hub sends of the objects that its pods name, or why it does not."""
    clone: CloneSpec
    provisioning: Mapping[str, ProvisioningSettings]
    """The provisioning checks whose capacity is provisioned here before the job is created."""
    adopts: tuple[str, str] | None
    """Manager uid and job uid of the remote job that may be adopted."""

    def is_same_work(self, job: JsonObject) -> bool:
        """Whether a job on this cluster does what the job of the assignment would."""
        return self.jobs is not None and is_same_work(self.jobs.integration, job, self.manifest)

    def with_pod_sets(self, job: JsonObject) -> JsonObject:
        """The job as it is or will be, with the pod sets of the Workload if that says more of them."""
        return _with_pod_sets(job, self.jobs, self.clone)

    @property
    def named(self) -> RemoteJobKey:
        """The job among those of all kinds."""
        if self.jobs is not None:
            return self.jobs.named(self.job)
        group, _, _ = str(self.manifest.get("apiVersion", "")).rpartition("/")
        return RemoteJobKey(f"{self.manifest.get('kind', '')}.{group}", self.job)


def job_kind(obj: JsonObject, *, kinds: Mapping[tuple[str, str], RemoteJobs]) -> RemoteJobs | None:
    """The kind of the job of an assignment that may be unreadable; None if the agent does not serve it."""
    reference: JsonObject = obj["spec"].get("job") or {}
    group, _, _ = str(reference.get("apiVersion", "")).rpartition("/")
    return kinds.get((group, str(reference.get("kind", ""))))


def read_assignment(
    obj: JsonObject, *, kinds: Mapping[tuple[str, str], RemoteJobs], permits_fenced_work: Callable[[float], bool]
) -> AssignmentSpec:
    """The spec of the assignment; `kinds` are the job kinds by group and kind. Raises `BadInput`."""
    spec: JsonObject = obj["spec"]
    reference: JsonObject = spec.get("job") or {}
    manifest: JsonObject = reference.get("manifest") or {}
    jobs = job_kind(obj, kinds=kinds)
    fenced = spec.get("partitionPolicy") == PartitionPolicy.FENCED
    intent, provisioning = intent_of(obj), settings_of(spec.get("provisioning"))
    if intent is Intent.PROVISION and not provisioning:
        raise BadInput("spec.provisioning: expected the checks to provision for, with intent Provision")
    namespace, name = str(spec["workload"]["namespace"]), str(reference.get("name", ""))
    grouped = jobs is not None and isinstance(jobs.integration, GroupedKind)
    members = members_of(manifest, namespace=namespace) if grouped else ()
    clone = CloneSpec.of(obj)
    pod_sets = () if jobs is None else jobs.integration.pod_sets(_with_pod_sets(manifest, jobs, clone))
    succeeded = _succeeded(jobs, manifest) if jobs is not None and members else {}
    return AssignmentSpec(
        facts=AssignmentFacts(
            name=obj["metadata"]["name"],
            epoch=assigned_epoch(obj),
            intent=intent,
            # The hub counts with the duration in the assignment, whatever duration the agent was started with.
            may_run=not fenced or permits_fenced_work(_lease_seconds(spec)),
        ),
        uid=obj["metadata"]["uid"],
        manager_uid=str(spec["managerUID"]),
        awaits_start=spec.get("awaitsStart") is True,
        job=Key(namespace, f"{GROUP_PREFIX}{name}" if members else name),
        manifest=manifest,
        jobs=jobs,
        members=members,
        demands=demands(_remaining(pod_sets, succeeded)),
        dependencies=dependencies(pod_sets),
        sent=_sent(spec, pod_sets),
        clone=_without_succeeded(clone, succeeded),
        provisioning=provisioning,
        adopts=_adopts(spec.get("adopts")),
    )


def _with_pod_sets(job: JsonObject, jobs: RemoteJobs | None, clone: CloneSpec) -> JsonObject:
    if jobs is None or not clone.spec:
        return job
    kind = jobs.integration
    return kind.with_pod_sets(job, clone.spec.get("podSets") or ()) if isinstance(kind, PodSetsKind) else job


def _succeeded(jobs: RemoteJobs, manifest: JsonObject) -> dict[str, int]:
    """How many pods of each pod set of a group have succeeded already, on this cluster or on another one."""
    return {each.name: each.count for each in jobs.integration.reclaimable(manifest)}


def _remaining(pod_sets: Sequence[JsonObject], succeeded: Mapping[str, int]) -> list[JsonObject]:
    """The pod sets with the pods that have to run."""
    return [
        {**each, "count": max(0, each.get("count", 1) - succeeded[each["name"]])}
        if each.get("name") in succeeded
        else each
        for each in pod_sets
    ]


def _without_succeeded(clone: CloneSpec, succeeded: Mapping[str, int]) -> CloneSpec:
    """The clone for the pods that have to run: the others never come, and the worker's engine would wait for them."""
    if not succeeded:
        return clone
    left = [each for each in _remaining(clone.spec.get("podSets") or (), succeeded) if each.get("count", 1)]
    return replace(clone, spec={**clone.spec, "podSets": left}) if left else clone


def _sent(spec: JsonObject, pod_sets: Sequence[JsonObject]) -> tuple[SentReference, ...]:
    """Of what the hub lists only what the pods name: nothing else is written here, whatever the hub sends."""
    references = references_of(spec)
    if not references:
        return ()
    sendable = sendable_objects(pod_sets)
    named, optional = frozenset(sendable.names), frozenset(sendable.optional)
    return tuple(replace(each, optional=each.needed in optional) for each in references if each.needed in named)


def _lease_seconds(spec: JsonObject) -> float:
    """The lease duration that the hub counts with; infinite for an assignment without one."""
    seconds = spec.get("leaseSeconds")
    return parse_unsigned(seconds, field="spec.leaseSeconds", maximum=MAX_INT32) if seconds else math.inf


def _adopts(adoption: JsonObject | None) -> tuple[str, str] | None:
    return None if adoption is None else (str(adoption["managerUID"]), str(adoption["jobUID"]))
