# SPDX-License-Identifier: Apache-2.0
"""Access to the fields of API objects that are not trusted.

Reads fields by their v1beta2 names, with errors that name the path. Takes plain mappings, as from the store and `mkctl
simulate`, or models that dump themselves as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from sys import intern
from typing import Protocol, cast

from multikueue.core.conditions import Condition
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.parsing import MAX_INT64, parse_signed
from multikueue.core.printable import excerpt
from multikueue.core.quantity import Quantity, QuantityError
from multikueue.core.selectors import LabelSelector, Requirement
from multikueue.core.taints import Toleration
from multikueue.core.timestamps import parse_time

Json = Mapping[str, object]


class Dumpable(Protocol):
    """A wire model."""

    def model_dump(self, *, mode: str, by_alias: bool, exclude_none: bool) -> dict[str, object]:
        """The object as JSON values under its wire names."""


Source = Json | Dumpable


def read(source: Source) -> Json:
    """The object as a mapping."""
    if isinstance(source, Mapping):
        return source
    return source.model_dump(mode="json", by_alias=True, exclude_none=True)


def mapping(source: Json, name: str) -> Json:
    """A nested object; empty if absent."""
    value = source.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadInput(f"{name}: expected an object, found {excerpt(value)}")
    return cast(Json, value)


def items(source: Json, name: str) -> list[Json]:
    """A list of objects; empty if absent."""
    value = source.get(name)
    if value is None:
        return []
    if not isinstance(value, list | tuple) or not all(isinstance(item, Mapping) for item in value):
        raise BadInput(f"{name}: expected a list of objects, found {excerpt(value)}")
    return [cast(Json, item) for item in value]


def strings(source: Json, name: str) -> tuple[str, ...]:
    """A list of strings; empty if absent."""
    value = source.get(name)
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise BadInput(f"{name}: expected a list of strings, found {excerpt(value)}")
    return tuple(str(item) for item in value)


def labels(source: Json, name: str) -> dict[str, str]:
    """A map of strings; empty if absent."""
    return {str(key): intern(str(value)) for key, value in mapping(source, name).items()}


def text(source: Json, name: str) -> str:
    """A string; empty if absent."""
    value = source.get(name)
    return "" if value is None else str(value)


def interned(source: Json, name: str) -> str:
    """A string that many objects share, stored once; empty if absent."""
    return intern(text(source, name))


def integer(source: Json, name: str) -> int | None:
    """A whole number, or None."""
    value = source.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return parse_signed(value, field=name)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1 or abs(value) > MAX_INT64:
        raise BadInput(f"{name}: expected a whole number, found {excerpt(value)}")
    return int(value)


def whole(source: Json, name: str, default: int) -> int:
    """A whole number, or `default`."""
    value = integer(source, name)
    return default if value is None else value


def moment(source: Json, name: str) -> datetime | None:
    """A time, or None."""
    value = source.get(name)
    if value is None or isinstance(value, datetime):
        return value
    return parse_time(str(value))


def quantities(source: Json, name: str) -> dict[str, Quantity]:
    """Quantities by resource."""
    try:
        return {str(key): quantity(value) for key, value in mapping(source, name).items()}
    except QuantityError as error:
        raise BadInput(f"{name}: {error}") from error


def quantity(value: object) -> Quantity:
    """A quantity, written as text or as a number."""
    return value if isinstance(value, Quantity) else Quantity.parse(str(value))


def weight(source: Json) -> float:
    """`fairSharing.weight`; 1 if absent."""
    value = mapping(source, "fairSharing").get("weight")
    return 1.0 if value is None else float(quantity(value).exact())


def name_of(source: Json) -> str:
    """`metadata.name`."""
    return text(mapping(source, "metadata"), "name")


def key_of(source: Json) -> Key:
    """`metadata.namespace` and `metadata.name`."""
    metadata = mapping(source, "metadata")
    return Key(text(metadata, "namespace"), text(metadata, "name"))


def deleting(source: Json) -> bool:
    """Whether deletion has begun."""
    return mapping(source, "metadata").get("deletionTimestamp") is not None


def selector(source: Json, name: str) -> LabelSelector | None:
    """A label selector; None if absent, which matches nothing."""
    if source.get(name) is None:
        return None
    value = mapping(source, name)
    equal = LabelSelector.of(labels(value, "matchLabels")).requirements
    return LabelSelector((*equal, *requirements(value, "matchExpressions")))


def requirements(source: Json, name: str) -> tuple[Requirement, ...]:
    """Expressions of a selector or of a node selector term."""
    return tuple(
        Requirement(text(item, "key"), text(item, "operator"), strings(item, "values")) for item in items(source, name)
    )


def tolerations(source: Json) -> tuple[Toleration, ...]:
    """`tolerations` of a pod or a flavor."""
    return tuple(
        Toleration(
            key=text(item, "key"),
            operator=text(item, "operator") or "Equal",
            value=text(item, "value"),
            effect=text(item, "effect"),
        )
        for item in items(source, "tolerations")
    )


def conditions(source: Json, *, keep_messages_of: frozenset[str]) -> tuple[Condition, ...]:
    """`conditions`; only those of `keep_messages_of` keep their message, which would be most of a workload's size."""
    found = []
    for item in items(source, "conditions"):
        kind = interned(item, "type")
        found.append(
            Condition(
                type=kind,
                status=interned(item, "status"),
                reason=interned(item, "reason"),
                message=text(item, "message") if kind in keep_messages_of else "",
                last_transition_time=moment(item, "lastTransitionTime") or _BEGINNING,
                observed_generation=None,
            )
        )
    return tuple(found)


_BEGINNING = parse_time("1970-01-01T00:00:00Z")
