# SPDX-License-Identifier: Apache-2.0
"""Text from tenants and workers, made safe for terminals and log lines.

Control characters in names, messages and events could move the cursor, hide text or forge lines.
"""

from __future__ import annotations

import re
from typing import Final

EXCERPT_LENGTH: Final = 80

# C0 and C1 controls, line and paragraph separators, and the marks that reorder text.
_UNSAFE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def printable(text: str, *, keep: str = "") -> str:
    """`text` with every control character written as an escape such as `\\x1b`; those in `keep` stay."""
    return _UNSAFE.sub(lambda match: match[0] if match[0] in keep else _escaped(match[0]), text)


def printable_json(text: str) -> str:
    """JSON text with control characters written as JSON escapes, except the newlines of its layout."""
    # Such characters occur only inside strings of the document, where the escape is equivalent.
    return _UNSAFE.sub(lambda match: match[0] if match[0] == "\n" else f"\\u{ord(match[0]):04x}", text)


def excerpt(value: object, length: int = EXCERPT_LENGTH) -> str:
    """`value` as an error message quotes it: escaped, in quotes if it is text, and cut to about `length` characters."""
    if isinstance(value, str):
        return f'"{_cut(printable(value[: length + 1]), length)}"'
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"  # Python refuses to print the largest ones
    if isinstance(value, dict | list | tuple):
        return f"{type(value).__name__} of {len(value)}"
    return _cut(printable(repr(value)), length)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
