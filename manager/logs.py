# SPDX-License-Identifier: Apache-2.0
"""How the manager logs: one line an event, as text for a person or as JSON for a collector."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import orjson

from multikueue.core.log_lines import PrintableFormatter, structured
from multikueue.core.printable import printable, printable_json
from multikueue.core.timestamps import format_micro_time


def _moment(record: logging.LogRecord) -> str:
    return format_micro_time(datetime.fromtimestamp(record.created, UTC))


class TextFormatter(PrintableFormatter):
    """`TIME LEVEL logger: message key=value`; a traceback follows on its own lines."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = printable(f"{_moment(record)} {record.levelname:<7} {record.name}: {record.getMessage()}")
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line; the fields of the line are members of it."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        message, fields = structured(record)
        entry: dict[str, object] = {
            "ts": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": message,
        }
        if record.exc_info:
            entry["traceback" if "error" in fields else "error"] = self.formatException(record.exc_info)
        return printable_json(orjson.dumps(fields | entry).decode())


def configure(*, style: str, level: str) -> None:
    """Send everything to standard error in the given style; called once, by `__main__`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
