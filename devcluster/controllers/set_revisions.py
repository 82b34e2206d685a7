# SPDX-License-Identifier: Apache-2.0
"""The revisions of a StatefulSet's template, as ControllerRevisions. Pure.

A template that comes back gets the highest number again instead of a new object.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from devcluster.controllers.dependents import reference_to
from devcluster.controllers.revision_sets import safe_hash
from devcluster.resources import STATEFUL_SETS
from multikueue.api.objects import JsonObject

REVISION_LABEL: Final = "controller-revision-hash"
"""The label of a pod that names its revision."""
_HASH_LABEL: Final = "controller.kubernetes.io/hash"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRevision:
    """The revision of the current template: an existing one, or one to create."""

    value: JsonObject
    exists: bool
    number: int
    """Its number, which an existing revision may have to get."""


def update_revision(stateful_set: JsonObject, revisions: Sequence[JsonObject]) -> UpdateRevision:
    """The revision of the template in the spec."""
    ordered = in_order(revisions)
    number = (ordered[-1]["revision"] if ordered else 0) + 1
    data = data_of(stateful_set)
    equal = [each for each in ordered if each.get("data") == data]
    if equal:
        newest = equal[-1]
        return UpdateRevision(value=newest, exists=True, number=newest["revision"] if newest is ordered[-1] else number)
    metadata = stateful_set["metadata"]
    hashed = safe_hash(data, collisions=collisions_of(stateful_set))
    labels = (stateful_set["spec"]["template"].get("metadata") or {}).get("labels") or {}
    value: JsonObject = {
        "metadata": {
            "name": f"{metadata['name']}-{hashed}",
            "namespace": metadata["namespace"],
            "labels": {**labels, _HASH_LABEL: hashed},
            "ownerReferences": [reference_to(stateful_set, STATEFUL_SETS)],
        },
        "data": data,
        "revision": number,
    }
    if metadata.get("annotations"):
        value["metadata"]["annotations"] = metadata["annotations"]
    return UpdateRevision(value=value, exists=False, number=number)


def current_revision(stateful_set: JsonObject, revisions: Iterable[JsonObject], *, update: JsonObject) -> JsonObject:
    """The revision that the status names as current; the update revision if there is none."""
    name = (stateful_set.get("status") or {}).get("currentRevision")
    return next((each for each in revisions if each["metadata"]["name"] == name), update)


def at_revision(stateful_set: JsonObject, revision: JsonObject) -> JsonObject:
    """The StatefulSet with the template of a revision."""
    template = copy.deepcopy(revision["data"]["spec"]["template"])
    template.pop("$patch", None)
    return {**stateful_set, "spec": {**stateful_set["spec"], "template": template}}


def outdated_revisions(
    stateful_set: JsonObject, revisions: Sequence[JsonObject], *, used: Iterable[str]
) -> list[JsonObject]:
    """The oldest unused revisions beyond the history limit; `used` are names."""
    names = set(used)
    unused = [each for each in in_order(revisions) if each["metadata"]["name"] not in names]
    excess = len(unused) - stateful_set["spec"].get("revisionHistoryLimit", 10)
    return unused[:excess] if excess > 0 else []


def in_order(revisions: Iterable[JsonObject]) -> list[JsonObject]:
    """By number, then age, then name."""

    def place(each: JsonObject) -> tuple[int, str, str]:
        metadata = each["metadata"]
        return (each["revision"], metadata.get("creationTimestamp", ""), metadata["name"])

    return sorted(revisions, key=place)


def collisions_of(owner: JsonObject) -> int:
    """How often the name of a new revision was taken."""
    return int((owner.get("status") or {}).get("collisionCount", 0))


def data_of(owner: JsonObject) -> JsonObject:
    """The data of a revision: the patch that brings the template of a StatefulSet or DaemonSet back.

    Keys are in order, since kubectl compares the text with that of the current template.
    """
    template = {**owner["spec"]["template"], "$patch": "replace"}
    ordered: JsonObject = orjson.loads(orjson.dumps({"spec": {"template": template}}, option=orjson.OPT_SORT_KEYS))
    return ordered
