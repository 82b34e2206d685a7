# SPDX-License-Identifier: Apache-2.0
"""Markers for the schema of a field in a CustomResourceDefinition.

They are in `Annotated[...]` with the Python type. Only `api.crds` reads them; pydantic ignores them, so that they cost
nothing when objects are parsed. A wire model therefore accepts what an older or newer API server stored; the server
enforces the schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DNS_SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
DNS_LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
LABEL_KEY: Final = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
KIND_NAME: Final = r"^(?i)[a-z]([-a-z0-9]*[a-z0-9])?$"
CONDITION_REASON: Final = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"
QUANTITY: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)


@dataclass(frozen=True, slots=True)
class CelRule:
    """One CEL rule and the message of its violation."""

    rule: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """Keywords of a structural schema; those left None are not written."""

    format: str | None = None
    pattern: str | None = None
    enum: type[StrEnum] | tuple[str, ...] | None = None
    minimum: int | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    max_properties: int | None = None
    list_type: str | None = None
    map_keys: tuple[str, ...] | None = None
    map_type: str | None = None
    rules: tuple[CelRule, ...] = ()
    defaulted: bool = False
    """The API server fills in the Python default too."""
    required: bool | None = None
    """Overrides that a field is required if it has no Python default."""
    preserve_unknown: bool = False
    reference: str | None = None
    """The name of a schema that is checked in as data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column that kubectl prints; `priority` 1 shows it with `-o wide` only."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0


AGE: Final = Column(name="Age", path=".metadata.creationTimestamp", type="date")
IMMUTABLE: Final = CelRule("self == oldSelf", "field is immutable")
UNIQUE: Final = CelRule("size(self.filter(i, size(self.filter(j, j == i)) > 1)) == 0", "must be unique")
