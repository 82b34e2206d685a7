# SPDX-License-Identifier: Apache-2.0
"""Log lines: one form for all processes, safe to print whatever a tenant wrote into them.

A call passes a constant message with its fields at the end: `_log.warning("cannot read object kind=%s key=%s", ...)`.
Text logs show it as it is; JSON logs take it apart with `structured`. Control characters are escaped: a name or a
message of a tenant can neither move the cursor of a terminal nor begin a line of its own.
"""

from __future__ import annotations

import logging
import re
from types import TracebackType
from typing import Final

from multikueue.core.printable import printable

_FIELD: Final = r" \w+=%(?:\.\d+)?[sdrf]"
_FORM: Final = re.compile(rf"([^%]*?):?((?:{_FIELD})+)")

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class PrintableFormatter(logging.Formatter):
    """A `logging.Formatter` that escapes control characters and indents tracebacks."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The first line."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: _ExcInfo) -> str:
        """The lines of a traceback."""
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        """The lines of a stack."""
        return _indented(super().formatStack(stack_info))


def structured(record: logging.LogRecord) -> tuple[str, dict[str, object]]:
    """The constant message of a line and its fields; the whole text and no fields for a line of another form."""
    form = _FORM.fullmatch(record.msg) if isinstance(record.msg, str) else None
    args = record.args
    if form is None or not isinstance(args, tuple):
        return record.getMessage(), {}
    fields = [field.split("=", 1) for field in form[2].split()]
    if len(fields) != len(args):
        return record.getMessage(), {}
    return form[1], {
        name: value if isinstance(value, int) else float(shown % value) if shown[-1] == "f" else str(value)
        for (name, shown), value in zip(fields, args, strict=True)
    }


def log_to_stderr() -> None:
    """Configure the root logger of a devcluster program."""
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _indented(text: str) -> str:
    return "\n".join(f"  {printable(line)}" for line in text.split("\n"))
