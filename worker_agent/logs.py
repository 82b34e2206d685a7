# SPDX-License-Identifier: Apache-2.0
"""The logs of the agent: one line per event on standard error, as JSON or as text."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import orjson

from multikueue.core.log_lines import PrintableFormatter, structured
from multikueue.core.printable import printable_json
from multikueue.core.timestamps import format_micro_time


class JsonLines(logging.Formatter):
    """One JSON object per line; the key=value fields of a message are members of it."""

    def __init__(self, cluster: str) -> None:
        super().__init__()
        self._cluster = cluster

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        message, fields = structured(record)
        entry: dict[str, object] = {
            "ts": format_micro_time(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "cluster": self._cluster,
            "logger": record.name,
            "msg": message,
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return printable_json(orjson.dumps(fields | entry).decode())


def configure(*, style: str, level: str, cluster: str) -> None:
    """Configure the root logger; called once, by `__main__`."""
    handler = logging.StreamHandler(sys.stderr)
    text = PrintableFormatter(f"%(asctime)s %(levelname)-7s {cluster} %(name)s: %(message)s")
    handler.setFormatter(JsonLines(cluster) if style == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
