# SPDX-License-Identifier: Apache-2.0
"""How the manager logs: one line an event, as text for a person or as JSON for a collector.

Owns the two formats and the set-up of the root logger at start; call sites use `logging.getLogger(__name__)` and
pass values as `%` arguments. What else is to be told (`extra={"workload": ...}`) is printed as key=value.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Final

import orjson

from multikueue.core.timestamps import format_micro_time

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def _moment(record: logging.LogRecord) -> str:
    return format_micro_time(datetime.fromtimestamp(record.created, UTC))


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


class TextFormatter(logging.Formatter):
    """`TIME LEVEL logger: message key=value`; a traceback follows on its own lines."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        extra = "".join(f" {name}={value}" for name, value in _extra(record).items())
        line = f"{_moment(record)} {record.levelname:<7} {record.name}: {record.getMessage()}{extra}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        entry: dict[str, object] = {
            "ts": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return orjson.dumps(entry | _extra(record), default=str).decode()


def configure(*, style: str, level: str) -> None:
    """Send everything to standard error in the given style; called once, by `__main__`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
