# SPDX-License-Identifier: Apache-2.0
"""The pods of a Job as they are created. Pure."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Final

from devcluster.controllers import pod_facts
from multikueue.api.objects import JsonObject
from multikueue.api.resource import JOBS

_INDEX_VARIABLE: Final = "JOB_COMPLETION_INDEX"
_LONGEST_PREFIX: Final = 57  # a generated name adds a dash and five characters to be at most 63 long


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRequest:
    """One pod to create; `index` is None for a Job that is not indexed."""

    index: int | None = None
    failures: int | None = None
    """How often the index failed before; only with backoffLimitPerIndex."""
    ignored_failures: int = 0


def pod_of(job: JsonObject, request: PodRequest) -> JsonObject:
    """The manifest of the pod."""
    template = copy.deepcopy(job["spec"]["template"])
    metadata = template.get("metadata") or {}
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    labels = dict(metadata.get("labels") or {})
    annotations = dict(metadata.get("annotations") or {})
    spec = template["spec"]
    prefix = name
    if request.index is not None:
        index = str(request.index)
        prefix = f"{name[: _LONGEST_PREFIX - len(index) - 1]}-{index}"
        annotations[pod_facts.INDEX] = labels[pod_facts.INDEX] = index
        spec["hostname"] = f"{name[: 63 - len(index) - 1]}-{index}"
        for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
            _add_index_variable(container)
    if request.failures is not None:
        annotations[pod_facts.FAILURES] = str(request.failures)
    if request.ignored_failures:
        annotations[pod_facts.IGNORED_FAILURES] = str(request.ignored_failures)
    finalizers = [*(metadata.get("finalizers") or ()), pod_facts.TRACKING]
    made: JsonObject = {
        "generateName": f"{prefix[:_LONGEST_PREFIX]}-",
        "namespace": job["metadata"]["namespace"],
        "labels": labels,
        "annotations": annotations,
        "finalizers": list(dict.fromkeys(finalizers)),
        "ownerReferences": [owner_reference(name, uid)],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {key: value for key, value in made.items() if value},
        "spec": spec,
    }


def owner_reference(name: str, uid: str) -> JsonObject:
    """The owner reference to the Job."""
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _add_index_variable(container: JsonObject) -> None:
    variables = container.setdefault("env", [])
    if not any(entry.get("name") == _INDEX_VARIABLE for entry in variables):
        source = {"fieldRef": {"fieldPath": f"metadata.labels['{pod_facts.INDEX}']"}}
        variables.append({"name": _INDEX_VARIABLE, "valueFrom": source})
