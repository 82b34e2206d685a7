# SPDX-License-Identifier: Apache-2.0
"""`format` and `strings.quote`: values as text."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.codec.documents import JsonValue

_CLAUSE: Final = re.compile(r"%(?:%|(?:\.(\d+))?(.))", re.DOTALL)
_ESCAPES: Final = {
    "\\": "\\\\",
    '"': '\\"',
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}
_ZEROS: Final = re.compile(r"(\.\d*[1-9])0+")
_RAISED: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def formatted(pattern: str, values: list[JsonValue]) -> str:
    """The pattern with its clauses replaced by the values."""
    left = iter(values)

    def clause(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        value = next(left, left)
        if value is left:
            raise CelError(f"index {len(values)} out of range")
        return _clause(match[2], 6 if match[1] is None else int(match[1]), value)

    return _CLAUSE.sub(clause, pattern)


def quote(text: str) -> str:
    """The text as a string literal of the language."""
    return f'"{"".join(_ESCAPES.get(char, char) for char in text)}"'


def text_of(value: JsonValue, *, inside: bool = False) -> str:
    """A value as `%s` writes it."""
    match value:
        case None | True | False:
            return {None: "null", True: "true", False: "false"}[value]
        case str():
            return quote(value) if inside else value
        case list():
            return f"[{', '.join(text_of(item, inside=True) for item in value)}]"
        case dict():
            pairs = sorted((text_of(key, inside=True), text_of(entry, inside=True)) for key, entry in value.items())
            return f"{{{', '.join(f'{key}:{entry}' for key, entry in pairs)}}}"
        case float():
            return _number(value)
        case timedelta():
            return f"{Decimal(str(value.total_seconds())).normalize():f}s"
        case datetime():
            return _ZEROS.sub(r"\1", value.isoformat()).replace("+00:00", "Z")
    return str(value)


def _number(value: float) -> str:
    """The shortest text of the number; large and small ones have an exponent."""
    if not math.isfinite(value):
        return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
    exact = Decimal(repr(value)).normalize()
    exponent = exact.adjusted()
    if -4 <= exponent < 6:
        return f"{exact:f}"
    return f"{exact.scaleb(-exponent):f}e{exponent:+03d}"


def _clause(kind: str, digits: int, value: JsonValue) -> str:
    whole = isinstance(value, int) and not isinstance(value, bool)
    match kind:
        case "s":
            return text_of(value)
        case "d" if whole:
            return str(value)
        case "f" if whole or isinstance(value, float):
            return f"{value:.{digits}f}"
        case "e" if whole or isinstance(value, float):
            mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
            return f"{mantissa}×10{exponent.lstrip('+').translate(_RAISED)}"
        case "b" if isinstance(value, int):
            return f"{int(value):b}"
        case "o" if whole:
            return f"{value:o}"
        case "x" | "X" if whole or isinstance(value, str):
            shown = value.encode().hex() if isinstance(value, str) else f"{value:x}"
            return shown.upper() if kind == "X" else shown
    if kind not in "sdfeboxX":
        raise CelError(f'could not parse formatting clause: unrecognized formatting clause "{kind}"')
    raise CelError(f"error during formatting: %{kind} cannot be used on {type(value).__name__}")
