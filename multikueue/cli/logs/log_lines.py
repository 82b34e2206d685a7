# SPDX-License-Identifier: Apache-2.0
"""The lines of a container's log, from pieces of a stream in which each line begins with its time.

A stream that broke is read again from the time of its last line: `LogLines` leaves out the lines that it has seen. A
line that never ends is passed on in parts, so that no container can fill the memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Final

from multikueue.core.errors import BadInput
from multikueue.core.timestamps import parse_time

MAX_LINE: Final = 256 * 1024


class LogLines:
    """The lines of one container so far."""

    def __init__(self) -> None:
        self.last = ""
        """The time of the last line, as the server wrote it."""
        self._moment: datetime | None = None
        self._same = 0
        """How many lines have that time."""
        self._skip = 0
        self._skips_before: datetime | None = None
        self._buffer = b""
        self._inside = False
        """Whether the beginning of the current line was passed on."""

    def reopened(self) -> None:
        """The log is read again from the time of the last line."""
        self._buffer, self._inside = b"", False
        self._skips_before, self._skip = self._moment, self._same

    def add(self, piece: bytes) -> Iterator[str]:
        """The lines that this piece completes."""
        *ended, self._buffer = (self._buffer + piece).split(b"\n")
        for line in ended:
            yield from self._line(line)
            self._inside = False
        if len(self._buffer) > MAX_LINE:
            part, self._buffer = self._buffer, b""
            yield from self._line(part)
            self._inside = True

    def end(self) -> Iterator[str]:
        """The rest of a log that ends without a newline."""
        part, self._buffer = self._buffer, b""
        if part:
            yield from self._line(part)

    def _line(self, raw: bytes) -> Iterator[str]:
        text = raw.decode(errors="replace").removesuffix("\r")
        if self._inside:
            yield text
            return
        stamp, _, rest = text.partition(" ")
        moment = _moment(stamp)
        if moment is None:
            yield text  # without a time it cannot be compared
            return
        if self._skips_before is not None:
            if moment < self._skips_before:
                return
            if moment == self._skips_before and self._skip:
                self._skip -= 1
                return
            self._skips_before = None
        self._same = self._same + 1 if moment == self._moment else 1
        self.last, self._moment = stamp, moment
        yield rest


def _moment(stamp: str) -> datetime | None:
    try:
        return parse_time(stamp)
    except BadInput:
        return None
