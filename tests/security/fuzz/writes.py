# SPDX-License-Identifier: Apache-2.0
"""One write of the fuzz, as a value that can be printed, read and written again.

Owns its text form, one JSON object a line: what is written to (a target of the catalogue), which of the objects there,
and what differs from the target's valid body. Bodies are encoded with escapes for everything beyond ASCII, so that a
lone surrogate or a number of thousands of digits arrives as an attacker would send it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

Place = tuple[str | int, ...]

_LONGEST_MESSAGE: Final = 300
_MARKERS: Final = re.compile(r'"@(?P<raw>deep|digits):(?P<count>\d+)@"|@repeat:(?P<times>\d+):(?P<text>[^@"]+)@')


@dataclass(frozen=True, slots=True)
class Edit:
    """One value at one place of a body."""

    place: Place
    value: Any = field(hash=False)


@dataclass(frozen=True, slots=True)
class Write:
    """What is sent: the body of a target, for the object of that number, with these edits."""

    target: str
    slot: int = 0
    edits: tuple[Edit, ...] = ()

    def body(self, valid: Any) -> Any:
        """`valid`, which is changed, with the edits; one whose place is not there any more is left out."""
        for edit in self.edits:
            valid = _edited(valid, edit)
        return valid

    def text(self) -> str:
        """One line."""
        edits = [{"at": list(edit.place), "value": edit.value} for edit in self.edits]
        return encoded({"target": self.target, "slot": self.slot, "edits": edits})


def encoded(value: Any) -> str:
    """JSON in ASCII, with what the standard forbids where the value holds it (`NaN`)."""
    return json.dumps(value, ensure_ascii=True, allow_nan=True, separators=(",", ":"))


def sent(value: Any) -> str:
    """As `encoded`, with the markers of `values` expanded: `@deep:2000@`, `@repeat:5000:9@`."""
    return _MARKERS.sub(_marked, encoded(value))


def _marked(found: re.Match[str]) -> str:
    if found["raw"] is None:
        return found["text"] * int(found["times"])
    count = int(found["count"])
    return "9" * count if found["raw"] == "digits" else "[" * count + "]" * count


def read(text: str) -> Write:
    """The write of a line."""
    found = json.loads(text)
    edits = tuple(Edit(tuple(edit["at"]), edit["value"]) for edit in found["edits"])
    return Write(found["target"], found["slot"], edits)


def read_file(path: Path) -> list[Write]:
    """The writes of a file; lines that begin with # say what it is for."""
    return [read(line) for line in path.read_text().splitlines() if line and not line.startswith("#")]


@dataclass(frozen=True, slots=True)
class WriteAnswer:
    """What the server says to a write; a Status in JSON when it refuses."""

    status: int
    body: str = ""

    @property
    def message(self) -> str:
        """Why it was refused, in one line of bounded length."""
        try:
            status = json.loads(self.body)
        except ValueError:
            status = None
        found = status.get("message") if isinstance(status, dict) else None
        return " ".join(str(found or self.body).split())[:_LONGEST_MESSAGE]


def save(path: Path, writes: Iterable[Write], *, comment: str) -> None:
    """Keep them, for `--replay` and for `found/`."""
    lines = [f"# {line}" for line in comment.splitlines()]
    path.write_text("\n".join((*lines, *(write.text() for write in writes))) + "\n")


def places(value: Any, *, below: Place = ()) -> list[Place]:
    """Every place in a body, the containers included."""
    found: list[Place] = []
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for name, inner in items:
        found.append((*below, name))
        found += places(inner, below=(*below, name))
    return found


def at(value: Any, place: Sequence[str | int]) -> Any:
    """The value there; None without one."""
    for name in place:
        try:
            value = value[name]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _edited(body: Any, edit: Edit) -> Any:
    if not edit.place:
        return edit.value
    holder = body
    for name in edit.place[:-1]:
        if isinstance(holder, dict) and isinstance(name, str):
            holder = holder.setdefault(name, {})
        elif isinstance(holder, list) and isinstance(name, int) and name < len(holder):
            holder = holder[name]
        else:
            return body
    last = edit.place[-1]
    names = isinstance(holder, dict) and isinstance(last, str)
    if names or (isinstance(holder, list) and isinstance(last, int) and last < len(holder)):
        found: Any = holder
        found[last] = edit.value
    return body
