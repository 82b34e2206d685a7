# SPDX-License-Identifier: Apache-2.0
"""What ran: one line of JSON for each start and end of a pod on a virtual node.

The API forgets a pod when it is deleted; the journal does not. It is how a test or the demo tells that each Job ran
exactly once, and on which cluster. A pod that one process of ours started and another saw on has one start line.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

STARTED, ENDED, STOPPED = "started", "ended", "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
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
    """A file that entries are appended to, each in one write, so that several processes can share it."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def write(self, entry: Entry) -> None:
        """Append an entry."""
        os.write(self._descriptor, orjson.dumps(asdict(entry)) + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def read(path: Path) -> list[Entry]:
    """All entries so far; a last line that is being written is left out."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [Entry(**orjson.loads(line)) for line in lines]
