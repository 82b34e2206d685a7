# SPDX-License-Identifier: Apache-2.0
"""The journal of virtual nodes: one line of JSON for each start and end of a pod.

It also has pods that were deleted from the API. Tests and the demo read from it that each Job ran exactly once, and on
which cluster. A pod that continues after a restart of the kubelet process has one start line.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

STARTED, ENDED, STOPPED = "started", "ended", "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One line."""

    time: str
    cluster: str
    event: str
    namespace: str
    pod: str
    uid: str
    node: str
    owner: str = ""
    """`Kind/name` of the pod's controller."""
    exit_code: int | None = None


class Journal:
    """Appends entries to a file, each in one write, so that several processes can share it."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, entry: JournalEntry) -> None:
        """Append an entry."""
        os.write(self._descriptor, orjson.dumps(asdict(entry)) + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def read(path: Path) -> list[JournalEntry]:
    """All complete entries."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [JournalEntry(**orjson.loads(line)) for line in lines]
