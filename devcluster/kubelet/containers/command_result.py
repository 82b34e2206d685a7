# SPDX-License-Identifier: Apache-2.0
"""The result of a command in a virtual container."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """The remaining output of both streams, and the exit code."""

    output: str = ""
    errors: str = ""
    code: int = 0
