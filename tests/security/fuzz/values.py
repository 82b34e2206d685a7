# SPDX-License-Identifier: Apache-2.0
"""Values that break programs: odd strings, numbers, times and structures, and odd variants of valid ones.

Owns what is put into a field, not which field. What would be long is a marker, which `writes.sent` makes to what it
expands to: nested lists, a number of many digits, a text that repeats itself. A strategy of a schema keeps to
the types that the schema gives, so that the API server takes what it generates; the others keep to nothing.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st

from tests.security.fuzz.writes import sent

JsonValue: TypeAlias = Any
Strategy: TypeAlias = st.SearchStrategy[JsonValue]

TIMES: Final = (
    *("0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59Z"),
    *("9999-12-31T23:59:59-23:59", "1969-12-31T23:59:59Z", "2026-01-31T08:00:00+14:00", "2026-01-31T08:00:00"),
    *("2026-02-30T08:00:00Z", "2026-01-31T24:00:00Z", "2026-01-31T08:00:60Z", "2026-01-31", "20260131T080000Z"),
    *("2026-01-31T08:00:00.1234567890123456789Z", "-0001-01-01T00:00:00Z", "10000-01-01T00:00:00Z"),
)
STORED_TIMES: Final = (
    *("0000-01-01T00:00:00Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "1969-12-31T23:59:59Z"),
    *("9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2026-01-31T08:00:00+14:00", "2199-01-01T00:00:00Z"),
)
"""Those that an API server takes for a date-time."""
QUANTITIES: Final = (
    *(
        "@repeat:5000:9@",
        "1e999",
        "1e-999",
        "-1",
        "0.0000000001",
        "1E",
        "1Ei",
        "9223372036854775807Ei",
        "0x10",
        "1e999999999",
    ),
    *("+1", "1k", "1m", "1_000", "1,5", "NaN", "inf", "-0", "1" + "0" * 60, "0.@repeat:3000:0@1", "1e18", "1n"),
)
INDEX_SETS: Final = (
    "0-99999999",
    "1-0",
    "0-",
    "-1",
    ",",
    "0,,1",
    "@repeat:5000:,@",
    "0-2147483647",
    "²",
    "0-0-0",
    "a-b",
)
STRINGS: Final = (
    *(
        "",
        " ",
        "²",
        "٣",
        "½",
        "-1",
        "0",
        "1",
        "true",
        "null",
        "@repeat:5000:9@",
        "1e999",
        "NaN",
        "Infinity",
        "0x1f",
        "1_0",
    ),
    *("\x00", "\x1b[2J\x1b]0;x\x07", "a\nb\r\n", "\u202e", "\ufeff", "\ud800", "é" * 3, "😀", "../../etc", "%s%n{0}"),
    *(
        "@repeat:300:a@",
        "@repeat:100000:a@",
        "@repeat:1000:,@",
        "@repeat:50:=@",
        "a=b,c in (d),!e",
        "x in (",
        "{}",
        "[]",
        '{"a":1}',
        "a/b/c",
    ),
    *TIMES,
    *QUANTITIES[:8],
    *INDEX_SETS,
)
NUMBERS: Final = (
    *(
        0,
        1,
        -1,
        2**31 - 1,
        2**31,
        -(2**31),
        2**53 + 1,
        2**63 - 1,
        2**63,
        -(2**63),
        10**30,
        "@digits:5000@",
        "@digits:400@",
    ),
    *(0.5, -0.0, 1e308, 5e-324),
)
CARELESS: Final = (
    *("²", "٣", "½", "", "-1", "0", "00", "1_0", " 1", "1.5", "1e999", "NaN", "inf", "@repeat:5000:9@", "9" * 20),
    *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "2026-01-31T08:00:00", "2026-01-31", "@repeat:300:a@", "=", ","),
)
_AMOUNTS: Final = frozenset(
    {"cpu", "memory", "pods", "allocatable", "free", "largestFree", "reserved", "largest", "nominal", "nominalQuota"}
)
_COUNTS: Final = (
    *("epoch", "sequence", "Seconds", "count", "Count", "priority", "nodes", "ready", "total", "pending", "active"),
    *("succeeded", "failed", "terminating", "parallelism", "completions", "Limit"),
)
_PART: Final = re.compile(r"[^\s,=]+")
_TOKEN: Final = re.compile(r"[^\s,=/:.\-]+")
_LABEL: Final = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$")
LABEL_VALUES: Final = (*(text for text in STRINGS if not text or _LABEL.fullmatch(text)), "a" * 63, "9" * 63, "1-0")


def careless_for(name: object) -> tuple[JsonValue, ...] | None:
    """Values for a field of that name that programs read as a time, a number, an amount or a set; None for others."""
    if not isinstance(name, str):
        return None
    if name.endswith(("Time", "time", "At")):
        return TIMES
    if name.endswith("Indexes"):
        return INDEX_SETS
    if name in _AMOUNTS:
        return QUANTITIES
    return NUMBERS if name.endswith(_COUNTS) else None


def texts() -> Strategy:
    """Odd strings, and random ones."""
    return st.sampled_from(STRINGS) | st.text(max_size=30)


def numbers() -> Strategy:
    """Odd numbers, and random ones."""
    return st.sampled_from(NUMBERS) | st.integers() | st.floats(allow_nan=True, allow_infinity=True)


def anything() -> Strategy:
    """Any JSON at all; some of it is what only a careless encoder writes."""
    leaves = texts() | numbers() | st.none() | st.booleans()
    lists, objects = st.lists(leaves, max_size=4), st.dictionaries(texts(), leaves, max_size=4)
    small = lists | objects | st.dictionaries(texts(), lists | objects, max_size=3)
    wide = {str(number): number for number in range(300)}
    large = st.sampled_from(("@deep:40@", "@deep:200@", "@deep:2000@", ["x"] * 1000, [{}] * 300, wide))
    return st.one_of(leaves, leaves, small, large)


def variants(value: JsonValue) -> Strategy:
    """Odd variants of a valid value: of the same type, and near to it."""
    if isinstance(value, bool):
        return st.booleans() | st.none()
    if isinstance(value, int | float):
        return numbers()
    if isinstance(value, str):
        tokens = list(_TOKEN.finditer(value))
        if not tokens:
            return texts()
        return st.one_of(texts(), st.builds(_with_token, st.just(value), st.sampled_from(tokens), texts()))
    if isinstance(value, list):
        return st.sampled_from(([], value * 2, value * 200, [None], value[:1])) | st.lists(anything(), max_size=3)
    if isinstance(value, dict):
        return st.dictionaries(texts(), texts(), max_size=3).map(lambda more: {**value, **more}) | st.just({})
    return anything()


def near_misses(value: str) -> Strategy:
    """A valid string with one of its parts replaced by what a careless reader takes for a number or a time."""
    parts = list(_PART.finditer(value))
    if not parts:
        return texts()
    return st.builds(_with_token, st.just(value), st.sampled_from(parts), st.sampled_from(CARELESS))


def _with_token(value: str, token: re.Match[str], odd: str) -> str:
    return value[: token.start()] + odd + value[token.end() :]


def of_schema(schema: JsonValue, *, name: str = "", depth: int = 0) -> Strategy:
    """Values that an OpenAPI schema of a CustomResourceDefinition takes, each as odd as it allows.

    Patterns and rules in CEL are not kept to; the API server refuses what breaks them.
    """
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("x-kubernetes-int-or-string"):
        return st.sampled_from(QUANTITIES) | st.integers(min_value=0, max_value=2**40)
    kind = schema.get("type")
    if schema.get("x-kubernetes-preserve-unknown-fields") and not schema.get("properties"):
        return st.dictionaries(texts(), anything(), max_size=4)
    match kind:
        case "object":
            return _object(schema, depth=depth)
        case "array":
            most = min(3, schema.get("maxItems", 3))
            return st.lists(of_schema(schema.get("items", {}), name=name, depth=depth + 1), max_size=most)
        case "integer":
            top = 2**31 - 1 if schema.get("format") == "int32" else 2**63 - 1
            low, high = schema.get("minimum", -top - 1), schema.get("maximum", top)
            return st.sampled_from((low, high, max(low, min(high, 0)), max(low, min(high, 1)))) | st.integers(low, high)
        case "boolean":
            return st.booleans()
        case "number":
            return st.floats(allow_nan=False, allow_infinity=False)
        case "string":
            return _string(schema)
    return anything()


def _object(schema: JsonValue, *, depth: int) -> Strategy:
    properties = schema.get("properties") or {}
    more = schema.get("additionalProperties")
    if not properties:
        inner = of_schema(more, depth=depth + 1) if isinstance(more, dict) else texts()
        return st.dictionaries(st.sampled_from(("cpu", "memory", "default", "a")) | texts(), inner, max_size=3)
    required = {name: of_schema(properties[name], name=name, depth=depth + 1) for name in schema.get("required") or ()}
    optional = {
        name: of_schema(inner, name=name, depth=depth + 1)
        for name, inner in properties.items()
        if name not in required and depth < 8
    }
    return st.fixed_dictionaries(required, optional=optional)


def _string(schema: JsonValue) -> Strategy:
    if schema.get("format") == "date-time":
        return st.sampled_from(STORED_TIMES)
    least, most = schema.get("minLength", 0), schema.get("maxLength", 100_000)
    fitting = [text for text in STRINGS if least <= length(text) <= most]
    named = st.sampled_from(("main", "default", "near", "far", "mallory", "True", "False", "QuotaReserved", "Finished"))
    return st.sampled_from(fitting) | st.text(min_size=least, max_size=min(most, 20)) | named


def length(text: str) -> int:
    """How long a string is with its markers expanded."""
    return len(sent(text)) - 2
