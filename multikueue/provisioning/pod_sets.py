# SPDX-License-Identifier: Apache-2.0
"""The pod sets that capacity is requested for: those with managed resources, with their flavors, merged by policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from multikueue.api.objects import JsonObject
from multikueue.provisioning.settings import MergePolicy, ProvisioningSettings

_SCHEDULING: Final = ("resources", "nodeSelector", "tolerations", "affinity", "resourceClaims", "overhead")
"""The fields of a pod that, besides the requests of its containers, decide where it fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedPodSet:
    """Pods of one template; `names` are the pod sets of the Workload, the first of which names the template."""

    names: tuple[str, ...]
    count: int
    template: JsonObject


def requested_pod_sets(
    workload: JsonObject, settings: ProvisioningSettings, flavors: Mapping[str, JsonObject]
) -> tuple[RequestedPodSet, ...]:
    """The pod sets to request capacity for; none if no pod uses a managed resource.

    `workload` has a reservation, whose counts are used: with partial admission they are smaller. `flavors` are
    ResourceFlavors by name; a deleted one adds nothing.
    """
    found: list[RequestedPodSet] = []
    kinds: list[Any] = []
    for each in _needed(workload, settings, flavors):
        kind = _kind(each.template, settings.merge_policy)
        at = kinds.index(kind) if kind is not None and kind in kinds else None
        if at is None:
            found.append(each)
            kinds.append(kind)
        else:
            found[at] = replace(found[at], names=(*found[at].names, *each.names), count=found[at].count + each.count)
    return tuple(found)


def _needed(
    workload: JsonObject, settings: ProvisioningSettings, flavors: Mapping[str, JsonObject]
) -> Iterator[RequestedPodSet]:
    admission: JsonObject = (workload.get("status") or {}).get("admission") or {}
    assignments = {each["name"]: each for each in admission.get("podSetAssignments") or ()}
    for pod_set in (workload.get("spec") or {}).get("podSets") or ():
        name = str(pod_set["name"])
        assignment: JsonObject = assignments.get(name) or {}
        count = assignment.get("count")
        if count is None:
            count = pod_set.get("count", 1)
        template: JsonObject = pod_set.get("template") or {}
        resources = set(_resources(template.get("spec") or {}))
        if count <= 0 or (settings.managed_resources and not resources & settings.managed_resources):
            continue
        yield RequestedPodSet(names=(name,), count=int(count), template=_with_flavors(template, assignment, flavors))


def _resources(spec: JsonObject) -> Iterator[str]:
    """The resources that a pod requests; a limit is also a request."""
    for holder in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()), spec):
        resources: JsonObject = holder.get("resources") or {}
        yield from resources.get("requests") or {}
        yield from resources.get("limits") or {}
    yield from spec.get("overhead") or {}


def _with_flavors(template: JsonObject, assignment: JsonObject, flavors: Mapping[str, JsonObject]) -> JsonObject:
    """The template as the started pods have it: with the node labels and tolerations of its flavors."""
    metadata: JsonObject = template.get("metadata") or {}
    spec: JsonObject = dict(template.get("spec") or {})
    selector: dict[str, str] = {}
    tolerations: list[JsonObject] = list(spec.get("tolerations") or ())
    for name in sorted(set((assignment.get("flavors") or {}).values())):
        flavor: JsonObject = (flavors.get(name) or {}).get("spec") or {}
        selector = {**(flavor.get("nodeLabels") or {}), **selector}
        tolerations += [each for each in flavor.get("tolerations") or () if each not in tolerations]
    selector |= spec.get("nodeSelector") or {}
    if selector:
        spec["nodeSelector"] = selector
    if tolerations:
        spec["tolerations"] = tolerations
    kept = {name: metadata[name] for name in ("labels", "annotations") if metadata.get(name)}
    return {**({"metadata": kept} if kept else {}), "spec": spec}


def _kind(template: JsonObject, policy: MergePolicy | None) -> object:
    """What must be equal for pod sets to be merged; None: they are not merged."""
    if policy is None:
        return None
    if policy is MergePolicy.IDENTICAL_TEMPLATES:
        return template
    spec: JsonObject = template["spec"]
    return (
        [_requests(container) for container in spec.get("containers") or ()],
        [_requests(container) for container in spec.get("initContainers") or ()],
        [spec.get(name) for name in _SCHEDULING],
    )


def _requests(container: JsonObject) -> object:
    resources: JsonObject = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}, container.get("restartPolicy")
