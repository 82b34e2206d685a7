# SPDX-License-Identifier: Apache-2.0
"""The Workload that a user names, by itself or by its job, and why a job that exists has none.

A job without a Workload has no conditions, so the reason is that of the object itself, or of its events, which are kept
for about an hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from multikueue.api.constants import POD_GROUP_NAME_LABEL, QUEUE_NAME_LABEL
from multikueue.api.meta import JsonObject
from multikueue.api.objects import controller_of
from multikueue.api.reasons import JobEvent
from multikueue.api.resource import EVENTS, PODS, PRIORITY_CLASSES, WORKLOAD_PRIORITY_CLASSES, WORKLOADS, Resource
from multikueue.cli.hub_options import WORKLOAD, WorkloadRef
from multikueue.cli.job_kinds import is_owned, kind_named, kind_of_owner
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.jobs.framework.capabilities import GroupedKind
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.registry import INTEGRATIONS
from multikueue.jobs.framework.workloads import (
    PriorityClasses,
    UnknownPriorityClass,
    prebuilt_name,
    resolved_priority,
)
from multikueue.jobs.kinds.pod_group import PodGroup
from multikueue.kube.errors import Forbidden, KubeError, NotFound
from multikueue.kube.rest.client import KubeClient

_UNKNOWN: Final = (
    "no event says why; if it was not created just now, check that the manager runs and that it manages the namespace"
)
_TELLING: Final = frozenset(
    {
        JobEvent.ERR_WORKLOAD_COMPOSE,
        JobEvent.JOB_NESTING_TOO_DEEP,
        JobEvent.WORKLOAD_PRIORITY_CLASS_NOT_FOUND,
        JobEvent.QUEUE_NAME_MISSING,
        "WorkloadRefused",
    }
)
"""The reasons of events that say why a job has no Workload."""


class WorkloadNotFound(BadInput):
    """There is no such Workload, or the job has none."""


def find(
    workloads: Iterable[JsonObject], ref: WorkloadRef, *, kinds: Sequence[JobIntegration] = tuple(INTEGRATIONS.values())
) -> JsonObject:
    """The Workload of the reference, whose kind is one of `kinds`; for a job with several, the newest.

    Raises `WorkloadNotFound`, and `BadInput` for a kind that is none of these.
    """
    if ref.kind == WORKLOAD:
        what, listed_too = WORKLOADS.kind, "jobs"
        found = [each for each in workloads if _key(each) == ref.key]
    else:
        integration = kind_named(ref.kind, kinds)
        what, listed_too = f"{WORKLOADS.kind} of {integration.resource.kind}", integration.resource.plural
        found = [each for each in workloads if is_owned(each, integration, ref.key)]
    if not found:
        raise WorkloadNotFound(
            f"{what} {ref.key} not found. To see which there are:\n"
            f"kubectl get {listed_too},workloads -n {ref.key.namespace}"
        )
    return max(found, key=lambda workload: str(workload["metadata"].get("creationTimestamp")))


async def find_on_hub(
    hub: KubeClient, workloads: Iterable[JsonObject], ref: WorkloadRef, *, kinds: Sequence[JobIntegration]
) -> JsonObject:
    """As `find`; the error for a job that exists says why it has no Workload, as far as the user may read that."""
    try:
        return find(workloads, ref, kinds=kinds)
    except WorkloadNotFound as error:
        integration = None if ref.kind == WORKLOAD else kind_named(ref.kind, kinds)
        job = None if integration is None else await _read(hub, integration.resource, ref.key)
        if integration is None or job is None:
            raise
        cause = await _Job(hub, integration, job, ref.key, kinds).cause()
        kind = integration.resource.kind
        raise WorkloadNotFound(f"{kind} {ref.key} exists, but has no Workload: {cause.why}\n{cause.command}") from error


def _key(obj: JsonObject) -> Key:
    return Key(obj["metadata"]["namespace"], obj["metadata"]["name"])


async def _read(hub: KubeClient, resource: Resource, key: Key) -> JsonObject | None:
    try:
        return await hub.get_object(resource, key.name, namespace=key.namespace or None)
    except (NotFound, Forbidden):
        return None


@dataclass(frozen=True, slots=True)
class _Cause:
    """Why there is no Workload with what to do about it, and a command that shows or does that."""

    why: str
    command: str


@dataclass(frozen=True, slots=True)
class _Job:
    """A job of the hub without a Workload."""

    hub: KubeClient
    integration: JobIntegration
    job: JsonObject
    key: Key
    kinds: Sequence[JobIntegration]

    async def cause(self) -> _Cause:
        """The first cause that applies."""
        of_owner = self._of_owner()
        if of_owner is not None and not self.integration.queue_name(self.job):
            return of_owner
        why = await self._why()
        if of_owner is not None and why == _UNKNOWN:
            return of_owner
        kind = self.integration.resource.kind.lower()
        return _Cause(why, f"kubectl describe {kind} {self.key.name} -n {self.key.namespace}")

    def _of_owner(self) -> _Cause | None:
        """The cause of a job that is queued with its owner, or not at all."""
        owner = controller_of(self.job)
        if owner is None or kind_of_owner(owner, self.kinds) is None:
            return None
        kind, name = owner["kind"], owner["name"]
        return _Cause(
            f"it belongs to {kind} {name} and is queued with it",
            f"mkctl explain {kind.lower()} {name} -n {self.key.namespace}",
        )

    async def _why(self) -> str:
        if not self.integration.queue_name(self.job) and not prebuilt_name(self.job, self.integration):
            kind = self.integration.resource.kind
            unqueued = f"it is not queued; create the {kind} again with the label {QUEUE_NAME_LABEL}"
            return await self._told([self.job]) or unqueued
        try:
            members = await self._members()
            if self.integration.finished(self.job) is not None and len(members) == 1:
                return "it has ended, and its Workload was deleted"
            own = self._incomplete(members) or await self._unknown_class()
        except BadInput as error:
            return f"{error}; correct it and create the {self.integration.resource.kind} again"
        return own or await self._told(members or [self.job]) or self._without_prebuilt() or _UNKNOWN

    async def _members(self) -> list[JsonObject]:
        """The objects of its group, or itself; empty if the user may not list them."""
        group = self._group
        if not group or not isinstance(self.integration, GroupedKind):
            return [self.job]
        try:
            page = await self.hub.list_all(self.integration.resource, namespace=self.key.namespace)
        except Forbidden:
            return []
        return [each for raw in page.items if self.integration.group_of(each := orjson.loads(raw)) == group]

    @property
    def _group(self) -> str:
        return self.integration.group_of(self.job) if isinstance(self.integration, GroupedKind) else ""

    def _incomplete(self, members: Sequence[JsonObject]) -> str:
        """Raises `BadInput` for members that contradict each other."""
        if not isinstance(self.integration, GroupedKind):
            return ""
        if not self._group or self.integration.resource != PODS:
            return self.integration.incomplete(self.job)
        incomplete = self.integration.incomplete(self.integration.composed(members)) if members else ""
        if not incomplete:
            return ""
        missing = PodGroup(members).missing()
        return (
            f"{incomplete}, and {missing} {'is' if missing == 1 else 'are'} missing; create"
            f" {'it' if missing == 1 else 'them'} with the same {POD_GROUP_NAME_LABEL}: {self._group}"
        )

    async def _unknown_class(self) -> str:
        """Raises `BadInput` for a class that cannot be read of the job."""
        hint = self.integration.priority(self.job)
        exist: dict[str, bool] = {}
        resource = WORKLOAD_PRIORITY_CLASSES if hint.workload_class else PRIORITY_CLASSES
        name = hint.workload_class or hint.job_class or hint.pod_class
        if name:
            try:
                await self.hub.get_object(resource, name)
            except NotFound:
                exist[name] = False
            except KubeError:
                return ""  # its events may say it

        def value(named: str) -> int | None:
            return 0 if exist.get(named, True) else None

        try:
            resolved_priority(hint, PriorityClasses(workload=value, pod=value, default=lambda: None))
        except UnknownPriorityClass as error:
            return str(error)
        return ""

    async def _told(self, members: Sequence[JsonObject]) -> str:
        """What the last event of the manager says about it."""
        uids = {each["metadata"]["uid"] for each in members}
        try:
            page = await self.hub.list_all(EVENTS, namespace=self.key.namespace)
        except KubeError:
            return ""
        events = [orjson.loads(raw) for raw in page.items]
        about = [
            each
            for each in events
            if each.get("reason") in _TELLING and (each.get("regarding") or {}).get("uid") in uids
        ]
        return str(max(about, key=_time)["note"]) if about else ""

    def _without_prebuilt(self) -> str:
        named = prebuilt_name(self.job, self.integration)
        return f"it waits for Workload {named}, which it names, and which is missing or not its own" if named else ""


def _time(event: JsonObject) -> str:
    series: JsonObject = event.get("series") or {}
    last = series.get("lastObservedTime") or event.get("eventTime") or event.get("deprecatedLastTimestamp")
    return str(last or event["metadata"].get("creationTimestamp"))
