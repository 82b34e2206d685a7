# SPDX-License-Identifier: Apache-2.0
"""What `mkctl simulate`, `mkctl explain` and `mkctl story` have in common.

Owns their options, the Configuration that counts, and the printing of documents. Plain `argparse`: Typer would load
pydantic for every option, which takes longer than the simulation of a small input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

from multikueue.core.errors import BadInput
from multikueue.core.timestamps import parse_time
from multikueue.engine.settings import Settings
from multikueue.simulation.manifests import CONFIG_GROUP, Manifest

BAD_INPUT: Final = 2
"""The exit status for input that cannot be read or makes no sense, as for wrong options."""


class Output(StrEnum):
    """How the result is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def parser(command: str, summary: str, *, files: bool = True) -> argparse.ArgumentParser:
    """A parser with the common options; without `files` the manifests may be left out."""
    made = argparse.ArgumentParser(prog=f"mkctl {command}", description=summary, allow_abbrev=False)
    made.add_argument(
        "-f",
        "--filename",
        dest="files",
        metavar="FILE",
        action="append",
        required=files,
        help="manifest file, folder, or - for standard input; may be repeated",
    )
    made.add_argument(
        "--config", type=Path, metavar="FILE", help="the manager's Configuration; default: the one among the manifests"
    )
    made.add_argument("--now", metavar="TIME", help="the moment to look at, RFC 3339; default: now")
    add_output(made)
    return made


def add_output(parser: argparse.ArgumentParser) -> None:
    """The option that says how the result is printed."""
    parser.add_argument(
        "-o",
        "--output",
        choices=[str(output) for output in Output],
        default=str(Output.TABLE),
        help="form of the result; default: table",
    )


def number(*, at_least: int) -> Callable[[str], int]:
    """A type of argument: a whole number, not below `at_least`."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < at_least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {at_least}")
        return int(text)

    return read


def moment(text: str | None) -> datetime:
    """The moment that was asked for, else now. Raises `BadInput`."""
    if text is None:
        return datetime.now(UTC)
    try:
        return parse_time(text)
    except BadInput as error:
        raise BadInput(f"--now: {error}") from error


def settings_of(config: Path | None, given: Sequence[Manifest]) -> Settings:
    """The engine's settings of a Configuration: the file's, else the one among the manifests, else the defaults.

    Raises `BadInput`.
    """
    from multikueue.engine import intake

    found = [manifest for manifest in given if manifest.group == CONFIG_GROUP]
    if config is None and not found:
        return intake.settings({})
    from multikueue.api.configuration import load

    if config is not None:
        return intake.settings(load(config))
    if len(found) > 1:
        raise BadInput(f"{found[1]}: a second Configuration; name one with --config")
    import json

    try:
        return intake.settings(load(json.dumps(found[0].obj)))
    except BadInput as error:
        raise BadInput(f"{found[0].source}: {error}") from error


def show(result: Mapping[str, object], output: Output) -> None:
    """Print a document as JSON or YAML."""
    if output is Output.JSON:
        import orjson

        sys.stdout.buffer.write(orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        sys.stdout.flush()
    else:
        import yaml

        yaml.dump(dict(result), sys.stdout, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False)
