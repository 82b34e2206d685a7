# SPDX-License-Identifier: Apache-2.0
"""Errors of local clusters.

Each message says what failed and what to do, with the end of the log.
"""

from __future__ import annotations

from pathlib import Path

from multikueue.core.errors import MultikueueError


class DevclusterError(MultikueueError):
    """Any failure of a local cluster."""


class BinariesUnavailable(DevclusterError):
    """The control plane's binaries are not installed and cannot be obtained; the message says what to install."""


class ComponentFailed(DevclusterError):
    """A process ended or did not become ready; has the path and the end of its log."""

    def __init__(self, component: str, *, problem: str, log: Path, tail: str) -> None:
        text = f"{component}: {problem}; log: {log}"
        super().__init__(f"{text}, which ends with\n{tail}" if tail else text)
        self.component = component
        self.problem = problem
        self.log = log
        self.tail = tail


class TimedOut(DevclusterError):
    """A deadline passed; the message says what was expected."""
