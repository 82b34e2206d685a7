# SPDX-License-Identifier: Apache-2.0
"""The pod sets of a job as its Workload has them, and what their templates ask of topology aware scheduling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from multikueue.api.constants import WORKER_WORKLOAD_POD_LABEL
from multikueue.api.objects import JsonObject
from multikueue.api.stored_template import stored_template
from multikueue.api.validation.topology import AnnotatedPodSet
from multikueue.jobs.declared.paths import shown
from multikueue.jobs.declared.pod_set_places import PodSetPlace
from multikueue.jobs.framework.pod_templates import injected, same
from multikueue.jobs.framework.protocol import PodSetInfo
from multikueue.jobs.framework.topology_requests import topology_request


def pod_set(place: PodSetPlace, template: JsonObject) -> JsonObject:
    """The pod set in the Workload. Raises `BadInput`."""
    metadata: JsonObject = template.get("metadata") or {}
    kept = {field: metadata[field] for field in ("labels", "annotations") if metadata.get(field)}
    stored = stored_template({**({"metadata": kept} if kept else {}), "spec": template.get("spec") or {}})
    made: JsonObject = {"name": place.name, "count": place.count, "template": stored}
    declared = place.declared
    request = topology_request(kept.get("annotations", {}), pod_index_label=declared.pod_index_label)
    if request is not None:
        if declared.sub_group_index_label:
            request["subGroupIndexLabel"] = declared.sub_group_index_label
        groups = declared.sub_group_count.of(place.scope) if declared.sub_group_count is not None else None
        if groups is not None:
            request["subGroupCount"] = groups
        made["topologyRequest"] = request
    return made


def annotated_pod_sets(places: Iterable[PodSetPlace]) -> tuple[AnnotatedPodSet, ...]:
    """Their annotations, with the paths at which the job has them."""
    return tuple(
        AnnotatedPodSet(
            path=f"{shown(place.keys)}.metadata.annotations",
            annotations=(place.template.get("metadata") or {}).get("annotations") or {},
            count=place.count,
        )
        for place in places
    )


def wanted_pod_sets(workload: JsonObject, infos: Sequence[PodSetInfo]) -> list[JsonObject]:
    """The pod sets of a Workload, for a started job with what admission added."""
    by_name = {info.name: info for info in infos}
    found: list[JsonObject] = []
    for each in (workload.get("spec") or {}).get("podSets") or ():
        info = by_name.get(str(each.get("name")))
        found.append(each if info is None else {**each, "template": injected(each.get("template") or {}, info)})
    return found


def same_pod_set(found: JsonObject, wanted: JsonObject) -> bool:
    """Whether the pods are those of the Workload."""
    if found.get("name") != wanted.get("name") or not same(found.get("count"), wanted.get("count")):
        return False
    template, stored = _comparable(found.get("template") or {}), wanted.get("template") or {}
    # Usually as we wrote it; another schema may have kept more fields than ours.
    return same(template, _comparable(stored)) or same(template, _comparable(stored_template(stored)))


def _comparable(template: JsonObject) -> JsonObject:
    metadata: JsonObject = template.get("metadata") or {}
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != WORKER_WORKLOAD_POD_LABEL}
    return {**template, "metadata": {**metadata, "labels": labels}}
