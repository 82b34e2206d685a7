# SPDX-License-Identifier: Apache-2.0
"""Prints the results and messages of `mkctl`, and has its exit codes.

Names, messages and events come from tenants and workers. Text printed here cannot move the cursor or start a new line.
Tables and progress go through `cli.console`, which escapes in the same way.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import Final

from multikueue.core.printable import printable, printable_json

FAILED: Final = 1
BAD_INPUT: Final = 2
"""The exit code for invalid options, and for files and hubs that cannot be read."""
INTERRUPTED: Final = 130  # as shells report ^C
_QUOTED: Final = re.compile(r"`[^`]{1,60}`")
_GLUE: Final = "\0"  # no printable text has it
_COMMANDS: Final = ("kubectl ", "mkctl ")


def show_lines(lines: Iterable[str]) -> None:
    """Print each line of the result."""
    for line in lines:
        print(printable(line))


def show_wrapped(lines: Iterable[str], *, hang: int = 2) -> None:
    """Print each line of the result; on a terminal, long lines are wrapped and indented by `hang` columns."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for line in lines:
        for each in wrapped(printable(line), width=width, hang=hang):
            print(each)


def wrapped(line: str, *, width: int, hang: int = 2) -> list[str]:
    """The line wrapped between words; a width of 0 means no limit.

    Long words, lines with a command, and commands in backticks are not broken, so that they can be copied.
    """
    return [line] if line.lstrip().startswith(_COMMANDS) else _broken(line, width=width, hang=hang)


def _broken(line: str, *, width: int, hang: int = 2) -> list[str]:
    if not width or len(line) <= width:
        return [line]
    indent = len(line) - len(line.lstrip(" "))
    whole = _QUOTED.sub(lambda quoted: quoted[0].replace(" ", _GLUE), line.strip(" "))
    found = textwrap.wrap(
        whole,
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * (indent + hang),
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [each.replace(_GLUE, " ") for each in found] or [line]


def show_text(text: str, *, end: str = "\n") -> None:
    """Print our own text of several lines, such as a manifest."""
    print(printable(text, keep="\n"), end=end)


def show_json(document: object) -> None:
    """Print a document as JSON, with unprintable characters escaped."""
    import orjson  # takes 10 ms that tables do not need

    print(printable_json(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()))


def print_message(text: object) -> None:
    """Print a message on standard error; lines after the first are indented."""
    first, *rest = printable(str(text), keep="\n").split("\n")
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else 0
    # The first line starts with the name of the command but is not a command to copy.
    shown = _broken(first, width=width)
    shown += [each for line in rest for each in wrapped(f"  {line}", width=width)]
    print("\n".join(shown), file=sys.stderr)
