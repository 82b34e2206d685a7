# SPDX-License-Identifier: Apache-2.0
"""The language of the kubectl session: chapters of commands in text files, and how they are read.

A chapter begins with `== its title`. Each of its lines is a step, and the lines below it that are set in by four
spaces are the step's text:

    $ get pods -o wide        run kubectl; the text is its standard input; what it says is compared
    $sorted get pods          the same, for what a server says in no order
    $loose get services       the same, for columns as wide as their random words
    ~ create sa default       run it unrecorded; it has to succeed
    > edit.sh                 write a file into {dir}; edit.sh is the editor of `kubectl edit`
    & get pods -w             start it and go on
    . 1                       wait until the last one started has said one line more, and go on
    ! 3                       wait until the last one started has said three lines in all, then end it
    # why                     a word to the reader

`{ns}` is the chapter's namespace, which kubectl uses unless told otherwise, and `{id}` a name of the chapter's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_INDENT: Final = "    "


@dataclass(frozen=True, slots=True)
class Step:
    """One line, and the text below it."""

    verb: str
    rest: str
    text: str


@dataclass(frozen=True, slots=True)
class Chapter:
    """A case's steps."""

    title: str
    steps: tuple[Step, ...]


def read(path: Path) -> list[Chapter]:
    """The chapters of a file. Raises `ValueError`."""
    found: list[tuple[str, list[tuple[str, list[str]]]]] = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if line.startswith("== "):
            found.append((line.removeprefix("== "), []))
        elif line.startswith(_INDENT) and found and found[-1][1]:
            found[-1][1][-1][1].append(line.removeprefix(_INDENT))
        elif line.strip() and not line.startswith("#"):
            if not found:
                raise ValueError(f"{path.name}:{number}: no chapter has begun")
            found[-1][1].append((line, []))
    return [Chapter(title, tuple(_step(line, text) for line, text in steps)) for title, steps in found]


def _step(line: str, text: list[str]) -> Step:
    verb, _, rest = line.partition(" ")
    if verb not in ("$", "$sorted", "$loose", "~", ">", "&", ".", "!"):
        raise ValueError(f"no such step: {line}")
    return Step(verb, rest.strip(), "\n".join(text) + "\n" if text else "")
