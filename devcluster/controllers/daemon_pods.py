# SPDX-License-Identifier: Apache-2.0
"""The pods of a DaemonSet: their manifests, their nodes, and whether they have the current template. Pure.

A pod is bound by the scheduler: required node affinity names its node, instead of affinity that the template requires.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Final

from devcluster.controllers import daemon_revisions
from devcluster.controllers.app_pods import from_template
from devcluster.controllers.set_revisions import REVISION_LABEL
from devcluster.resources import DAEMON_SETS
from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.parsing import parse_signed

GENERATION: Final = "deprecated.daemonset.template.generation"
"""The annotation of a DaemonSet with the generation of its template, which the API server counts."""
GENERATION_LABEL: Final = "pod-template-generation"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_NAME_FIELD: Final = "metadata.name"
_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_NO_NETWORK: Final = ("node.kubernetes.io/network-unavailable", "NoSchedule")


def spec_of(daemon_set: JsonObject) -> JsonObject:
    """The spec of its pods on any node: that of the template, with the tolerations that all of them get."""
    spec: JsonObject = copy.deepcopy(daemon_set["spec"]["template"]["spec"])
    tolerated = (*_TOLERATED, *([_NO_NETWORK] if spec.get("hostNetwork") else []))
    for key, effect in tolerated:
        added = {"key": key, "operator": "Exists", "effect": effect}
        spec["tolerations"] = _with_toleration(spec.get("tolerations") or [], added)
    return spec


def pod_for(daemon_set: JsonObject, node: str, *, revision: str) -> JsonObject:
    """The manifest of the pod for a node; `revision` is the hash of the current revision."""
    made = from_template(daemon_set, DAEMON_SETS)
    metadata = made["metadata"]
    metadata["generateName"] = f"{daemon_set['metadata']['name']}-"
    labels = {REVISION_LABEL: revision}
    generation = generation_of(daemon_set)
    if generation is not None:
        labels[GENERATION_LABEL] = str(generation)
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    spec = spec_of(daemon_set)
    affinity = spec.get("affinity") or {}
    term = {"matchFields": [{"key": _NAME_FIELD, "operator": "In", "values": [node]}]}
    by_node = {**(affinity.get("nodeAffinity") or {}), _REQUIRED: {"nodeSelectorTerms": [term]}}
    return {"metadata": metadata, "spec": {**spec, "affinity": {**affinity, "nodeAffinity": by_node}}}


def node_of(pod: JsonObject) -> str | None:
    """The node that a pod is bound to, or else the one that its affinity names; None for neither."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for entry in term.get("matchFields") or ():
            values = list(entry.get("values") or ())
            if entry["key"] == _NAME_FIELD and entry["operator"] == "In" and len(values) == 1:
                return str(values[0])
    return None


def generation_of(daemon_set: JsonObject) -> int | None:
    """The generation of the template; None if the annotation is absent or invalid."""
    text = (daemon_set["metadata"].get("annotations") or {}).get(GENERATION)
    try:
        return parse_signed(text, field=GENERATION) if text is not None else None
    except BadInput:
        return None


def is_updated(daemon_set: JsonObject, pod: JsonObject, *, revision: str) -> bool:
    """Whether a pod has the current template, by the hash of its revision or by the generation."""
    generation = generation_of(daemon_set)
    label = (pod["metadata"].get("labels") or {}).get(GENERATION_LABEL)
    return daemon_revisions.hash_of(pod) == revision or (generation is not None and label == str(generation))


def oldest_first(pods: Iterable[JsonObject]) -> list[JsonObject]:
    """Pods that are bound first, then by age and name."""

    def place(pod: JsonObject) -> tuple[bool, str, str]:
        metadata = pod["metadata"]
        return (not pod["spec"].get("nodeName"), metadata.get("creationTimestamp", ""), metadata["name"])

    return sorted(pods, key=place)


def _with_toleration(present: Iterable[JsonObject], added: JsonObject) -> list[JsonObject]:
    """The tolerations with one more; it replaces an equal one that is limited in time."""
    found, replaced = [], False
    for each in present:
        same = all(each.get(name) == value for name, value in added.items()) and not each.get("value")
        found.append(added if same else each)
        replaced = replaced or same
    return found if replaced else [*found, added]
