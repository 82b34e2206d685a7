# SPDX-License-Identifier: Apache-2.0
"""Options and output that `mkctl simulate`, `mkctl explain` and `mkctl timeline` share.

Plain `argparse`: Typer would load pydantic for every option, which takes longer than a small simulation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

from multikueue.api import featuregates
from multikueue.api.featuregates import Gate
from multikueue.cli.terminal import print_message, show_json
from multikueue.core.errors import BadInput
from multikueue.core.timestamps import parse_time
from multikueue.engine.settings import Settings
from multikueue.simulation.admission import LeftOut
from multikueue.simulation.job_kinds import SimulatedKinds, is_declaration
from multikueue.simulation.manifests import CONFIG_GROUP, Manifest, Unusable

INCOMPLETE: Final = 1
"""The exit code if some manifests are invalid and were not used for the result."""


class OutputFormat(StrEnum):
    """How the result is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def parser(command: str, summary: str, *, files: bool = True) -> argparse.ArgumentParser:
    """A parser with the common options; with `files` at least one manifest is required."""
    made = argparse.ArgumentParser(prog=f"mkctl {command}", description=summary, allow_abbrev=False)
    made.add_argument(
        "-f",
        "--filename",
        dest="files",
        metavar="FILE",
        action="append",
        required=files,
        help="Manifest file, folder, or - for standard input. May be repeated.",
    )
    made.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"Configuration of the manager. Default: the one in the manifests{'' if files else ' or on the hub'}.",
    )
    made.add_argument("--now", metavar="TIME", help="Evaluate at this time, in RFC 3339. Default: now.")
    add_output(made)
    return made


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add the option for the output format."""
    parser.add_argument(
        "-o",
        "--output",
        choices=[str(output) for output in OutputFormat],
        default=str(OutputFormat.TABLE),
        help="Output format. Default: table.",
    )


def number(*, at_least: int) -> Callable[[str], int]:
    """An argument type: an integer of at least `at_least`."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < at_least:
            raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least {at_least}")
        return int(text)

    return read


def moment(text: str | None) -> datetime:
    """The time in the option, else now. Raises `BadInput`."""
    if text is None:
        return datetime.now(UTC)
    try:
        return parse_time(text)
    except BadInput as error:
        raise BadInput(f"--now: {error}") from error


@dataclass(frozen=True, slots=True)
class SimulationRules:
    """What a Configuration sets for a simulation: the engine, the feature gates and the kinds of jobs."""

    settings: Settings
    gate: Gate
    kinds: SimulatedKinds


def configured(config: Path | None, given: Sequence[Manifest]) -> SimulationRules:
    """The rules of a Configuration: of the file, else of the manifests, else the defaults, with every shipped kind.

    `JobKind` documents among the manifests add to the kinds. Raises `BadInput`.
    """
    from multikueue.engine import decode

    found = [manifest for manifest in given if manifest.group == CONFIG_GROUP]
    declared = [manifest for manifest in given if is_declaration(manifest)]
    if config is None and not found:
        return SimulationRules(decode.settings({}), featuregates.default, SimulatedKinds(given=declared))
    from multikueue.api.configuration_file import load

    if config is not None:
        configuration = load(config)
    elif len(found) > 1:
        raise BadInput(f"{found[1]}: there is more than one Configuration; choose one with --config")
    else:
        import json

        try:
            configuration = load(json.dumps(found[0].obj))
        except (BadInput, RecursionError) as error:
            raise BadInput(f"{found[0].source}: {error}") from error
    kinds = SimulatedKinds.configured(configuration, declared)
    return SimulationRules(decode.settings(configuration), configuration.gate, kinds)


def print_left_out(
    command: str, unusable: Iterable[Unusable], left_out: Iterable[LeftOut], *, warnings: Iterable[Unusable] = ()
) -> None:
    """Print invalid and skipped manifests on standard error, one line each."""
    for each in warnings:
        print_message(f"mkctl {command}: warning: {each}; a hub refuses it now, it is simulated as it is")
    for each in unusable:
        print_message(f"mkctl {command}: {each}")
    for group in left_out:
        print_message(f"mkctl {command}: left out: {group}")


def show(result: Mapping[str, object], output: OutputFormat) -> None:
    """Print a document as JSON or YAML."""
    if output is OutputFormat.JSON:
        show_json(result)
    else:
        import yaml

        yaml.dump(dict(result), sys.stdout, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False)
