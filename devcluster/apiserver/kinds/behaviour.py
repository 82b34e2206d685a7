# SPDX-License-Identifier: Apache-2.0
"""The behaviour of a kind while its objects are written and shown.

The base class is enough for most kinds: separate spec and status, and a generation that grows with the spec. All
methods are pure; `default` and the `prepare_` methods change the given object in place.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.codec.times import duration
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.schema.node import TypeNode

# Changes of these do not increase the generation.
_NOT_SPEC: Final = frozenset({"apiVersion", "kind", "metadata", "status"})


@dataclass(slots=True)
class RequestContext:
    """The context of a write: time, namespace, subresource and user."""

    now: str
    namespace: str = ""
    subresource: str = ""
    requester: JsonObject = field(default_factory=dict)
    """The user, as a `UserInfo`."""


class KindBehaviour:
    """The behaviour of a kind; this base is that of most kinds."""

    generation = False
    """Whether objects have a generation."""
    has_status = False
    """Whether the status is written only through its subresource."""
    creates_on_update = False
    """Whether a PUT creates an absent object."""
    unconditional = True
    """Whether a PUT needs no resource version."""
    warning = ""
    """The warning of every request for its objects."""

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Set what only the server may set in a new object."""
        if self.has_status:
            value.pop("status", None)
        if self.generation:
            value["metadata"]["generation"] = 1

    def prepare_update(self, value: JsonObject, old: JsonObject, request_context: RequestContext) -> None:
        """Keep what this write may not change, and update the generation."""
        counts = self.generation
        if request_context.subresource in ("status", "approval"):
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
        """Restore the metadata that a write of the status may not change."""

    def spec_changed(self, value: JsonObject, old: JsonObject) -> bool:
        """Whether the generation must grow."""
        return any(value.get(name) != old.get(name) for name in value.keys() | old.keys() if name not in _NOT_SPEC)

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object, beyond its metadata and schema."""
        return []

    def warnings(self, value: JsonObject, old: JsonObject | None) -> list[str]:
        """The warnings about a created or changed object: what is valid but has no use or is not recommended."""
        return []

    def fields(self, value: JsonObject) -> dict[str, str]:
        """The fields that selectors can use, beyond name and namespace."""
        return {}

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """The cells of its table row; None for name and age only."""
        return None

    def grace(self, value: JsonObject, requested: int | None) -> int | None:
        """The grace period of a deletion in seconds; None if the kind has none."""
        return None

    @property
    def ignored_by_main(self) -> JsonObject | None:
        """The fields that a write of the object does not own."""
        return {"f:status": {}} if self.has_status else None

    @property
    def ignored_by_status(self) -> JsonObject | None:
        """The fields that a write of the status does not own."""
        return {"f:spec": {}} if self.has_status else None

    @property
    def selectable(self) -> tuple[str, ...]:
        """The names of `fields`."""
        return ()


class Plain(KindBehaviour):
    """A built-in kind without a behaviour of its own."""

    def __init__(self, *, has_status: bool, generation: bool) -> None:
        self.has_status = has_status
        self.generation = generation


def of_definition(node: TypeNode, *, has_status: bool) -> KindBehaviour:
    """The behaviour of a built-in kind without a module, from its definition."""
    return Plain(has_status=has_status, generation=has_status and "spec" in node.properties)


def age(value: JsonObject, now: datetime) -> str:
    """The age of an object, as tables show it."""
    return duration(documents.metadata(value).get("creationTimestamp"), now)
