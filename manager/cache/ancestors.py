# SPDX-License-Identifier: Apache-2.0
"""The owner of a job that is queued in its place, such as the JobSet of a Job.

A job whose owner, or the owner of that and so on, is queued gets no Workload of its own: its pods are in the pod sets
of that owner. Only owners of enabled kinds count, up to a depth (`docs/spec/kueue-api.md §4.2` step 3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from manager.cache.queue_targets import Views
from multikueue.api.meta import JsonObject
from multikueue.api.resource import PODS, Resource
from multikueue.core.keys import Key
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.jobs.framework.templated_queue import named_by
from multikueue.jobs.framework.workloads import prebuilt_name

MAX_DEPTH: Final = 10
"""How many owners are followed, as Kueue does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestry:
    """The topmost owner that is queued, and what was found on the way to it.

    `integration` is None without one; `key` is that owner. `too_deep`: there are more owners than are followed.
    `missing` is an owner of an enabled kind that the cache does not have yet.
    """

    integration: JobIntegration | None = None
    key: Key | None = None
    external: bool = False
    too_deep: bool = False
    missing: Key | None = None
    holder: JobIntegration | None = None
    """The kind of its owner if that starts its pods itself; the owner is queued, or was not seen yet."""

    @property
    def is_managed(self) -> bool:
        """Whether the job is left to an owner; one that was not seen yet counts, since it was there first."""
        return self.integration is not None or self.external or self.missing is not None


def ancestry(
    job: JsonObject, registry: JobRegistry, views: Views, *, kind: Resource, manage_unqueued: bool
) -> Ancestry:
    """The owners of a job of that kind, from the caches."""
    found = Ancestry()
    namespace = (job.get("metadata") or {}).get("namespace") or ""
    current, current_kind = job, kind
    named = _named(job, registry, namespace=namespace) if kind == PODS else None
    if named is not None:
        key, holding = named
        parent = views.view(holding.resource).object(key)
        if parent is None:
            return Ancestry(missing=key, holder=holding)
        if manage_unqueued or holding.queue_name(parent):
            found = Ancestry(integration=holding, key=key, holder=holding)
            current, current_kind = parent, holding.resource
    for _ in range(MAX_DEPTH):
        owner = controller_of(current)
        if owner is None:
            return found
        if registry.is_external(owner.get("apiVersion", ""), owner.get("kind", "")):
            return Ancestry(external=True)
        integration = registry.for_kind(owner.get("apiVersion", ""), owner.get("kind", ""))
        if integration is None or not may_be_left(current_kind, integration):
            return found
        holder = integration if integration.traits.holds_pods else None
        key = Key(namespace, str(owner.get("name") or ""))
        parent = views.view(integration.resource).object(key)
        if parent is None or parent["metadata"].get("uid") != owner.get("uid"):
            return found if found.integration is not None else Ancestry(missing=key, holder=holder)
        if manage_unqueued or integration.queue_name(parent) or prebuilt_name(parent, integration):
            found = Ancestry(integration=integration, key=key, holder=holder)
        current, current_kind = parent, integration.resource
    return replace(found, too_deep=controller_of(current) is not None)


def may_be_left(kind: Resource, owner: JobIntegration) -> bool:
    """Whether a job of that kind is left to an owner of the other one.

    Users write owner references as they like: a job in the name of an owner that cannot have it must not run without
    quota.
    """
    if owner.traits.pods_are_jobs:
        return False
    traits = owner.traits
    return kind == PODS or not traits.owns_only_pods or kind in traits.makes


def _named(pod: JsonObject, registry: JobRegistry, *, namespace: str) -> tuple[Key, JobIntegration] | None:
    """The job that a pod names by annotation and label, and its kind."""
    for integration in registry:
        name = named_by(pod, integration)
        if name:
            return Key(namespace, name), integration
    return None


def controller_of(obj: JsonObject) -> JsonObject | None:
    """The owner that controls an object; None without one."""
    owners: list[JsonObject] = (obj.get("metadata") or {}).get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)
