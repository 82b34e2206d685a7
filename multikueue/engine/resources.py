# SPDX-License-Identifier: Apache-2.0
"""Amounts of resources as the engine counts them (`docs/spec/engine.md §0.2`).

Owns the conversion from Kubernetes quantities (cpu in milli-units, everything else in whole units, rounded up),
saturation at 64 bits, the value Unlimited of quotas, the text of an amount, and the order in which the resources of a
pod set are tried. Amounts are plain `int`. `core.quantity` parses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from multikueue.core.quantity import Format, Quantity

MAX_INT64: Final = 2**63 - 1
MIN_INT64: Final = -(2**63)
UNLIMITED: Final = 1 << 120
"""Greater than any amount, and still greater after any amount was taken from it; `add` and `subtract` keep it exact."""

CPU: Final = "cpu"
PODS: Final = "pods"
_BINARY: Final = frozenset({"memory", "ephemeral-storage"})
_BINARY_PREFIX: Final = "hugepages-"

Requests = Mapping[str, int]


class FlavorResource(NamedTuple):
    """The unit of quota: a resource of a flavor."""

    flavor: str
    resource: str

    def __str__(self) -> str:
        return f"{self.flavor}/{self.resource}"


Usage = Mapping[FlavorResource, int]


def clamp(value: int) -> int:
    """`value` limited to the range of 64 bits."""
    return MAX_INT64 if value > MAX_INT64 else MIN_INT64 if value < MIN_INT64 else value


def add(left: int, right: int) -> int:
    """The saturating sum; Unlimited plus anything is Unlimited."""
    if left == UNLIMITED or right == UNLIMITED:
        return UNLIMITED
    return clamp(left + right)


def subtract(left: int, right: int) -> int:
    """The saturating difference: U-x=U, x-U is the least amount, U-U=0."""
    if left == UNLIMITED:
        return 0 if right == UNLIMITED else UNLIMITED
    return MIN_INT64 if right == UNLIMITED else clamp(left - right)


def amount(resource: str, quantity: Quantity) -> int:
    """The amount of `quantity` of `resource`, rounded up and within 64 bits."""
    return clamp(quantity.milli_ceil() if resource == CPU else quantity.ceil())


def quota(resource: str, quantity: Quantity) -> int:
    """As `amount`, but Unlimited if it does not fit into 64 bits."""
    value = quantity.milli_ceil() if resource == CPU else quantity.ceil()
    limit = MAX_INT64 // 1000 * 1000 if resource == CPU else MAX_INT64
    return UNLIMITED if value >= limit else max(value, MIN_INT64)


@lru_cache(maxsize=8192)
def amount_of(resource: str, text: str) -> int:
    """The amount of the quantity `text`. Raises `QuantityError`."""
    return amount(resource, Quantity.parse(text))


@lru_cache(maxsize=8192)
def quota_of(resource: str, text: str) -> int:
    """The quota `text`. Raises `QuantityError`."""
    return quota(resource, Quantity.parse(text))


def quantity_of(resource: str, value: int) -> Quantity:
    """The Kubernetes quantity of an amount."""
    value = clamp(value)
    if resource == CPU:
        return Quantity.of_milli(value)
    binary = resource in _BINARY or resource.startswith(_BINARY_PREFIX)
    # Kubernetes has no binary form for values that are not multiples of 1024.
    return Quantity.of(value, Format.BINARY_SI if binary and value % 1024 == 0 else Format.DECIMAL_SI)


@lru_cache(maxsize=8192)
def text(resource: str, value: int) -> str:
    """The canonical text of an amount, as messages print it."""
    # What remains of an Unlimited quota is shown as Unlimited too.
    return "<unlimited>" if value > MAX_INT64 else str(quantity_of(resource, value))


def texts(requests: Requests) -> dict[str, str]:
    """The texts of all amounts, by resource name."""
    return {resource: text(resource, requests[resource]) for resource in sorted(requests)}


@lru_cache(maxsize=4096)
def fnv1a(name: str) -> int:
    """The 64-bit FNV-1a hash of a resource name."""
    digest = 0xCBF29CE484222325
    for byte in name.encode():
        digest = ((digest ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return digest


def in_evaluation_order(names: Iterable[str]) -> list[str]:
    """Resource names in the order of `docs/spec/engine.md §3.3`."""
    return sorted(names, key=fnv1a)
