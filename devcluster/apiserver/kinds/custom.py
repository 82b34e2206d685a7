# SPDX-License-Identifier: Apache-2.0
"""The behaviour of custom resources, from their definition."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from devcluster.apiserver.codec import documents, times
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.codec.times import read_time
from devcluster.apiserver.kinds.behaviour import KindBehaviour, RequestContext

_STEP: Final = re.compile(
    r"\.((?:[^.\[\]\\]|\\.)+)|\[(?:'([^']*)'|\"([^\"]*)\"|(\*|\d+)|\?\(@\.([\w.]+)\s*==\s*[\"']([^\"']*)[\"']\))\]"
)


class CustomBehaviour(KindBehaviour):
    """The behaviour of one version of a definition."""

    generation = True

    def __init__(self, version: JsonObject) -> None:
        self.has_status = "status" in (version.get("subresources") or {})
        self._selectable = tuple(
            entry["jsonPath"].lstrip(".") for entry in documents.items(version, "selectableFields")
        )
        self._columns = [
            (entry["jsonPath"], entry["type"]) for entry in documents.items(version, "additionalPrinterColumns")
        ]

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Remove the status of a new one, and set the first generation."""
        if self.has_status:
            value.pop("status", None)
        value["metadata"]["generation"] = 1

    def keep_metadata(self, metadata: JsonObject, old: JsonObject) -> None:
        """A write of the status changes only the managed fields of the metadata."""
        kept: JsonObject = {name: metadata[name] for name in ("managedFields", "resourceVersion") if name in metadata}
        metadata.clear()
        metadata.update({name: entry for name, entry in old.items() if name != "managedFields"})
        metadata.update(kept)

    def spec_changed(self, value: JsonObject, old: JsonObject) -> bool:
        """Anything but the metadata counts, and but the status if it is a subresource."""
        ignored = {"metadata", "status"} if self.has_status else {"metadata"}
        return any(value.get(name) != old.get(name) for name in value.keys() | old.keys() if name not in ignored)

    def fields(self, value: JsonObject) -> dict[str, str]:
        """The fields that selectors can use."""
        found = {}
        for path in self._selectable:
            entry = next(documents.walk(value, path), "")
            found[path] = ("true" if entry else "false") if isinstance(entry, bool) else str(entry)
        return found

    @property
    def selectable(self) -> tuple[str, ...]:
        """The names of `fields`."""
        return self._selectable

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """The name, and the definition's columns."""
        if not self._columns:
            return None
        return [value["metadata"]["name"], *(_cell(value, path, kind, now) for path, kind in self._columns)]

    @property
    def ignored_by_status(self) -> JsonObject | None:
        """A write of the status owns nothing else."""
        return {"f:metadata": {}, "f:spec": {}} if self.has_status else None


def _cell(value: JsonObject, path: str, kind: str, now: datetime) -> JsonValue:
    found = find(value, path)
    if not found:
        return None
    first = found[0]
    if kind == "string":
        if len(found) > 1:
            return " ".join(_text(entry) for entry in found)
        return _text(first)
    if kind == "date":
        try:
            return times.duration(first, now) if isinstance(first, str) else "<invalid>"
        except ValueError:
            return "<invalid>"
    if kind == "integer" and isinstance(first, int | float) and not isinstance(first, bool):
        return int(first)
    if kind == "number" and isinstance(first, int | float) and not isinstance(first, bool):
        return first
    if kind == "boolean" and isinstance(first, bool):
        return first
    return None


def _text(value: JsonValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else documents.dump(value).decode()


def find(value: JsonValue, path: str) -> list[JsonValue]:
    """The values at a JSONPath of the form that columns use."""
    current = [value]
    position = 0
    text = path if path.startswith((".", "[")) else f".{path}"
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            return []
        position = match.end()
        name = match[1] or match[2] or match[3]
        following: list[JsonValue] = []
        for entry in current:
            if name is not None:
                key = name.replace("\\.", ".")
                if isinstance(entry, dict) and key in entry:
                    following.append(entry[key])
            elif match[4] == "*":
                following += (
                    entry if isinstance(entry, list) else list(entry.values()) if isinstance(entry, dict) else []
                )
            elif match[4] is not None:
                if isinstance(entry, list) and int(match[4]) < len(entry):
                    following.append(entry[int(match[4])])
            elif isinstance(entry, list):
                following += [item for item in entry if str(next(documents.walk(item, match[5]), "")) == match[6]]
        current = following
    return current


def creation_cells(value: JsonObject, now: datetime) -> list[JsonValue]:
    """Name and age, for kinds without columns."""
    created = documents.metadata(value).get("creationTimestamp")
    shown = times.span((now - read_time(created)).total_seconds()) if created else "<unknown>"
    return [documents.metadata(value).get("name", ""), shown]
