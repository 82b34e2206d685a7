# SPDX-License-Identifier: Apache-2.0
"""Which objects of the hub may be sent to a worker cluster with the jobs whose pods name them (ADR 0021).

Nothing is, unless an administrator lists kinds in an annotation of the MultiKueueCluster. An invalid annotation allows
nothing, and is the reason that users see. Tokens of service accounts are never sent, whatever is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from multikueue.api.constants import SEND_OBJECTS_ANNOTATION
from multikueue.api.meta import JsonObject
from multikueue.api.resource import SECRETS
from multikueue.core.printable import excerpt
from multikueue.dispatch.worker.dependencies import SENDABLE_KINDS

MAX_SENT_BYTES: Final = 1024 * 1024
"""What the objects of one job may have together, as they are stored; the limit of Kubernetes for one Secret."""
_MAX_TEXT: Final = 256
_NEVER_SENT_TYPES: Final = frozenset({"kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"})
"""Credentials of a cluster. On a worker the first type would also be filled with a token of that cluster."""


@dataclass(frozen=True, slots=True)
class SendingRules:
    """The kinds that may be sent to one cluster; `problem` is why the annotation is invalid."""

    kinds: frozenset[str] = frozenset()
    problem: str = ""

    @property
    def enabled(self) -> bool:
        """Whether an administrator wants objects to be sent, even if it is not said how."""
        return bool(self.kinds or self.problem)


def sending_rules(annotations: Mapping[str, str]) -> SendingRules:
    """The rules in the annotations of a MultiKueueCluster."""
    text = annotations.get(SEND_OBJECTS_ANNOTATION)
    if text is None:
        return SendingRules()
    kinds = frozenset(part for part in (each.strip() for each in text[:_MAX_TEXT].split(",")) if part)
    if len(text) > _MAX_TEXT or not kinds or not kinds <= SENDABLE_KINDS.keys():
        expected = " and ".join(sorted(SENDABLE_KINDS))
        return SendingRules(
            problem=f"annotation {SEND_OBJECTS_ANNOTATION}: expected one or both of {expected}, found {excerpt(text)}"
        )
    return SendingRules(kinds)


def never_sent(kind: str, secret_type: str) -> str:
    """Why an object of that kind and type is sent to no cluster; empty if it may be."""
    if kind not in SENDABLE_KINDS:
        return f"objects of kind {excerpt(kind)} are never sent"
    if kind == SECRETS.kind and secret_type in _NEVER_SENT_TYPES:
        return f"a Secret of type {secret_type} is never sent"
    return ""


def not_sendable(obj: JsonObject) -> str:
    """Why that object of the hub is sent to no cluster; empty if it may be."""
    refused = never_sent(str(obj.get("kind") or ""), str(obj.get("type") or ""))
    if refused:
        return refused
    # It is about to go, and its name may be taken by another one.
    return "it is being deleted" if "deletionTimestamp" in (obj.get("metadata") or {}) else ""
