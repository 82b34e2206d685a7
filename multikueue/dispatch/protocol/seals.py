# SPDX-License-Identifier: Apache-2.0
"""Seals: annotations that only the manager, or a reader of its key, can have written.

A seal is a keyed digest of what it confirms and of the object it is on, so it is invalid on any other object. The key
is in a Secret in the manager's namespace.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from multikueue.api.constants import (
    ADOPTS_ANNOTATION,
    ADOPTS_SEAL_ANNOTATION,
    CLUSTER_LABEL,
    LOG_REQUEST_SEAL_ANNOTATION,
    MAILBOX_SEAL_ANNOTATION,
)
from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput
from multikueue.dispatch.hub.facts import Adoption
from multikueue.dispatch.protocol import job_logs
from multikueue.dispatch.protocol.annotations import adoption_of

SEAL_SECRET: Final = "multikueue-seal"
SEAL_FIELD: Final = "key"
KEY_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class SealedJob:
    """The job whose pod sets are sealed."""

    namespace: str
    uid: str
    description: JsonObject
    """What it says itself of its pods."""


def adoption_seal(key: bytes, *, kind: str, namespace: str, name: str, value: str) -> str:
    """The seal of the annotation `multikueue.io/adopts` with that value on that object."""
    return _seal(key, "adoption", kind, namespace, name, value)


def sealed_adoption(key: bytes, obj: JsonObject) -> Adoption | None:
    """The remote job that the object takes over; None without one, or if the seal is invalid."""
    metadata: JsonObject = obj["metadata"]
    annotations: dict[str, str] = metadata.get("annotations") or {}
    found = adoption_of(annotations)
    if found is None:
        return None
    wanted = adoption_seal(
        key,
        kind=str(obj["kind"]),
        namespace=str(metadata.get("namespace") or ""),
        name=str(metadata["name"]),
        value=annotations[ADOPTS_ANNOTATION],
    )
    return found if _same(annotations.get(ADOPTS_SEAL_ANNOTATION), wanted) else None


def mailbox_seal(key: bytes, *, namespace: str, cluster: str, uid: str = "") -> str:
    """The seal of a mailbox namespace; without a uid, of one that is being created."""
    return _seal(key, "mailbox", namespace, cluster, uid)


def is_sealed_mailbox(key: bytes, namespace: JsonObject, *, cluster: str, made: bool = True) -> bool:
    """Whether the manager created that namespace for the cluster; with `made` false, whether it was creating it."""
    metadata: JsonObject = namespace["metadata"]
    annotations: dict[str, str] = metadata.get("annotations") or {}
    uid = str(metadata["uid"]) if made else ""
    wanted = mailbox_seal(key, namespace=str(metadata["name"]), cluster=cluster, uid=uid)
    return annotations.get(CLUSTER_LABEL) == cluster and _same(annotations.get(MAILBOX_SEAL_ANNOTATION), wanted)


def log_request_seal(key: bytes, *, namespace: str, name: str, spec: JsonObject) -> str:
    """The seal of a JobLogRequest of a user who may read the logs. Raises `BadInput` for an invalid spec."""
    return _seal(key, "logs", namespace, name, job_logs.subject(spec))


def is_sealed_log_request(key: bytes, request: JsonObject) -> bool:
    """Whether the webhook has confirmed that request, as it is now."""
    metadata: JsonObject = request["metadata"]
    found = (metadata.get("annotations") or {}).get(LOG_REQUEST_SEAL_ANNOTATION)
    namespace, name = str(metadata["namespace"]), str(metadata["name"])
    try:
        wanted = log_request_seal(key, namespace=namespace, name=name, spec=request["spec"])
    except BadInput:
        return False
    return _same(found, wanted)


def pod_sets_seal(key: bytes, *, of: SealedJob, version: str, pod_sets: Sequence[JsonObject]) -> str:
    """The seal of pod sets that the manager has made for a job of a runtime of that version."""
    texts = (orjson.dumps(each, option=orjson.OPT_SORT_KEYS).decode() for each in (of.description, pod_sets))
    return _seal(key, "podSets", of.namespace, of.uid, version, *texts)


def is_pod_sets_seal(key: bytes, seal: str, *, of: SealedJob, version: str, pod_sets: Sequence[JsonObject]) -> bool:
    """Whether that is their seal."""
    return _same(seal, pod_sets_seal(key, of=of, version=version, pod_sets=pod_sets))


def _seal(key: bytes, *parts: str) -> str:
    return hmac.new(key, orjson.dumps(parts), hashlib.sha256).hexdigest()


def _same(found: str | None, wanted: str) -> bool:
    return found is not None and hmac.compare_digest(found.encode(), wanted.encode())
