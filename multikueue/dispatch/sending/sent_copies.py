# SPDX-License-Identifier: Apache-2.0
"""Whose an object on the worker is that has the name of one that is sent with a job (ADR 0021).

An agent changes an object only if it has the marks of this agent and all its owners are jobs of kinds that agents
create, one of them a remote job that exists. Anything else belongs to others, or is about to be removed. Several jobs
share one object: each of them is an owner, and Kubernetes removes it with the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

import orjson

from multikueue.api.constants import CLUSTER_LABEL, MANAGER_UID_ANNOTATION, ORIGIN_LABEL, SENT_VERSION_ANNOTATION
from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput


class Holder(StrEnum):
    """Whose the object is."""

    OURS = "Ours"
    LEAVING = "Leaving"
    """It was ours, and is about to be removed with its last job."""
    FOREIGN = "Foreign"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyMarks:
    """The marks of one agent."""

    cluster: str
    origin: str

    def metadata(
        self, name: str, namespace: str, *, manager_uid: str, version: str, owners: Iterable[JsonObject]
    ) -> JsonObject:
        """The metadata of an object that is created."""
        return {
            "name": name,
            "namespace": namespace,
            "labels": {ORIGIN_LABEL: self.origin},
            "annotations": self.annotations(manager_uid=manager_uid, version=version),
            "ownerReferences": list(owners),
        }

    def annotations(self, *, manager_uid: str, version: str) -> dict[str, str]:
        """The annotations of what this agent writes."""
        return {
            CLUSTER_LABEL: self.cluster,
            MANAGER_UID_ANNOTATION: manager_uid,
            SENT_VERSION_ANNOTATION: version,
        }

    def holder(
        self,
        metadata: JsonObject,
        *,
        is_job_kind: Callable[[JsonObject], bool],
        is_remote_job: Callable[[JsonObject], bool],
    ) -> Holder:
        """Whose the object with that metadata is.

        `is_job_kind` is whether an owner reference is of a kind of jobs that agents create, `is_remote_job` whether it
        is of a remote job of this agent that exists.
        """
        labels, annotations = (_texts(metadata.get(name)) for name in ("labels", "annotations"))
        marked = labels.get(ORIGIN_LABEL) == self.origin and annotations.get(CLUSTER_LABEL) == self.cluster
        owners = owners_of(metadata)
        if not marked or SENT_VERSION_ANNOTATION not in annotations or not owners:
            return Holder.FOREIGN
        if not all(map(is_job_kind, owners)):
            return Holder.FOREIGN
        if "deletionTimestamp" in metadata or not any(map(is_remote_job, owners)):
            return Holder.LEAVING
        return Holder.OURS


def metadata_in(answer: bytes) -> JsonObject:
    """The metadata in the answer of an API server. Raises `BadInput`."""
    try:
        found = orjson.loads(answer)
    except ValueError as error:
        raise BadInput("the answer is not JSON") from error
    metadata = found.get("metadata") if isinstance(found, dict) else None
    if not isinstance(metadata, dict):
        raise BadInput("the answer has no metadata")
    return metadata


def owners_of(metadata: JsonObject) -> list[JsonObject]:
    """The owner references of an object; empty if they are no list of objects."""
    found = metadata.get("ownerReferences")
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        return []
    return found


def owner_reference(*, api_version: str, kind: str, name: str, uid: str) -> JsonObject:
    """An owner that does not wait for the object when it is deleted."""
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}


def lacks_owner(metadata: JsonObject, owners: Iterable[JsonObject]) -> bool:
    """Whether one of the owners is not one of the object."""
    known = {each.get("uid") for each in owners_of(metadata)}
    return any(each["uid"] not in known for each in owners)


def shared(
    metadata: JsonObject, *, marks: CopyMarks, manager_uid: str, version: str, owners: Iterable[JsonObject]
) -> JsonObject:
    """The metadata of an object of ours with these owners too; uid and resourceVersion guard the write."""
    known = {str(each.get("uid")): each for each in owners_of(metadata)}
    known.update({str(each["uid"]): each for each in owners})
    kept: JsonObject = {
        name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion", "labels") if name in metadata
    }
    annotations = {
        **_texts(metadata.get("annotations")),
        **marks.annotations(manager_uid=manager_uid, version=version),
    }
    return {**kept, "annotations": annotations, "ownerReferences": list(known.values())}


def copied_version(metadata: JsonObject) -> str:
    """The version of the contents that an object of ours has."""
    return _texts(metadata.get("annotations")).get(SENT_VERSION_ANNOTATION, "")


def _texts(value: object) -> Mapping[str, str]:
    return value if isinstance(value, Mapping) else {}
