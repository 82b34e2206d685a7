# SPDX-License-Identifier: Apache-2.0
"""The costs of functions by the maximal sizes of their arguments, as measured on a real server."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from devcluster.apiserver.cel.signatures import FORMATS
from devcluster.apiserver.cel.types import Type

BOUNDLESS: Final = 2**64 - 1
SCALARS: Final = frozenset({"bool", "int", "uint", "double", "duration", "timestamp"})
_TEXT, _REGEX, _NAMED = 0.1, 0.25, 32


class Unjudged(Exception):
    """The cost of an expression is unknown."""


@dataclass(frozen=True, slots=True)
class Priced:
    """A call: its arguments, the receiver first, and the maximal size of the receiver's items if it is a list."""

    sizes: Sequence[int]
    kinds: Sequence[Type]
    item: int
    is_method: bool


@dataclass(frozen=True, slots=True)
class FoundPrice:
    """The cost, and the maximal size of the result if known."""

    cost: int
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Price:
    """How a function's cost is computed, and whether it reads the items of a list."""

    of: Callable[[Priced], FoundPrice]
    items: bool = False


def part(size: int, factor: float = _TEXT) -> int:
    """The cost of a pass over a value of a size."""
    return min(math.ceil(size * factor), BOUNDLESS)


def _matched(call: Priced) -> FoundPrice:
    if not call.is_method:
        return FoundPrice(1)
    return FoundPrice(part(call.sizes[0] + 1) * part(call.sizes[1], _REGEX))


def _found_by_pattern(call: Priced) -> FoundPrice:
    return FoundPrice(_matched(call).cost, call.sizes[0])


def _contained(call: Priced) -> FoundPrice:
    return FoundPrice(part(call.sizes[0]) * part(call.sizes[1]))


def _through_items(call: Priced) -> FoundPrice:
    """The cost of a function that reads each item of a list, or a string once."""
    if call.kinds[0].name == "string":
        return FoundPrice(part(call.sizes[0]))
    inner = call.kinds[0].parameters[:1]
    if not inner or inner[0].name not in ("string", "int", "uint", "double", "bool"):
        raise Unjudged
    return FoundPrice(call.sizes[0] * (1 + part(call.item)))


def _joined(call: Priced) -> FoundPrice:
    count, separator = call.sizes[0], call.sizes[1] if len(call.sizes) > 1 else 0
    size = count * call.item + max(count - 1, 0) * separator
    return FoundPrice(part(size), size)


def _to_string(call: Priced) -> FoundPrice:
    if call.kinds[0].name in ("bytes", "dyn"):
        return FoundPrice(part(call.sizes[0]), call.sizes[0])
    return FoundPrice(1)


def _to_bytes(call: Priced) -> FoundPrice:
    return FoundPrice(part(call.sizes[0]), call.sizes[0] * 4)


def _address_contained(base: int) -> Callable[[Priced], FoundPrice]:
    return lambda call: FoundPrice(base + (part(call.sizes[1]) if call.kinds[1].name == "string" else 0))


def _sets(times: int) -> Callable[[Priced], FoundPrice]:
    return lambda call: FoundPrice(times * call.sizes[0] * call.sizes[1] + 1)


_ONE: Final = Price(lambda _: FoundPrice(1))
_ARGUMENT: Final = Price(lambda call: FoundPrice(part(call.sizes[1])))
_READ: Final = Price(lambda call: FoundPrice(part(call.sizes[0])))
_KEPT: Final = Price(lambda call: FoundPrice(part(call.sizes[0]), call.sizes[0]))
_ITEMS: Final = Price(_through_items, items=True)
PRICES: Final[dict[str, Price]] = {
    **dict.fromkeys(("!", "neg", "-", "*", "/", "%", "size", "type", "int", "uint", "double", "bool"), _ONE),
    **dict.fromkeys(("<", "<=", ">", ">=", *(f"format.{name}" for name in FORMATS)), _ONE),
    **dict.fromkeys(("timestamp", "duration", "charAt", "isURL", "hasValue", "value", "or", "orValue"), _ONE),
    **dict.fromkeys(("optional.none", "optional.of", "optional.ofNonZeroValue", "first", "last"), _ONE),
    **dict.fromkeys(("family", "isUnspecified", "isLoopback", "isLinkLocalMulticast", "isLinkLocalUnicast"), _ONE),
    **dict.fromkeys(("isGlobalUnicast", "masked", "prefixLength", "format.named"), _ONE),
    **dict.fromkeys(("getScheme", "getHost", "getHostname", "getPort", "getEscapedPath"), _ONE),
    **dict.fromkeys(("sign", "isInteger", "asInteger", "asApproximateFloat", "add", "sub"), _ONE),
    **dict.fromkeys(("isLessThan", "isGreaterThan", "compareTo", "major", "minor", "patch"), _ONE),
    **dict.fromkeys(("getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getMonth"), _ONE),
    **dict.fromkeys(("getHours", "getMinutes", "getSeconds", "getMilliseconds"), _ONE),
    **dict.fromkeys(("startsWith", "endsWith"), _ARGUMENT),
    **dict.fromkeys(("lowerAscii", "upperAscii", "trim", "substring"), _KEPT),
    **dict.fromkeys(("url", "cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver", "format"), _READ),
    **dict.fromkeys(("isSorted", "sum", "min", "max", "indexOf", "lastIndexOf"), _ITEMS),
    "dyn": Price(lambda call: FoundPrice(1, call.sizes[0])),
    "ip": Price(lambda call: FoundPrice(1 if call.is_method else part(call.sizes[0]))),
    "contains": Price(_contained),
    "matches": Price(_matched),
    "find": Price(_found_by_pattern),
    "findAll": Price(_found_by_pattern),
    "replace": Price(lambda call: FoundPrice(2 * part(call.sizes[0]))),
    "split": Price(lambda call: FoundPrice(2 * part(call.sizes[0]), call.sizes[0])),
    "join": Price(_joined, items=True),
    "strings.quote": _READ,
    "string": Price(_to_string),
    "bytes": Price(_to_bytes),
    "containsIP": Price(_address_contained(4)),
    "containsCIDR": Price(_address_contained(7)),
    "sets.contains": Price(_sets(1)),
    "sets.intersects": Price(_sets(1)),
    "sets.equivalent": Price(_sets(2)),
    "validate": Price(lambda call: FoundPrice(part(call.sizes[1]) * _NAMED)),
}
"""The costs by function; those of other functions have not been measured."""
