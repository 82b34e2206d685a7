# SPDX-License-Identifier: Apache-2.0
"""`mkctl simulate`: what the engine would decide about manifests, without a cluster.

Owns options and output. Starts in a fraction of a second: it imports neither the client nor, for JSON, rich.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from multikueue.core.errors import BadInput, MultikueueError
from multikueue.core.timestamps import parse_time
from multikueue.engine.settings import Settings
from multikueue.simulation import differences, manifests, report
from multikueue.simulation.manifests import CONFIG_GROUP, Manifest
from multikueue.simulation.run import Evict, run
from multikueue.simulation.world import World, build

_BAD_INPUT = 2


class Output(StrEnum):
    """How the result is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def simulate(
    files: Annotated[list[str], typer.Option("-f", "--filename", help="manifest file, folder, or - ; repeat")],
    config: Annotated[Path | None, typer.Option(help="the manager's Configuration")] = None,
    cycles: Annotated[int | None, typer.Option(min=1, help="run this many; default: until nothing changes")] = None,
    now: Annotated[str | None, typer.Option(help="the moment to simulate, RFC 3339; default: now")] = None,
    evict: Annotated[Evict, typer.Option(help="when a victim gives its quota back")] = Evict.INSTANT,
    output: Annotated[Output, typer.Option("-o", "--output", help="form of the result")] = Output.TABLE,
    diff: Annotated[str | None, typer.Option(help="manifests to compare with, for the same workloads")] = None,
) -> None:
    """Show what the queues would decide about manifests: who gets quota, who waits and why, who is evicted."""
    try:
        moment = parse_time(now) if now else datetime.now(UTC)
        given = manifests.read(files)
        settings = settings_of(config, given)
        world = build(given, settings=settings, now=moment)
        result = report.document(world, run(world, now=moment, cycles=cycles, evict=evict))
        if diff is not None:
            others = differences.with_workloads_of(given, manifests.read([diff]))
            other = build(others, settings=settings, now=moment)
            result |= {"diff": _compare(world, other, moment, cycles, evict)}
    except MultikueueError as error:
        print(f"mkctl simulate: {error}", file=sys.stderr)
        raise typer.Exit(_BAD_INPUT) from error
    show(result, output)


def settings_of(config: Path | None, given: Sequence[Manifest] = ()) -> Settings:
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
    import orjson

    return intake.settings(load(orjson.dumps(found[0].obj).decode()))


def show(result: dict[str, object], output: Output) -> None:
    """Print a result in one of the three forms."""
    if output is Output.JSON:
        import orjson

        sys.stdout.buffer.write(orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        sys.stdout.flush()
    elif output is Output.YAML:
        import yaml

        yaml.dump(result, sys.stdout, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False)
    else:
        from rich.console import Console

        from multikueue.simulation import tables

        tables.show(result, Console(soft_wrap=False))


def _compare(before: World, after: World, moment: datetime, cycles: int | None, evict: Evict) -> dict[str, object]:
    run(after, now=moment, cycles=cycles, evict=evict)
    return differences.compare(before, after)
