# SPDX-License-Identifier: Apache-2.0
"""The forms that objects are answered in: as they are, as rows of a table, or as their metadata alone.

Owns content negotiation, tables with their columns, and how a list is put together from stored bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from multikueue.devcluster.apiserver import documents, errors, rows, versions
from multikueue.devcluster.apiserver.documents import JsonObject, JsonValue
from multikueue.devcluster.apiserver.kinds.custom import creation_cells
from multikueue.devcluster.apiserver.requests import JSON, Request
from multikueue.devcluster.apiserver.resources import ResourceType
from multikueue.devcluster.apiserver.schema import builtin
from multikueue.devcluster.apiserver.words import duration

_META_PREFIX: Final = documents.prefix("PartialObjectMetadata", "meta.k8s.io/v1")
_NAME_TEXT: Final = (
    "Name must be unique within a namespace. Is required when creating resources, although some resources may allow a "
    "client to request the generation of an appropriate name automatically. Name is primarily intended for creation "
    "idempotence and configuration definition. Cannot be updated. More info: "
    "https://kubernetes.io/docs/concepts/overview/working-with-objects/names#names"
)
_AGE_TEXT: Final = (
    "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed "
    "to be set in happens-before order across separate operations. Clients may not set this value. It is represented "
    "in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: "
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata"
)


@dataclass(frozen=True, slots=True)
class Form:
    """How objects are to be answered."""

    shape: str = ""
    """Empty, `Table` or `PartialObjectMetadata` (of a list, the same)."""
    version: str = "v1"
    include: str = "Metadata"
    """What a table's rows carry of the object."""

    @property
    def content_type(self) -> str:
        """What the answer calls itself."""
        return JSON


PLAIN: Final = Form()


def negotiate(request: Request) -> Form:
    """The first form the client accepts that we have. Raises `StatusError`."""
    accept = request.headers.get("accept", "")
    if "as=" not in accept:
        if accept in ("", JSON, "*/*") or "json" in accept or "*/*" in accept or "yaml" in accept:
            return PLAIN
        raise errors.not_acceptable(
            "only the following media types are accepted: application/json, application/yaml, "
            "application/vnd.kubernetes.protobuf"
        )
    for part in accept.split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        options = dict(piece.partition("=")[::2] for piece in parameters)
        if media in (JSON, "*/*"):
            shape = options.get("as", "")
            if shape in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList"):
                if options.get("v", "v1") in ("v1", "v1beta1"):
                    include = request.query.get("includeObject", "Metadata") if shape == "Table" else "Metadata"
                    return Form(shape.removesuffix("List"), options.get("v", "v1"), include)
            elif not shape:
                return PLAIN
    raise errors.not_acceptable(
        "only the following media types are accepted: application/json, application/yaml, "
        "application/vnd.kubernetes.protobuf"
    )


def columns(kind: ResourceType) -> list[JsonObject]:
    """The columns of a type's table."""
    if not kind.custom:
        base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        found: list[JsonObject] = builtin.table("columns.json").get(f"{base}/{kind.plural}", [])
        if found and cells(kind, {"metadata": {"name": ""}}, _EPOCH) is not None:
            return found
    name = {"name": "Name", "type": "string", "format": "name", "description": _NAME_TEXT, "priority": 0}
    extra = documents.items(kind.version_entry, "additionalPrinterColumns")
    if not extra:
        if not kind.custom:
            created = {"name": "Created At", "type": "date", "format": "", "description": _AGE_TEXT, "priority": 0}
            return [name, created]
        return [name, {"name": "Age", "type": "date", "format": "", "description": _AGE_TEXT, "priority": 0}]
    return [
        name,
        *(
            {
                "name": column["name"],
                "type": column["type"],
                "format": column.get("format", ""),
                "description": column.get("description")
                or f"Custom resource definition column (in JSONPath format): {column['jsonPath']}",
                "priority": column.get("priority", 0),
            }
            for column in extra
        ),
    ]


_EPOCH: Final = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def cells(kind: ResourceType, value: JsonObject, now: datetime) -> list[JsonValue] | None:
    """The cells of a row; None when the type has no columns of its own."""
    made = rows.ROWS.get((kind.group, kind.plural))
    return kind.behaviour.cells(value, now) if made is None else made(value, now)


def row(value: JsonObject, kind: ResourceType, form: Form, now: datetime) -> JsonObject:
    """One row."""
    shown = cells(kind, value, now)
    if shown is None:
        shown = creation_cells(value, now)
        if not kind.custom:
            shown[1] = documents.metadata(value).get("creationTimestamp", "")
    found: JsonObject = {"cells": shown}
    if form.include == "Object":
        found["object"] = value
    elif form.include != "None":
        found["object"] = partial(value, form.version)
    else:
        found["object"] = None
    return found


def scale(value: JsonObject, form: Form, now: datetime) -> bytes:
    """The scale of a built-in object as a table: Name, Desired, Available, Age."""
    shown = [
        value["metadata"]["name"],
        documents.child(value, "spec").get("replicas", 0),
        documents.child(value, "status").get("replicas", 0),
        duration(value["metadata"].get("creationTimestamp"), now),
    ]
    body: JsonObject = {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{form.version}",
        "metadata": {"resourceVersion": value["metadata"].get("resourceVersion", "")},
        "columnDefinitions": [
            {"name": "Name", "type": "string", "format": "name", "description": _NAME_TEXT, "priority": 0},
            *(
                {"name": name, "type": "integer", "format": "", "description": _scale_text(part), "priority": 0}
                for name, part in (("Desired", "Spec"), ("Available", "Status"))
            ),
            {"name": "Age", "type": "string", "format": "", "description": _AGE_TEXT, "priority": 0},
        ],
        "rows": [{"cells": shown, "object": partial(value, form.version)}],
    }
    return documents.dump(body)


def _scale_text(part: str) -> str:
    found = builtin.definitions()[f"io.k8s.api.autoscaling.v1.Scale{part}"]["properties"]["replicas"]
    return str(found.get("description", ""))


def partial(value: JsonObject, version: str = "v1") -> JsonObject:
    """The metadata alone."""
    metadata = value.get("metadata", {})
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}", "metadata": metadata}


def table(
    lines: Sequence[JsonObject], kind: ResourceType, form: Form, metadata: JsonObject, *, headed: bool = True
) -> bytes:
    """A table; `headed` for one with its columns."""
    return documents.dump(
        {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{form.version}",
            "metadata": metadata,
            "columnDefinitions": columns(kind) if headed else None,
            "rows": lines,
        }
    )


def single(raw: bytes, kind: ResourceType, form: Form, now: datetime) -> bytes:
    """One object, given in the version that is asked for."""
    if not form.shape:
        return raw
    value = documents.load_object(raw)
    if form.shape == "Table":
        version = documents.metadata(value).get("resourceVersion", "")
        return table([row(value, kind, form, now)], kind, form, {"resourceVersion": version})
    return documents.dump(partial(value, form.version))


def listed(items: Sequence[bytes], kind: ResourceType, form: Form, now: datetime, metadata: JsonObject) -> bytes:
    """A list of objects, given in the version that is asked for."""
    if form.shape == "Table":
        lines = [row(documents.load_object(raw), kind, form, now) for raw in items]
        return table(lines, kind, form, metadata)
    if form.shape:
        partials = [partial(documents.load_object(raw), form.version) for raw in items]
        return documents.dump(
            {
                "kind": "PartialObjectMetadataList",
                "apiVersion": f"meta.k8s.io/{form.version}",
                "metadata": metadata,
                "items": partials,
            }
        )
    head = documents.dump({"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata})[:-1]
    if kind.custom:
        return head + b',"items":[' + b",".join(items) + b"]}"
    # The items of a built-in list do not say their type.
    length = len(kind.prefix) + 1
    return head + b',"items":[' + b",".join([b"{" + raw[length:] for raw in items]) + b"]}"


def line(raw: bytes, kind: ResourceType, form: Form, now: datetime, *, headed: bool) -> bytes:
    """The object of a watch event, given in the version that is asked for."""
    if not form.shape:
        return raw
    value = documents.load_object(raw)
    if form.shape == "Table":
        metadata = {"resourceVersion": documents.metadata(value).get("resourceVersion", "")}
        return table([row(value, kind, form, now)], kind, form, metadata, headed=headed)
    return documents.dump(partial(value, form.version))


def bookmark(version: int, kind: ResourceType, form: Form, *, initial_end: bool) -> bytes:
    """The line that tells how far a watcher has come."""
    metadata: JsonObject = {"resourceVersion": str(version)}
    if initial_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    if form.shape == "Table":
        value: JsonValue = {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{form.version}",
            "metadata": {"resourceVersion": str(version)},
            "columnDefinitions": None,
            "rows": [{"cells": [None] * len(columns(kind)), "object": partial({"metadata": metadata}, form.version)}],
        }
    elif form.shape:
        value = partial({"metadata": metadata}, form.version)
    else:
        value = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata}
        if not kind.custom:
            builtin.fill_zero(kind.node, value)
    return b'{"type":"BOOKMARK","object":' + documents.dump(value) + b"}\n"


def convertible(raw: bytes, kind: ResourceType) -> bytes:
    """Stored bytes in the version that is asked for, when no webhook is needed for it."""
    return versions.present(raw, kind)
