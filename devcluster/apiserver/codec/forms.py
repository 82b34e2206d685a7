# SPDX-License-Identifier: Apache-2.0
"""The forms of an answer: objects, tables or metadata only.

Owns content negotiation, the columns of tables, and lists made of stored bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.codec import documents, rows
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.codec.times import duration
from devcluster.apiserver.http.requests import JSON, Request
from devcluster.apiserver.kinds.custom import creation_cells
from devcluster.apiserver.registry.resources import ResourceType
from devcluster.apiserver.schema import builtin

# As hack/gen_builtin_tables.py describes the columns of built-in kinds.
_NAME_TEXT: Final = "Name of the object, unique in its namespace."
_AGE_TEXT: Final = "Time since the object was created."
_CREATED_TEXT: Final = "Time at which the object was created."


@dataclass(frozen=True, slots=True)
class Form:
    """The requested form of objects."""

    shape: str = ""
    """Empty, `Table` or `PartialObjectMetadata` (of a list, the same)."""
    version: str = "v1"
    include: str = "Metadata"
    """The part of the object in each row of a table."""

    @property
    def content_type(self) -> str:
        """The Content-Type of the answer."""
        return JSON


PLAIN: Final = Form()
_MEDIA: Final = (JSON, "application/yaml", "application/vnd.kubernetes.protobuf")
_ROUTED: Final = frozenset({*_MEDIA, "*/*"})
_ACCEPTED: Final = f"only the following media types are accepted: {', '.join(_MEDIA)}"


def check(request: Request, kind: ResourceType, *, listed: bool, tables: bool = True) -> None:
    """Refuse a request before anything is done whose answer the client would not accept. Raises `StatusError`.

    `listed` if it is a GET of a collection, `tables` if objects of the kind have rows.
    """
    accept = request.headers.get("accept", "")
    if accept in ("", JSON, "*/*"):
        return
    if not kind.custom and not any(part.partition(";")[0].strip() in _ROUTED for part in accept.split(",")):
        found = [*_MEDIA, *(f"{media};stream=watch" for media in (_MEDIA[0], _MEDIA[2]))] if listed else _MEDIA
        raise errors.unrouted(f"406: Not Acceptable\n\nAvailable representations: {', '.join(found)}")
    negotiate(request, tables=tables)


def negotiate(request: Request, *, tables: bool = True) -> Form:
    """The first acceptable form that this server has; reviews have no `tables`. Raises `StatusError`."""
    accept = request.headers.get("accept", "")
    if "as=" not in accept:
        if accept in ("", JSON, "*/*") or "json" in accept or "*/*" in accept or "yaml" in accept:
            return PLAIN
        raise errors.not_acceptable(_ACCEPTED)
    for part in accept.split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        options = dict(piece.partition("=")[::2] for piece in parameters)
        if media in (JSON, "*/*"):
            shape = options.get("as", "")
            if shape in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList"):
                if shape == "Table" and not tables:
                    continue
                if options.get("v", "v1") in ("v1", "v1beta1"):
                    include = request.query.get("includeObject", "Metadata") if shape == "Table" else "Metadata"
                    return Form(shape.removesuffix("List"), options.get("v", "v1"), include)
            elif not shape:
                return PLAIN
    raise errors.not_acceptable(_ACCEPTED)


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
            created = {"name": "Created At", "type": "date", "format": "", "description": _CREATED_TEXT, "priority": 0}
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
    """The cells of a row; None if the type has no columns of its own."""
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
                {"name": name, "type": "integer", "format": "", "description": text, "priority": 0}
                for name, text in (
                    ("Desired", "Number of pods that should exist."),
                    ("Available", "Number of pods that exist now."),
                )
            ),
            {"name": "Age", "type": "string", "format": "", "description": _AGE_TEXT, "priority": 0},
        ],
        "rows": [{"cells": shown, "object": partial(value, form.version)}],
    }
    return documents.dump(body)


def partial(value: JsonObject, version: str = "v1") -> JsonObject:
    """The object as a PartialObjectMetadata."""
    metadata = value.get("metadata", {})
    return {"kind": "PartialObjectMetadata", "apiVersion": f"meta.k8s.io/{version}", "metadata": metadata}


def table(
    lines: Sequence[JsonObject], kind: ResourceType, form: Form, metadata: JsonObject, *, headed: bool = True
) -> bytes:
    """A table; with its columns if `headed`."""
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
    """One object; `raw` has the requested version."""
    if not form.shape:
        return raw
    value = documents.load_object(raw)
    if form.shape == "Table":
        version = documents.metadata(value).get("resourceVersion", "")
        return table([row(value, kind, form, now)], kind, form, {"resourceVersion": version})
    return documents.dump(partial(value, form.version))


def listed(items: Sequence[bytes], kind: ResourceType, form: Form, now: datetime, metadata: JsonObject) -> bytes:
    """A list of objects; `items` have the requested version."""
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
    # Items of built-in lists have no kind and apiVersion.
    length = len(kind.prefix) + 1
    return head + b',"items":[' + b",".join([b"{" + raw[length:] for raw in items]) + b"]}"


def line(raw: bytes, kind: ResourceType, form: Form, now: datetime, *, headed: bool) -> bytes:
    """The object of a watch event; `raw` has the requested version."""
    if not form.shape:
        return raw
    value = documents.load_object(raw)
    if form.shape == "Table":
        metadata = {"resourceVersion": documents.metadata(value).get("resourceVersion", "")}
        return table([row(value, kind, form, now)], kind, form, metadata, headed=headed)
    return documents.dump(partial(value, form.version))


def bookmark(version: int, kind: ResourceType, form: Form, *, initial_end: bool) -> bytes:
    """The line of a bookmark event."""
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
