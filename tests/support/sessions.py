# SPDX-License-Identifier: Apache-2.0
"""Plays the terminal sessions of a page: each command runs in a terminal of 80 columns, and its output is compared.

A session is the fenced blocks `console` of a page, or `console NAME` of one that has several. A line `$ COMMAND` is a
command, `> ` continues it, the lines below are its output. Commands of a session share one shell: variables and exports
last. Before outputs are compared, what differs from run to run is replaced: times, ages, addresses, process ids, random
parts of names, and the width of columns.
"""

from __future__ import annotations

import difflib
import os
import pty
import re
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
COLUMNS: Final = 80
_TIMEOUT: Final = 150
_TYPING_SECONDS: Final = 2.5
"""Longer than a report of a worker takes to reach the hub: whoever types sees what the commands before have done."""
_DIFFERS: Final = (
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?"), "TIME"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "UID"),
    (re.compile(r"\bhello-(?:[a-z0-9]{5}|\d{5})(?:-[a-z0-9]{5})?\b"), "hello-RANDOM"),
    (re.compile(r"\b(job-[a-z-]+-)[0-9a-f]{5}\b"), r"\1HASH"),
    (re.compile(r"\b(event/[a-z]+)\.[0-9a-f]+"), r"\1.RANDOM"),
    (re.compile(r"\bscore \d.*"), "SCORE"),
    (re.compile(r"\b\d+ s\b"), "N s"),
    (re.compile(r"\b(?:\d+m)?\d+s\b|\b\d+[mh]\b|<invalid>"), "AGE"),
    (re.compile(r"((?:running|frozen)\s+|\bkill (?:-CONT )?)\d+\b"), r"\1PID"),
    (re.compile(r"[─-]{3,}"), "─"),
    (re.compile(r"[ \t]+"), " "),
)


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a page: its number among the page's commands, and the output that the page shows."""

    number: int
    command: str
    shown: str


@dataclass(frozen=True, slots=True)
class Played:
    """A step that ran: the output, the exit code, and when it began and how long it took in seconds."""

    step: Step
    output: str
    code: int
    began: float
    took: float

    @property
    def difference(self) -> str:
        """What the output has, and the page does not, as a diff; empty if they are alike."""
        want, got = normal(self.step.shown), normal(self.output)
        if want == got or _in_no_order(want) == _in_no_order(got):
            return ""
        return "\n".join(difflib.unified_diff(want, got, "the page", "the terminal", lineterm="", n=1))

    def __str__(self) -> str:
        head = f"[{self.began:6.1f} s, took {self.took:5.1f} s, exit code {self.code}]"
        return f"{head}\n$ {self.step.command}\n{self.output}"


def steps_of(text: str, session: str = "") -> list[Step]:
    """The commands of a session of a page, in order."""
    found: list[Step] = []
    for block in _blocks(session).finditer(text):
        found += _steps(block[1], len(found))
    return found


def with_outputs(text: str, played: Sequence[Played], session: str = "") -> str:
    """The page with what the terminal printed in that session."""
    printed = iter(played)

    def block(match: re.Match[str]) -> str:
        lines = []
        for step in _steps(match[1], 0):
            prompts = "\n> ".join(step.command.split("\n"))
            output = next(printed).output.rstrip("\n")
            lines += [f"$ {prompts}", *([output] if output else [])]
        return "\n".join([_opening(session), *lines, "```"])

    return _blocks(session).sub(block, text)


def _opening(session: str) -> str:
    return f"```console {session}".rstrip()


def _blocks(session: str) -> re.Pattern[str]:
    return re.compile(rf"^{_opening(session)}\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def normal(output: str) -> list[str]:
    """The lines of an output without what differs from run to run; empty lines are left out."""
    lines: list[str] = []
    for line in output.splitlines():
        for pattern, by in _DIFFERS:
            line = pattern.sub(by, line)
        if line.strip():
            lines.append(line.strip())
    return lines


def _in_no_order(lines: Sequence[str]) -> list[str]:
    """The lines whichever worker and node was chosen, and whichever of two events of one second was first."""
    return sorted(re.sub(r"\b(worker|node)-\d\b", r"\1-N", line) for line in lines)


def too_wide(played: Played) -> list[str]:
    """The lines of an output of `mkctl` beyond 80 columns; a command to copy stays on one line."""
    if not re.search(r"(?:^|/)mkctl ", played.step.command) or "| " in played.step.command:
        return []
    lines = (line for line in played.output.splitlines() if not line.lstrip().startswith(("kubectl ", "mkctl ")))
    return [line for line in lines if len(line) > COLUMNS]


class Terminal:
    """A shell in a terminal of 80 columns, in a home of its own; `programs` are folders that come first in PATH.

    `tree` is the checkout whose commands and examples are used.
    """

    def __init__(self, home: Path, *, programs: Sequence[Path] = (), tree: Path = ROOT) -> None:
        self._home = home
        self._state = home / "shell"
        self._began = time.monotonic()
        self._environment = {
            "COLUMNS": str(COLUMNS),
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]),
            "TERM": "dumb",
        }
        self._bin = tree / ".venv" / "bin"
        if not (self._bin / "mkctl").exists():
            self._bin = Path(sys.executable).parent
        # Files that a session writes do not end in the checkout.
        (home / "deploy").symlink_to(tree / "deploy")

    def play(self, step: Step) -> Played:
        """Run one command to its end, after the time that a person takes to type one."""
        time.sleep(_TYPING_SECONDS)
        command = step.command.replace(".venv/bin/", f"{self._bin}/")
        # Every variable is exported, and all exports are kept for the next command.
        script = (
            f'set -a; [ ! -e {self._state} ] || . {self._state}; eval "$1"; code=$?;'
            f" export -p >{self._state}; exit $code"
        )
        began = time.monotonic()
        master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (50, COLUMNS))
        # Without the conversion of line ends.
        attributes = termios.tcgetattr(slave)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        with subprocess.Popen(
            ["bash", "-c", script, "bash", command],
            cwd=self._home,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=slave,
            stderr=slave,
        ) as child:
            os.close(slave)
            output = _read_all(master)
            code = child.wait(_TIMEOUT)
        os.close(master)
        ended = time.monotonic()
        return Played(step, self._public(output), code, began - self._began, ended - began)

    def end(self) -> None:
        """Remove the federation that a session has left."""
        self.play(Step(-1, ".venv/bin/mkctl down", ""))

    def _public(self, output: str) -> str:
        lines = output.replace(f"{self._bin}/", ".venv/bin/").replace(str(self._home), "~").splitlines()
        return "".join(f"{line.rstrip()}\n" for line in lines)


def _read_all(master: int) -> str:
    parts = []
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # how Linux reports that the other end is closed
            break
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode(errors="replace")


def _steps(block: str, first: int) -> Iterator[Step]:
    lines = block.splitlines()
    at = 0
    while at < len(lines):
        command = [lines[at].removeprefix("$ ")]
        at += 1
        while at < len(lines) and lines[at].startswith("> "):
            command.append(lines[at].removeprefix("> "))
            at += 1
        shown = []
        while at < len(lines) and not lines[at].startswith("$ "):
            shown.append(lines[at])
            at += 1
        yield Step(first, "\n".join(command), "\n".join(shown))
        first += 1
