# SPDX-License-Identifier: Apache-2.0
"""The revisions of a DaemonSet's template, as ControllerRevisions. Pure.

Their format is that of a StatefulSet's revisions; but pods name the hash of their revision, not its name, and old
revisions that pods have count against the history limit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from devcluster.controllers.dependents import reference_to
from devcluster.controllers.revision_sets import safe_hash
from devcluster.controllers.set_revisions import REVISION_LABEL, collisions_of, data_of, in_order
from devcluster.resources import DAEMON_SETS
from multikueue.api.objects import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonHistory:
    """The revisions of a DaemonSet, and the number that the current one has at least."""

    current: JsonObject | None
    """The revision of the template in the spec; None if it is yet to be created."""
    duplicates: tuple[JsonObject, ...]
    """Other revisions of the same template, which are deleted."""
    old: tuple[JsonObject, ...]
    """The revisions of earlier templates, the oldest first."""
    number: int


def history_of(daemon_set: JsonObject, revisions: Sequence[JsonObject]) -> DaemonHistory:
    """The history; of several revisions of one template the newest is kept."""
    data = data_of(daemon_set)
    ordered = in_order(revisions)
    old = tuple(each for each in ordered if each.get("data") != data)
    equal = [each for each in ordered if each.get("data") == data]
    return DaemonHistory(
        current=equal[-1] if equal else None,
        duplicates=tuple(equal[:-1]),
        old=old,
        number=(old[-1]["revision"] if old else 0) + 1,
    )


def new_revision(daemon_set: JsonObject, number: int) -> JsonObject:
    """The revision of the template in the spec, yet to be created; its annotations are those of the DaemonSet."""
    metadata = daemon_set["metadata"]
    data = data_of(daemon_set)
    hashed = safe_hash(data, collisions=collisions_of(daemon_set))
    labels = (daemon_set["spec"]["template"].get("metadata") or {}).get("labels") or {}
    made: JsonObject = {
        "name": f"{metadata['name']}-{hashed}",
        "namespace": metadata["namespace"],
        "labels": {**labels, REVISION_LABEL: hashed},
        "ownerReferences": [reference_to(daemon_set, DAEMON_SETS)],
    }
    if metadata.get("annotations"):
        made["annotations"] = metadata["annotations"]
    return {"metadata": made, "data": data, "revision": number}


def has_hash(revision: JsonObject) -> bool:
    """Whether a label has its hash; an adopted one of another controller may lack it."""
    return REVISION_LABEL in (revision["metadata"].get("labels") or {})


def hash_of(obj: JsonObject) -> str:
    """The hash in the label of a revision or of a pod; empty for none."""
    return str((obj["metadata"].get("labels") or {}).get(REVISION_LABEL, ""))


def outdated(old: Sequence[JsonObject], *, limit: int, used: Collection[str]) -> list[JsonObject]:
    """The oldest of `old` beyond the limit, except those whose hash is `used` by a pod."""
    excess = max(0, len(old) - limit)
    return [each for each in old if hash_of(each) not in used][:excess]
