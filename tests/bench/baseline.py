# SPDX-License-Identifier: Apache-2.0
"""The file that a run of the benches writes, and that a later run compares itself with.

Reading checks everything: the file may be another program's, cut off, or written by hand.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt, printable
from tests.bench.figure import Figure

FORMAT: Final = "multikueue-bench/1"
_MOST_BYTES: Final = 16 * 1024 * 1024
_LINE_LENGTH: Final = 200
_EXPECTED: Final = "expected a file that make bench wrote"


@dataclass(frozen=True, slots=True)
class FormerFigure:
    """A figure of the former run."""

    value: float
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A former run; figures by bench and name."""

    taken: str = ""
    """When and where, as one line of text."""
    figures: Mapping[tuple[str, str], FormerFigure] = field(default_factory=dict)


def read_baseline(path: Path) -> Baseline:
    """The run that a file has. Raises `BadInput`, which names the file and what is wrong."""
    about = f"baseline {path}"
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise BadInput(f"{about}: there is no such file; make bench JSON={path} writes one") from error
    except OSError as error:
        raise BadInput(f"{about}: {error.strerror}") from error
    if len(text) > _MOST_BYTES:
        raise BadInput(f"{about}: more than {_MOST_BYTES // 1024 // 1024} MiB; {_EXPECTED}")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{about}: not JSON: {excerpt(str(error))}; {_EXPECTED}") from error
    if not isinstance(document, dict) or "format" not in document:
        raise BadInput(f"{about}: has no member 'format'; {_EXPECTED}")
    if document["format"] != FORMAT:
        raise BadInput(f"{about}: expected format {FORMAT!r}, found {excerpt(document['format'])}")
    entries = document.get("figures")
    if not isinstance(entries, list):
        raise BadInput(f"{about}: figures: expected a list, found {excerpt(entries)}")
    found: dict[tuple[str, str], FormerFigure] = {}
    for index, entry in enumerate(entries):
        key, former = _former(entry, where=f"{about}: figures[{index}]")
        if key in found:
            raise BadInput(f"{about}: figures[{index}]: {key[0]} has {excerpt(key[1])} twice")
        found[key] = former
    return Baseline(taken=_line(document.get("taken")), figures=found)


def written(figures: Mapping[str, Sequence[Figure]], *, taken: str, failed: Sequence[str] = ()) -> str:
    """The text of the file: figures by bench, and the benches that failed."""
    entries = [
        {
            "bench": bench,
            "name": figure.name,
            "value": figure.value,
            "unit": figure.unit,
            "bar": figure.bar,
            "better": str(figure.better),
        }
        for bench, found in figures.items()
        for figure in found
    ]
    document = {"format": FORMAT, "taken": taken, "failed": list(failed), "figures": entries}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _former(entry: object, *, where: str) -> tuple[tuple[str, str], FormerFigure]:
    if not isinstance(entry, dict):
        raise BadInput(f"{where}: expected an object, found {excerpt(entry)}")
    texts = []
    for member in ("bench", "name", "unit"):
        text = entry.get(member)
        if not isinstance(text, str):
            raise BadInput(f"{where}.{member}: expected text, found {excerpt(text)}")
        texts.append(text)
    value = entry.get("value")
    if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
        raise BadInput(f"{where}.value: expected a number, found {excerpt(value)}")
    bench, name, unit = texts
    return (bench, name), FormerFigure(float(value), unit)


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond any float
        return False


def _line(taken: object) -> str:
    return printable(taken[:_LINE_LENGTH]) if isinstance(taken, str) else ""
