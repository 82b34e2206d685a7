# SPDX-License-Identifier: Apache-2.0
"""What can go wrong while clusters come up.

Each message is one that a person at a terminal can act on: what failed, the end of its log, what to do.
"""

from __future__ import annotations

from pathlib import Path

from multikueue.core.errors import MultikueueError


class DevclusterError(MultikueueError):
    """Any failure of a local cluster."""


class BinariesUnavailable(DevclusterError):
    """The control plane's binaries are neither here nor to be had; the message says what to install."""


class ComponentFailed(DevclusterError):
    """A process ended or did not become ready; carries where its log is and how it ends."""

    def __init__(self, component: str, *, problem: str, log: Path, tail: str) -> None:
        text = f"{component}: {problem}; its log is {log}"
        super().__init__(f"{text} and ends with\n{tail}" if tail else text)
        self.component = component
        self.problem = problem
        self.log = log
        self.tail = tail


class TimedOut(DevclusterError):
    """Something did not happen within its deadline; the message says what was waited for."""
