# SPDX-License-Identifier: Apache-2.0
"""The ReplicaSets of a Deployment: which one has the current template, their revisions, and the manifest of a new one.

Pure. A revision is a number in an annotation; a template that comes back gets the next number.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import orjson

from devcluster.controllers.dependents import reference_to
from devcluster.resources import DEPLOYMENTS
from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.parsing import parse_unsigned
from multikueue.core.timestamps import parse_time

HASH_LABEL: Final = "pod-template-hash"
REVISION: Final = "deployment.kubernetes.io/revision"
HISTORY: Final = "deployment.kubernetes.io/revision-history"
DESIRED: Final = "deployment.kubernetes.io/desired-replicas"
MOST: Final = "deployment.kubernetes.io/max-replicas"
_NOT_COPIED: Final = frozenset(
    {
        "kubectl.kubernetes.io/last-applied-configuration",
        "deprecated.deployment.rollback.to",
        REVISION,
        HISTORY,
        DESIRED,
        MOST,
    }
)
_SAFE: Final = "bcdfghjklmnpqrstvwxz2456789"
"""Letters and digits of which no ordinary English terms can be made."""
_HASH_LENGTH: Final = 10


@dataclass(slots=True)
class RevisionSet:
    """A ReplicaSet, and the size and annotations that it is to have."""

    value: JsonObject
    replicas: int
    annotations: dict[str, str]
    min_ready_seconds: int
    is_new: bool = False
    """Whether it is yet to be created."""

    @classmethod
    def of(cls, value: JsonObject) -> RevisionSet:
        """As it is now."""
        annotations = dict(value["metadata"].get("annotations") or {})
        return cls(value, value["spec"].get("replicas", 1), annotations, value["spec"].get("minReadySeconds", 0))

    @property
    def name(self) -> str:
        """The name."""
        return str(self.value["metadata"]["name"])

    @property
    def replicas_before(self) -> int:
        """The size that it has now."""
        return int(self.value["spec"].get("replicas", 1))

    @property
    def revision(self) -> int:
        """The revision that it is to have; 0 without a valid annotation."""
        return number_in(self.annotations, REVISION) or 0

    @property
    def created(self) -> datetime | None:
        """When it was created; None if it is yet to be."""
        stamp = self.value["metadata"].get("creationTimestamp")
        return parse_time(stamp) if stamp else None

    def count(self, name: str) -> int:
        """A number of its status."""
        return int((self.value.get("status") or {}).get(name, 0))

    def patch(self) -> JsonObject | None:
        """The merge patch that changes it as planned; None for no change."""
        body: JsonObject = {}
        if self.annotations != (self.value["metadata"].get("annotations") or {}):
            body["metadata"] = {"annotations": self.annotations}
        spec = {}
        if self.replicas != self.replicas_before:
            spec["replicas"] = self.replicas
        if self.min_ready_seconds != self.value["spec"].get("minReadySeconds", 0):
            spec["minReadySeconds"] = self.min_ready_seconds
        return {**body, **({"spec": spec} if spec else {})} or None


def number_in(annotations: Mapping[str, str], name: str) -> int | None:
    """The number in an annotation; None if it is absent or invalid."""
    try:
        return parse_unsigned(annotations[name], field=name) if name in annotations else None
    except BadInput:
        return None


def current_of(deployment: JsonObject, sets: Iterable[RevisionSet]) -> RevisionSet | None:
    """The oldest ReplicaSet with the template of the Deployment."""
    wanted = _plain(deployment["spec"]["template"])
    matching = [each for each in sets if _plain(each.value["spec"]["template"]) == wanted]
    return min(matching, key=_age, default=None)


def oldest_first(sets: Iterable[RevisionSet]) -> list[RevisionSet]:
    """By creation, then name."""
    return sorted(sets, key=_age)


def _age(each: RevisionSet) -> tuple[bool, float, str]:
    created = each.created
    return (created is None, created.timestamp() if created is not None else 0.0, each.name)


def _plain(template: JsonObject) -> JsonObject:
    metadata = dict(template.get("metadata") or {})
    metadata.pop("creationTimestamp", None)
    labels = {key: value for key, value in (metadata.pop("labels", None) or {}).items() if key != HASH_LABEL}
    return {**template, "metadata": {**metadata, "labels": labels}}


def template_hash(deployment: JsonObject) -> str:
    """The value of the label pod-template-hash; `status.collisionCount` is part of it."""
    collisions = (deployment.get("status") or {}).get("collisionCount", 0)
    return safe_hash(_plain(deployment["spec"]["template"]), collisions=collisions)


def safe_hash(value: JsonObject, *, collisions: int) -> str:
    """A hash of JSON that can be a part of a name."""
    text = orjson.dumps([value, collisions], option=orjson.OPT_SORT_KEYS)
    number = int.from_bytes(hashlib.sha256(text).digest())
    found = []
    for _ in range(_HASH_LENGTH):
        number, digit = divmod(number, len(_SAFE))
        found.append(_SAFE[digit])
    return "".join(found)


def replica_set_of(deployment: JsonObject) -> RevisionSet:
    """A ReplicaSet of the current template, without replicas; it is yet to be created."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    template = copy.deepcopy(spec["template"])
    label = {HASH_LABEL: template_hash(deployment)}
    labels = {**((template.get("metadata") or {}).get("labels") or {}), **label}
    template["metadata"] = {**(template.get("metadata") or {}), "labels": labels}
    selector = copy.deepcopy(spec["selector"])
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), **label}
    value = {
        "metadata": {
            "name": f"{metadata['name']}-{label[HASH_LABEL]}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [reference_to(deployment, DEPLOYMENTS)],
        },
        "spec": {"replicas": 0, "selector": selector, "template": template},
    }
    return RevisionSet(value, 0, {}, spec.get("minReadySeconds", 0), is_new=True)


def annotate(deployment: JsonObject, current: RevisionSet, *, old: Sequence[RevisionSet]) -> None:
    """Give the current ReplicaSet the annotations of the Deployment, and the newest revision."""
    annotations = deployment["metadata"].get("annotations") or {}
    current.annotations |= {key: value for key, value in annotations.items() if key not in _NOT_COPIED}
    revision = max((each.revision for each in old), default=0) + 1
    if current.revision < revision:
        before = current.annotations.get(REVISION)
        current.annotations[REVISION] = str(revision)
        if before is not None:
            history = current.annotations.get(HISTORY)
            current.annotations[HISTORY] = f"{history},{before}" if history else before
    current.min_ready_seconds = deployment["spec"].get("minReadySeconds", 0)


def outdated(old: Iterable[RevisionSet], *, limit: int) -> list[RevisionSet]:
    """Old ReplicaSets beyond the history limit; those that have pods, or whose status is not current, stay."""
    kept = [each for each in old if "deletionTimestamp" not in each.value["metadata"]]
    excess = len(kept) - limit
    if excess <= 0:
        return []
    first = sorted(oldest_first(kept), key=lambda each: each.revision)[:excess]
    return [
        each
        for each in first
        if not each.replicas
        and not each.count("replicas")
        and each.value["metadata"].get("generation", 0) <= each.count("observedGeneration")
    ]
