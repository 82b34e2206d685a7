# SPDX-License-Identifier: Apache-2.0
"""One command of `mkctl`: its function and its line in `--help`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple


class Command(NamedTuple):
    """The path of a command's function, and its line in `mkctl --help`.

    A plain command takes the raw arguments and returns the exit status; others are Typer commands. A hidden command is
    a former name that is not listed.
    """

    target: str
    help: str
    plain: bool = False
    hidden: bool = False

    def load(self) -> Callable[..., Any]:
        """Import the function."""
        module, _, function = self.target.partition(":")
        loaded: Callable[..., Any] = getattr(import_module(module), function)
        return loaded
