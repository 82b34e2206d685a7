# SPDX-License-Identifier: Apache-2.0
"""What a kind may do of its own while its objects are written and shown.

Owns the base that most kinds need nothing beyond: spec and status kept apart, the generation that grows with the spec.
All of it is pure; objects given to be defaulted or prepared are the caller's to change.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from multikueue.devcluster.apiserver import documents
from multikueue.devcluster.apiserver.documents import JsonObject, JsonValue
from multikueue.devcluster.apiserver.errors import Cause
from multikueue.devcluster.apiserver.schema.node import Node
from multikueue.devcluster.apiserver.words import duration

# Everything but these belongs to what makes the generation grow.
_NOT_SPEC: Final = frozenset({"apiVersion", "kind", "metadata", "status"})


@dataclass(slots=True)
class Occasion:
    """Under which circumstances an object is written."""

    now: str
    namespace: str = ""
    subresource: str = ""
    requester: JsonObject = field(default_factory=dict)
    """The user who writes, as `UserInfo` is written."""


class Behaviour:
    """A kind that does nothing of its own."""

    generation = False
    """The object counts the changes of its spec."""
    has_status = False
    """Status is written through its subresource only."""
    creates_on_update = False
    """PUT makes what is not there."""
    unconditional = True
    """PUT without a resource version is let in."""

    def default(self, value: JsonObject) -> None:
        """Fill in what clients may leave out."""

    def prepare_create(self, value: JsonObject, occasion: Occasion) -> None:
        """Set what only the server may set."""
        if self.has_status:
            value.pop("status", None)
        if self.generation:
            value["metadata"]["generation"] = 1

    def prepare_update(self, value: JsonObject, old: JsonObject, occasion: Occasion) -> None:
        """Keep what this write may not change, and count changes."""
        counts = self.generation
        if occasion.subresource in ("status", "approval"):
            counts = False
            status = value.get("status", None)
            metadata = value["metadata"]
            for name in [name for name in value if name not in ("apiVersion", "kind", "metadata", "status")]:
                if name not in old:
                    del value[name]
            value.update({k: v for k, v in old.items() if k not in ("apiVersion", "kind", "metadata", "status")})
            if status is None:
                value.pop("status", None)
            self.keep_metadata(metadata, old["metadata"])
        elif self.has_status:
            if "status" in old:
                value["status"] = old["status"]
            else:
                value.pop("status", None)
        if self.generation:
            before = old["metadata"].get("generation", 0)
            value["metadata"]["generation"] = before + 1 if counts and self.spec_changed(value, old) else before

    def keep_metadata(self, metadata: JsonObject, old: JsonObject) -> None:
        """What a write of the status may not change in the metadata."""

    def spec_changed(self, value: JsonObject, old: JsonObject) -> bool:
        """Whether anything changed that the generation counts."""
        return any(value.get(name) != old.get(name) for name in value.keys() | old.keys() if name not in _NOT_SPEC)

    def validate(self, value: JsonObject, old: JsonObject | None, occasion: Occasion) -> list[Cause]:
        """What is wrong with it, beyond its metadata and schema."""
        return []

    def fields(self, value: JsonObject) -> dict[str, str]:
        """What field selectors may ask for, beyond name and namespace."""
        return {}

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """The cells of its table row; None when name and age are all there is."""
        return None

    def grace(self, value: JsonObject, asked: int | None) -> int | None:
        """How many seconds it may take to end; None when its kind is never given any."""
        return None

    @property
    def ignored_by_main(self) -> JsonObject | None:
        """The fields that nobody comes to own through the object itself."""
        return {"f:status": {}} if self.has_status else None

    @property
    def ignored_by_status(self) -> JsonObject | None:
        """The fields that nobody comes to own through the status."""
        return {"f:spec": {}} if self.has_status else None

    @property
    def selectable(self) -> tuple[str, ...]:
        """The names that `fields` knows."""
        return ()


class Plain(Behaviour):
    """A built-in kind about which only its definition tells."""

    def __init__(self, *, has_status: bool, generation: bool) -> None:
        self.has_status = has_status
        self.generation = generation


def of_definition(node: Node, *, has_status: bool) -> Behaviour:
    """What a built-in kind does that has no module: its status is kept apart, and its spec is counted."""
    return Plain(has_status=has_status, generation=has_status and "spec" in node.properties)


def age(value: JsonObject, now: datetime) -> str:
    """How old an object is, as tables show it."""
    return duration(documents.metadata(value).get("creationTimestamp"), now)
