# SPDX-License-Identifier: Apache-2.0
"""How the agent logs: one line an event on standard error, as JSON for a collector or as text for a person."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import orjson

from multikueue.core.timestamps import format_micro_time


class JsonLines(logging.Formatter):
    """One JSON object a line."""

    def __init__(self, cluster: str) -> None:
        super().__init__()
        self._cluster = cluster

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        entry: dict[str, object] = {
            "ts": format_micro_time(datetime.fromtimestamp(record.created, UTC)),
            "level": record.levelname.lower(),
            "cluster": self._cluster,
            "logger": record.name,
            "msg": record.getMessage(),
        }
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return orjson.dumps(entry).decode()


def configure(*, style: str, level: str, cluster: str) -> None:
    """Set the root logger up; called once, by `__main__`."""
    handler = logging.StreamHandler(sys.stderr)
    text = logging.Formatter(f"%(asctime)s %(levelname)-7s {cluster} %(name)s: %(message)s")
    handler.setFormatter(JsonLines(cluster) if style == "json" else text)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
