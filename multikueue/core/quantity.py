# SPDX-License-Identifier: Apache-2.0
"""Kubernetes quantities with exact arithmetic.

Owns parsing of every suffix and exponent, comparison by value, rounding up, and the canonical text. No value passes
through a float. Amounts finer than a nano-unit are rounded up on parsing, as the API server does. Saturation and
Unlimited are the engine's (`docs/spec/engine.md §0.2`).
"""

from __future__ import annotations

import re
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache, total_ordering
from typing import Final, Self

from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt

_NANO: Final = 10**9
_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_PATTERN: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_MAX_LENGTH: Final = 128  # far past what any amount needs
_MAX_EXPONENT: Final = 60  # far past int64; keeps "1e999999999" from filling the memory


class QuantityError(BadInput):
    """Text that is not a quantity."""


class Format(StrEnum):
    """Which family of suffixes a quantity is printed with."""

    BINARY_SI = "BinarySI"
    DECIMAL_SI = "DecimalSI"
    DECIMAL_EXPONENT = "DecimalExponent"


@total_ordering
class Quantity:
    """An exact amount, kept as whole nano-units, and the format it was written in."""

    __slots__ = ("_nano", "format")

    def __init__(self, nano: int, format: Format = Format.DECIMAL_SI) -> None:
        self._nano = nano
        self.format = format

    @classmethod
    def parse(cls, text: str | int | float) -> Self:
        """The quantity that a manifest wrote. Raises `QuantityError`."""
        if isinstance(text, int) and not isinstance(text, bool) and text.bit_length() > 256:
            raise QuantityError(f"{excerpt(text)} is not a quantity such as 500m, 2, 1.5Gi or 1e3")
        return cls(*_parse(str(text)))

    @classmethod
    def of(cls, units: int, format: Format = Format.DECIMAL_SI) -> Self:
        """That many whole units."""
        return cls(units * _NANO, format)

    @classmethod
    def of_milli(cls, milli: int) -> Self:
        """That many thousandths, as processor time is counted."""
        return cls(milli * (_NANO // 1000), Format.DECIMAL_SI)

    def __float__(self) -> float:
        """The amount in units, as near as a float comes."""
        return self._nano / _NANO

    def ceil(self) -> int:
        """Whole units, rounded towards positive infinity."""
        return -(-self._nano // _NANO)

    def milli_ceil(self) -> int:
        """Thousandths of a unit, rounded towards positive infinity."""
        return -(-self._nano // (_NANO // 1000))

    def exact(self) -> Fraction:
        """The amount in units, without any rounding."""
        return Fraction(self._nano, _NANO)

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self._nano + other._nano, self.format if self._nano else other.format)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self._nano - other._nano, self.format if self._nano else other.format)

    def __mul__(self, factor: int) -> Quantity:
        return Quantity(self._nano * factor, self.format)

    __rmul__ = __mul__

    def times(self, factor: Quantity) -> Quantity:
        """The product of two quantities, rounded up to a nano-unit."""
        return Quantity(-(-self._nano * factor._nano // _NANO), self.format)

    def __neg__(self) -> Quantity:
        return Quantity(-self._nano, self.format)

    def __bool__(self) -> bool:
        return self._nano != 0

    def __eq__(self, other: object) -> bool:
        return self._nano == other._nano if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self._nano < other._nano

    def __hash__(self) -> int:
        return hash(self._nano)

    def __str__(self) -> str:
        """The canonical form: the largest suffix that leaves a whole number."""
        return _print(self._nano, self.format)

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"


@lru_cache(maxsize=4096)
def _parse(text: str) -> tuple[int, Format]:
    match = _PATTERN.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise QuantityError(f"{excerpt(text)} is not a quantity such as 500m, 2, 1.5Gi or 1e3")
    suffix, exponent = match["suffix"] or "", match["exponent"]
    amount = Fraction(match["number"]) * _NANO
    if suffix in _BINARY:
        amount *= _BINARY[suffix]
        format = Format.BINARY_SI
    elif exponent is not None:
        if abs(int(exponent)) > _MAX_EXPONENT:
            raise QuantityError(f"{excerpt(text)} has an exponent beyond {_MAX_EXPONENT}")
        amount *= Fraction(10) ** int(exponent)
        format = Format.DECIMAL_EXPONENT
    else:
        amount *= Fraction(10) ** _DECIMAL[suffix]
        format = Format.DECIMAL_SI
    # Kubernetes rounds the magnitude up, away from zero, when it drops what is finer than a nano-unit.
    nano = -(-amount.numerator // amount.denominator)
    return (-nano if match["sign"] == "-" else nano), format


def _print(nano: int, format: Format) -> str:
    sign, nano = ("-", -nano) if nano < 0 else ("", nano)
    if nano == 0:
        return "0"
    units, rest = divmod(nano, _NANO)
    # A binary quantity below 1024 or with a fraction has no binary form; Kubernetes falls back to decimal.
    if format is Format.BINARY_SI and rest == 0 and units >= 1024:
        suffix, factor = "", 1
        for candidate, size in _BINARY.items():
            if units % size:
                break
            suffix, factor = candidate, size
        return f"{sign}{units // factor}{suffix}"
    exponent = -9
    while nano % 1000 == 0 and exponent < 18:
        nano //= 1000
        exponent += 3
    if format is Format.DECIMAL_EXPONENT:
        return f"{sign}{nano}" if exponent == 0 else f"{sign}{nano}e{exponent}"
    suffix = next(name for name, power in _DECIMAL.items() if power == exponent)
    return f"{sign}{nano}{suffix}"
