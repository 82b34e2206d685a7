# SPDX-License-Identifier: Apache-2.0
"""The integration of a job kind that a declaration describes.

Kinds whose declaration does not reach everything derive from `DeclaredIntegration` and replace where their pod sets are
(`places`), what of a pod set needs quota (`counted_template`), or how one is written (`with_template`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Self

from multikueue.api.codec import without_nulls
from multikueue.api.constants import (
    MULTIKUEUE_MANAGED_BY,
    PRIORITY_CLASS_LABEL,
    QUEUE_NAME_LABEL,
)
from multikueue.api.featuregates import Gate
from multikueue.api.objects import JsonObject
from multikueue.api.resource import Resource
from multikueue.api.validation.topology import AnnotatedPodSet
from multikueue.core.errors import BadInput
from multikueue.core.merge_patch import merge_patch
from multikueue.core.printable import excerpt
from multikueue.jobs.declared.checks import condition_of
from multikueue.jobs.declared.copies import local_metadata, marked_template, remote_metadata, unmarked_template
from multikueue.jobs.declared.declaration import DeclarationSpec, FinishRule, JobKindDeclaration
from multikueue.jobs.declared.paths import JobPath, value_at, with_value, without_value
from multikueue.jobs.declared.pod_set_places import PodSetPlace, limited_fields, pod_set_places, with_sizes
from multikueue.jobs.declared.pod_sets import annotated_pod_sets, pod_set, same_pod_set, wanted_pod_sets
from multikueue.jobs.framework.admission import common_refusals
from multikueue.jobs.framework.pod_set_differences import differences
from multikueue.jobs.framework.pod_templates import injected, restored_metadata, restored_spec, same
from multikueue.jobs.framework.protocol import (
    InjectionConflict,
    JobEnd,
    JobWrite,
    PodSetInfo,
    PriorityHint,
    Reclaimable,
    RemoteIdentity,
    StatusSync,
)
from multikueue.jobs.framework.slices import is_elastic
from multikueue.jobs.framework.topology_requests import topology_refusals
from multikueue.jobs.framework.traits import Hold, JobTraits

_NOT_THE_JOB = ("metadata", "status", "apiVersion", "kind")


class DeclaredIntegration:
    """One declared kind."""

    def __init__(self, declaration: JobKindDeclaration) -> None:
        self.declaration = declaration
        self.spec = declaration.spec
        resource = declaration.spec.resource
        self.framework: str = declaration.metadata.name
        self.resource: Resource = Resource(resource.group, resource.versions[0], resource.kind, resource.plural)
        self.traits: JobTraits = _traits(self.spec)
        self.copies_labels: bool = False
        self._withheld: tuple[JobPath, ...] = ()

    @property
    def parents(self) -> tuple[tuple[str, str], ...]:
        """Group and kind of the kinds that own such jobs, which then are not queued themselves."""
        return tuple((each.group, each.kind) for each in self.spec.parents)

    def places(self, job: JsonObject) -> tuple[PodSetPlace, ...]:
        """Where the job's pod sets are. Raises `BadInput`."""
        return pod_set_places(job, self.spec.pod_sets)

    def counted_template(self, job: JsonObject, place: PodSetPlace) -> JsonObject:
        """The template with what the controllers of the kind add to it."""
        return place.template

    def with_template(self, job: JsonObject, place: PodSetPlace, template: JsonObject) -> JsonObject:
        """The job with that template in the place."""
        changed: JsonObject = with_value(job, place.keys, template)
        return changed

    def with_infos(self, job: JsonObject, infos: Sequence[PodSetInfo]) -> JsonObject:
        """The job with what admission adds to its pod sets. Raises `InjectionConflict`."""
        places = self.places(job)
        if not infos:
            return job
        by_name = {info.name: info for info in infos}
        if by_name.keys() != {place.name for place in places}:
            raise InjectionConflict(
                f"the job has the pod sets {_listed(place.name for place in places)}, the Workload has"
                f" {_listed(by_name)}"
            )
        for place in places:
            job = self.with_template(job, place, injected(place.template, by_name[place.name]))
        return job

    def with_original(self, job: JsonObject, pod_sets: Sequence[JsonObject]) -> JsonObject:
        """The job with its pod sets as they are in the Workload; others keep their template."""
        originals = {str(each.get("name")): each.get("template") or {} for each in pod_sets}
        for place in self.places(job):
            if place.name in originals:
                job = self.with_template(job, place, _restored(place.template, originals[place.name]))
        return job

    def managed_by(self, job: JsonObject) -> str:
        """The field of the declaration; empty if the kind has none."""
        return str(self.spec.managed_by.path.value(job) or "") if self.spec.managed_by is not None else ""

    def queue_name(self, job: JsonObject) -> str:
        """The label."""
        return _label(job, QUEUE_NAME_LABEL)

    def is_suspended(self, job: JsonObject) -> bool:
        """Whether the field has the value that means suspended; no for a kind without one."""
        field = self.spec.suspend
        return field is not None and bool(field.path.value(job)) is field.value

    def is_active(self, job: JsonObject) -> bool:
        """As declared; else until it is suspended or has ended."""
        if self.spec.active is not None:
            # Quota of pods that may still run is not released.
            return self.spec.active.answer(job, unreadable=True)
        return not self.is_suspended(job) and self.finished(job) is None

    def may_have_pods(self, job: JsonObject) -> bool:
        """Until it is suspended, has no active pods, and shows what the declaration says of a stopped job."""
        if self.is_active(job) or not self.is_suspended(job):
            return True
        return self.spec.stopped is not None and not self.spec.stopped.answer(job, unreadable=False)

    def pod_sets(self, job: JsonObject) -> tuple[JsonObject, ...]:
        """One for each place in which the job has a template. Raises `BadInput`."""
        return tuple(pod_set(place, self.counted_template(job, place)) for place in self.places(job))

    def priority(self, job: JsonObject) -> PriorityHint:
        """The label, else the job's class, else the first class of its pods."""
        declared = self.spec.priority_class
        try:
            job_class = declared.value(job) if declared is not None else None
            pods = [(place.template.get("spec") or {}).get("priorityClassName") for place in self.places(job)]
        except BadInput:
            # `pod_sets` reports it.
            job_class, pods = None, []
        return PriorityHint(
            workload_class=_label(job, PRIORITY_CLASS_LABEL),
            job_class=str(job_class or ""),
            pod_class=str(next((each for each in pods if each), "")),
        )

    def matches(self, job: JsonObject, workload: JsonObject, infos: Sequence[PodSetInfo] = ()) -> bool:
        """Whether the pod sets are those of the Workload, in its order. Raises `BadInput`."""
        found, wanted = self._compared(job, workload, infos)
        return len(found) == len(wanted) and all(map(same_pod_set, found, wanted))

    def differences(self, job: JsonObject, workload: JsonObject, infos: Sequence[PodSetInfo] = ()) -> tuple[str, ...]:
        """The differences between the job's pods and a Workload that a user created for it. Raises `BadInput`."""
        found, wanted = self._compared(job, workload, infos)
        names, others = ([str(each.get("name")) for each in side] for side in (found, wanted))
        if names != others:
            return (f"podSets: Job has {_listed(names)}, Workload has {_listed(others)}",)
        return tuple(
            text
            for index, (one, other) in enumerate(zip(found, wanted, strict=True))
            for text in differences(one, other, at=f"podSets[{index}]")
        )

    def counted(self, pod_set: JsonObject) -> JsonObject:
        """The pod set as it is compared with that of a Workload."""
        return pod_set

    def _compared(
        self, job: JsonObject, workload: JsonObject, infos: Sequence[PodSetInfo]
    ) -> tuple[list[JsonObject], list[JsonObject]]:
        found, wanted = self.pod_sets(job), wanted_pod_sets(workload, infos)
        return [self.counted(each) for each in found], [self.counted(each) for each in wanted]

    def start(self, job: JsonObject, infos: Sequence[PodSetInfo]) -> JobWrite:
        """Inject and unsuspend; a list of pod sets is written whole. Raises `InjectionConflict`."""
        return JobWrite(body=_patch(job, self._started(job, infos)))

    def stop(self, job: JsonObject, pod_sets: Sequence[JsonObject]) -> JobWrite | None:
        """Suspend, with the original templates; None for a suspended job, and for a kind that cannot be suspended."""
        if self.spec.suspend is None or self.is_suspended(job):
            return None
        return JobWrite(body=_patch(job, self._suspended(self.with_original(job, pod_sets))))

    def finished(self, job: JsonObject) -> JobEnd | None:
        """The first rule that applies."""
        for rule in self.spec.finished:
            if rule.when.answer(job, unreadable=False):
                condition = condition_of(job, rule.when.condition or "") or {}
                time = str(condition.get("lastTransitionTime") or "")
                return JobEnd(reason=rule.reason, message=self._end_message(job, rule, condition), time=time)
        return None

    def _end_message(self, job: JsonObject, rule: FinishRule, condition: JsonObject) -> str:
        if rule.message is not None:
            return str(rule.message.value(job) or "")
        if rule.when.condition:
            return str(condition.get("message") or "")
        how = "finished successfully" if rule.result == "Succeeded" else "failed"
        return f"{self.resource.kind} {how}"

    def pods_ready(self, job: JsonObject) -> bool:
        """As declared, for the job and for each pod set; no if nothing is declared. Raises `BadInput`."""
        checks = [(place.declared.ready, place.scope) for place in self.places(job) if place.declared.ready is not None]
        if self.spec.pods_ready is not None:
            checks.append((self.spec.pods_ready, job))
        return bool(checks) and all(check is not None and check.holds(scope) for check, scope in checks)

    def pods_started(self, job: JsonObject) -> bool:
        """Whether its pods are ready, or it has ended; a status that cannot be read counts as started."""
        try:
            return self.finished(job) is not None or self.pods_ready(job)
        except BadInput:
            return True

    def pod_selector(self, job: JsonObject) -> str:
        """The declared pod labels; empty if there are none."""
        return ",".join(f"{key}={value}" for key, value in sorted(self.pod_labels(job).items()))

    def reclaimable(self, job: JsonObject) -> tuple[Reclaimable, ...]:
        """The pods of each pod set that have ended for good, at most its count. Raises `BadInput`."""
        counts = (
            (place, place.declared.reclaimable.of(place.scope))
            for place in self.places(job)
            if place.declared.reclaimable is not None
        )
        return tuple(Reclaimable(name=place.name, count=min(count, place.count)) for place, count in counts if count)

    def remote_manifest(self, job: JsonObject, infos: Sequence[PodSetInfo], *, identity: RemoteIdentity) -> JsonObject:
        """The started job without owner, the declared fields, and a controller that would not run it."""
        made = self._stripped(self._started(self.with_original(job, ()), infos))
        for place in self.places(made):
            made = self.with_template(made, place, marked_template(place.template))
        return self._manifest(made, remote_metadata(job, identity))

    def queued_manifest(self, manifest: JsonObject, pod_sets: Sequence[JsonObject]) -> JsonObject:
        """Suspended, with the templates as they were before admission."""
        made = self.with_original(manifest, pod_sets)
        for place in self.places(made):
            made = self.with_template(made, place, marked_template(place.template))
        return self._suspended(made)

    def forwards(self) -> bool:
        """Whether a field is declared that changes in the remote job with the job."""
        return bool(self.spec.remote.forwarded)

    def without_forwarding(self) -> Self:
        """The same kind without such fields: they stay as they were sent."""
        remote = self.spec.remote.model_copy(update={"forwarded": ()})
        spec = self.spec.model_copy(update={"remote": remote})
        made = type(self)(self.declaration.model_copy(update={"spec": spec}))
        made._withheld = self.spec.remote.forwarded
        return made

    def forwarded_digest(self, job: JsonObject) -> str:
        """Equal as long as the forwarded fields are; empty for a kind without them."""
        if not self.forwards():
            return ""
        values = [path.value(job) for path in self.spec.remote.forwarded]
        return hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=16).hexdigest()

    def forwarded_patch(self, remote: JsonObject, manifest: JsonObject) -> JsonObject | None:
        """The merge patch of the forwarded fields that differ, and of the size of an elastic job. Raises `BadInput`."""
        changed = _with_fields(remote, self.spec.remote.forwarded, of=manifest)
        if is_elastic(manifest):
            changed = with_sizes(changed, self.places(remote), other=manifest, of=self.places(manifest))
        return merge_patch(remote, changed) or None

    def limited(self, job: JsonObject, sizes: Mapping[str, int]) -> JsonObject | None:
        """The job with at most these pods; None if its fields cannot be set so. Raises `BadInput`."""
        made: JsonObject = limited_fields(job, self.places(job), sizes)
        return made if all(place.count <= sizes.get(place.name, place.count) for place in self.places(made)) else None

    def as_sent(self, manifest: JsonObject, sent: JsonObject) -> JsonObject:
        """With the fields that `without_forwarding` has taken away as they are in `sent`."""
        return _with_fields(manifest, self._withheld, of=sent)

    def local_manifest(self, remote: JsonObject) -> JsonObject:
        """The job that a user would have submitted; what a remote job does not have is lost."""
        made = self._unmarked(self._suspended(self._stripped(self.with_original(remote, ()))))
        if self.spec.managed_by is not None:
            made = with_value(made, self.spec.managed_by.path.keys or (), MULTIKUEUE_MANAGED_BY)
        return self._manifest(made, local_metadata(remote))

    def sync_status(self, local: JsonObject, remote_status: JsonObject) -> StatusSync:
        """The remote status, or the declared fields of it, replace those of the local job until that has ended."""
        if not isinstance(remote_status, dict):
            raise BadInput(f"status: expected an object, found {excerpt(remote_status)}")
        if self.finished(local) is not None:
            return StatusSync()
        old = _status(local)
        # A merge patch cannot write a null, so that one would be written again and again.
        new: JsonObject = without_nulls(remote_status)
        if self.spec.status.shown is not None:
            shown: JsonObject = {"status": old}
            for path in self.spec.status.shown:
                value = path.value({"status": new})
                keys = path.keys or ()
                shown = without_value(shown, keys) if value is None else with_value(shown, keys, value)
            new = shown["status"]
        patch = merge_patch(old, new)
        return StatusSync(write=JobWrite(body={"status": patch}, subresource="status") if patch else None)

    def suspended_status(self, local: JsonObject, *, now: datetime) -> JobWrite | None:
        """None: only the controllers of a kind know its conditions."""
        return None

    def stopped_status(self, local: JsonObject, *, now: datetime) -> JobWrite | None:
        """The removal of the fields that the declaration names; None if there are none, or the job has ended."""
        if self.finished(local) is not None:
            return None
        cleared: JsonObject = {"status": _status(local)}
        for path in self.spec.status.cleared:
            cleared = without_value(cleared, path.keys or ())
        patch = merge_patch(_status(local), cleared["status"])
        return JobWrite(body={"status": patch}, subresource="status") if patch else None

    def refusals(
        self, new: JsonObject, old: JsonObject | None, *, has_default_queue: bool, gate: Gate
    ) -> tuple[str, ...]:
        """Why the webhook refuses a job, or a change of one: the rules of every kind, then those of the declaration."""
        common = common_refusals(new, old, self, has_default_queue=has_default_queue, gate=gate)
        if not self.queue_name(new):
            return common
        changes = () if old is None else self.refused_changes(old, new)
        if self.traits.pods_are_jobs and (old is None or not self.queue_name(old)):
            changes = (*changes, _without_workload(self.resource.kind))
        asked = topology_refusals(self._annotated(new), self._annotated(old or {}))
        return tuple(dict.fromkeys((*common, *self.job_refusals(new), *asked, *changes)))

    def job_refusals(self, job: JsonObject) -> tuple[str, ...]:
        """Why the webhook refuses the job, one text a field; its pod sets are checked too."""
        found = [
            f"{rule.path}: {rule.message}"
            for rule in self.spec.validation.refused
            if rule.when.answer(job, unreadable=False)
        ]
        try:
            self.pod_sets(job)
        except BadInput as error:
            found.append(str(error))
        return tuple(found)

    def _annotated(self, job: JsonObject) -> tuple[AnnotatedPodSet, ...]:
        """Its pod sets, as far as they can be read; `job_refusals` says why they cannot."""
        try:
            return annotated_pod_sets(self.places(job))
        except BadInput:
            return ()

    def refused_changes(self, old: JsonObject, new: JsonObject) -> tuple[str, ...]:
        """The fields that changed though the job is not suspended, and cannot, one text a field."""
        if self.is_suspended(old) or self.is_suspended(new):
            return ()
        return tuple(
            f"{path}: cannot change unless the {self.resource.kind} is suspended"
            for path in self.spec.validation.immutable
            if not same(path.value(old), path.value(new))
        )

    def pod_labels(self, job: JsonObject) -> Mapping[str, str]:
        """The labels by which the job's own pods are found; empty if they are known by their owners only."""
        declared = self.spec.pods.labels if self.spec.pods is not None else {}
        return {key: each if isinstance(each, str) else str(each.value(job) or "") for key, each in declared.items()}

    def _started(self, job: JsonObject, infos: Sequence[PodSetInfo]) -> JsonObject:
        field = self.spec.suspend
        if field is None:
            return job
        started: JsonObject = with_value(self.with_infos(job, infos), field.path.keys or (), not field.value)
        return started

    def _suspended(self, job: JsonObject) -> JsonObject:
        field = self.spec.suspend
        suspended: JsonObject = job if field is None else with_value(job, field.path.keys or (), field.value)
        return suspended

    def _unmarked(self, job: JsonObject) -> JsonObject:
        for place in self.places(job):
            job = self.with_template(job, place, unmarked_template(place.template))
        return job

    def _stripped(self, job: JsonObject) -> JsonObject:
        managed_by = self.spec.managed_by
        for path in (*self.spec.remote.strip, *((managed_by.path,) if managed_by is not None else ())):
            job = without_value(job, path.keys or ())
        return job

    def _manifest(self, job: JsonObject, metadata: JsonObject) -> JsonObject:
        rest = {name: value for name, value in job.items() if name not in _NOT_THE_JOB}
        return {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": metadata,
            **rest,
        }


def _with_fields(job: JsonObject, paths: Iterable[JobPath], *, of: JsonObject) -> JsonObject:
    """The job with these fields as they are in another one; without those that it does not have."""
    for path in paths:
        keys, value = path.keys or (), path.value(of)
        job = without_value(job, keys) if value is None else with_value(job, keys, value)
    return job


def _traits(spec: DeclarationSpec) -> JobTraits:
    suspend, managed_by = spec.suspend, spec.managed_by
    labels = spec.pods.labels if spec.pods is not None else {}
    # Others have the value of several jobs.
    by_name = (key for key, value in labels.items() if str(value) == "$.metadata.name")
    return JobTraits(
        hold=spec.hold,
        has_managed_by=managed_by is not None,
        resizable=spec.resizable,
        feature_gate=spec.feature_gate,
        dispatched=spec.dispatched,
        suspend_path=_names(suspend.path) if suspend is not None else (),
        suspended_value=suspend.value if suspend is not None else True,
        managed_by_path=_names(managed_by.path) if managed_by is not None else (),
        own_controller=managed_by.controller if managed_by is not None else "",
        pod_label=next(by_name, ""),
        # With a field for its controller it is held by that, and another controller makes its Workload.
        pods_are_jobs=spec.hold is Hold.PODS and managed_by is None,
        needs=("pod",) if spec.hold is Hold.PODS else (),
    )


def _without_workload(kind: str) -> str:
    """Why a job whose pods nothing would hold is refused: with the label of a queue it would run without quota."""
    return (
        f"metadata.labels[{QUEUE_NAME_LABEL}]: Forbidden: a {kind} is not queued as a whole; remove the label, and"
        " put it into its pod templates to have its pods queued one by one"
    )


def _names(path: JobPath) -> tuple[str, ...]:
    return tuple(str(key) for key in path.keys or ())


def _restored(template: JsonObject, original: JsonObject) -> JsonObject:
    metadata = restored_metadata(template.get("metadata") or {}, original.get("metadata") or {})
    rest = {name: value for name, value in template.items() if name != "metadata"}
    restored = {**rest, "spec": restored_spec(template.get("spec") or {}, original.get("spec") or {})}
    return {"metadata": metadata, **restored} if metadata else restored


def _patch(old: JsonObject, new: JsonObject) -> JsonObject:
    """The merge patch of the job without metadata and status."""
    one, other = ({name: value for name, value in each.items() if name not in _NOT_THE_JOB} for each in (old, new))
    return merge_patch(one, other)


def _status(job: JsonObject) -> JsonObject:
    status = job.get("status")
    return status if isinstance(status, dict) else {}


def _label(job: JsonObject, key: str) -> str:
    return str(value_at(job, ("metadata", "labels", key)) or "")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
