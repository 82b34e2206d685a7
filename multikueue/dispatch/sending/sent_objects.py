# SPDX-License-Identifier: Apache-2.0
"""ConfigMaps and Secrets that are sent with jobs, as hub and agent exchange them (ADR 0021).

An assignment lists them by kind and name. The contents are in an object of the same kind in the mailbox, once for all
jobs of a namespace that name it, under a name that both sides derive. Only contents are sent: no labels, annotations,
owners or finalizers, which may mean something on the other cluster. The version changes with the contents, and gives
nothing away about them: its key stays with the manager.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson

from multikueue.api.constants import (
    CLUSTER_LABEL,
    SENT_FROM_ANNOTATION,
    SENT_OBJECT_LABEL,
    SENT_TYPE_ANNOTATION,
    SENT_VERSION_ANNOTATION,
)
from multikueue.api.meta import JsonObject
from multikueue.api.resource import SECRETS
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.printable import excerpt
from multikueue.dispatch.sending.sending_policy import MAX_SENT_BYTES, never_sent
from multikueue.dispatch.worker.dependencies import SENDABLE_KINDS, Dependency

SENT_OBJECT_LABEL_VALUE: Final = "true"
_MAILBOX_TYPE: Final = "multikueue.io/sent"
"""The type of Secrets in a mailbox, which no controller of the hub acts on."""
_MAX_VERSION: Final = 64
_FIELDS: Final = ("data", "binaryData")


@dataclass(frozen=True, slots=True)
class SentReference:
    """One object in an assignment; without a version it is not sent, for that `problem`."""

    needed: Dependency
    version: str = ""
    problem: str = ""
    optional: bool = False
    """Whether the pods start without it. It is in their templates, and not listed in an assignment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectContents:
    """The contents of a ConfigMap or Secret; of a Secret they are encoded as Kubernetes encodes them."""

    kind: str
    fields: Mapping[str, Mapping[str, str]]
    secret_type: str = field(default="")

    @property
    def size(self) -> int:
        """In bytes, as they are stored."""
        return sum(len(name) + len(value) for values in self.fields.values() for name, value in values.items())

    def version(self, key: bytes) -> str:
        """Equal for equal contents; it can be computed only with the key."""
        text = orjson.dumps([self.kind, self.secret_type, self.fields], option=orjson.OPT_SORT_KEYS)
        return hmac.new(key, text, hashlib.sha256).hexdigest()[:32]

    def body(self, metadata: JsonObject, *, secret_type: str | None = None) -> JsonObject:
        """An object with these contents; `secret_type` instead of its own."""
        made: JsonObject = {
            "apiVersion": SENDABLE_KINDS[self.kind].api_version,
            "kind": self.kind,
            "metadata": metadata,
            **{name: dict(values) for name, values in self.fields.items()},
        }
        if self.kind == SECRETS.kind:
            made["type"] = self.secret_type if secret_type is None else secret_type
        return made


def references_wire(references: Iterable[SentReference]) -> list[JsonObject]:
    """The references as JSON of an assignment."""
    return [
        {
            "kind": each.needed.kind,
            "name": each.needed.name,
            **({"version": each.version} if each.version else {}),
            **({"problem": each.problem[:1024]} if each.problem else {}),
        }
        for each in references
    ]


def references_of(spec: JsonObject) -> tuple[SentReference, ...]:
    """The references of an assignment; what cannot be one is left out."""
    found: dict[Dependency, SentReference] = {}
    for entry in spec.get("sentObjects") or ():
        kind, name, version = (str(entry.get(field) or "") for field in ("kind", "name", "version"))
        needed = Dependency(kind, name)
        if kind in SENDABLE_KINDS and name and needed.is_possible and len(version) <= _MAX_VERSION:
            found[needed] = SentReference(needed, version, excerpt_of_problem(entry.get("problem")))
    return tuple(found.values())


def excerpt_of_problem(problem: object) -> str:
    """The problem as it is shown to users: short and without line breaks."""
    text = " ".join(str(problem or "").split())
    return text if len(text) <= 300 else f"{text[:296]} ..."


def mailbox_name(namespace: str, needed: Dependency) -> str:
    """The name, in a mailbox, of what is sent of that object."""
    digest = hashlib.sha256(f"{namespace}/{needed.kind}/{needed.name}".encode()).hexdigest()[:32]
    return f"sent-{digest}"


def contents_of(obj: JsonObject) -> ObjectContents:
    """The contents of an object of the hub. Raises `BadInput` for what is no ConfigMap or Secret."""
    return _contents(obj, secret_type=str(obj.get("type") or ""))


def mailbox_body(
    contents: ObjectContents, *, source: Key, needed: Dependency, cluster: str, version: str, namespace: str
) -> JsonObject:
    """The object that brings these contents to the agent of the cluster."""
    metadata: JsonObject = {
        "name": mailbox_name(source.namespace, needed),
        "namespace": namespace,
        "labels": {SENT_OBJECT_LABEL: SENT_OBJECT_LABEL_VALUE},
        "annotations": {
            CLUSTER_LABEL: cluster,
            SENT_FROM_ANNOTATION: str(source),
            SENT_VERSION_ANNOTATION: version,
            **({SENT_TYPE_ANNOTATION: contents.secret_type} if contents.secret_type else {}),
        },
    }
    return contents.body(metadata, secret_type=_MAILBOX_TYPE)


def received(obj: JsonObject, *, source: Key, needed: Dependency) -> tuple[ObjectContents, str]:
    """The contents and their version in an object of the mailbox.

    Raises `BadInput` if it is not what is sent of that object, and for what is never sent, whoever wrote it.
    """
    metadata = obj.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    marks: Mapping[str, object] = annotations if isinstance(annotations, Mapping) else {}
    if marks.get(SENT_FROM_ANNOTATION) != str(source):
        raise BadInput(f"the mailbox has {excerpt(marks.get(SENT_FROM_ANNOTATION))} instead of {needed}")
    contents = _contents(obj, secret_type=str(marks.get(SENT_TYPE_ANNOTATION) or ""))
    refused = never_sent(contents.kind, contents.secret_type)
    if refused or contents.kind != needed.kind:
        raise BadInput(refused or f"the mailbox has a {contents.kind} instead of {needed}")
    if contents.size > MAX_SENT_BYTES:
        raise BadInput(f"{needed} has {contents.size} bytes, and at most {MAX_SENT_BYTES} are sent")
    return contents, str(marks.get(SENT_VERSION_ANNOTATION) or "")[:_MAX_VERSION]


def _contents(obj: JsonObject, *, secret_type: str) -> ObjectContents:
    kind = str(obj.get("kind") or "")
    if kind not in SENDABLE_KINDS:
        raise BadInput(f"expected a ConfigMap or Secret, found {excerpt(kind)}")
    fields: dict[str, Mapping[str, str]] = {}
    for name in _FIELDS if kind != SECRETS.kind else _FIELDS[:1]:
        values = obj.get(name) or {}
        if not isinstance(values, Mapping) or not all(isinstance(value, str) for value in values.values()):
            raise BadInput(f"{name}: expected texts by name")
        if values:
            fields[name] = {str(each): value for each, value in values.items()}
    return ObjectContents(kind=kind, fields=fields, secret_type=secret_type if kind == SECRETS.kind else "")
