# SPDX-License-Identifier: Apache-2.0
"""`mkctl explain`: why a workload stands where it stands.

Owns options and output. The answer is the engine's own; nothing is decided here, and nothing changes.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from multikueue.api.objects import JsonObject
from multikueue.cli.simulate import Output, settings_of, show
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.core.keys import Key
from multikueue.core.timestamps import parse_time
from multikueue.engine.explain import Explanation
from multikueue.simulation import manifests
from multikueue.simulation.run import Evict, run
from multikueue.simulation.world import build

_BAD_INPUT = 2


def explain(
    target: Annotated[str, typer.Argument(help="workload/NAMESPACE/NAME", metavar="WORKLOAD")],
    files: Annotated[list[str], typer.Option("-f", "--filename", help="manifest file, folder, or - ; repeat")],
    config: Annotated[Path | None, typer.Option(help="the manager's Configuration")] = None,
    now: Annotated[str | None, typer.Option(help="the moment to look at, RFC 3339; default: now")] = None,
    cycles: Annotated[int, typer.Option(min=0, help="run this many cycles first")] = 0,
    output: Annotated[Output, typer.Option("-o", "--output", help="form of the result")] = Output.TABLE,
) -> None:
    """Show what was asked, free, borrowable and short for each flavor, which rule ended the search, and the victims."""
    try:
        key = parse_target(target)
        moment = parse_time(now) if now else datetime.now(UTC)
        given = manifests.read(files)
        world = build(given, settings=settings_of(config, given), now=moment)
        if cycles:
            moment = run(world, now=moment, cycles=cycles, evict=Evict.INSTANT).now
        explanation = world.engine.explain(key, moment)
        if explanation.standing == "Unknown":
            known = ", ".join(f"workload/{name}" for name in sorted(map(str, world.workloads))[:5])
            raise BadInput(f"{target} is not among the manifests; they hold {known or 'no workload'}")
    except MultikueueError as error:
        print(f"mkctl explain: {error}", file=sys.stderr)
        raise typer.Exit(_BAD_INPUT) from error
    if output is Output.TABLE:
        from rich.console import Console

        from multikueue.simulation import explanations

        explanations.show(explanation, Console())
    else:
        show(document(explanation), output)


def parse_target(text: str) -> Key:
    """`workload/ns/name`, as kubectl would name it. Raises `BadInput`."""
    kind, _, rest = text.partition("/")
    namespace, slash, name = rest.partition("/")
    if kind not in ("workload", "workloads", "wl", "kwl") or not slash or not namespace or not name:
        raise BadInput(f"{text!r} does not name a workload; write workload/NAMESPACE/NAME")
    return Key(namespace, name)


def document(explanation: Explanation) -> JsonObject:
    """The explanation with the names of JSON."""
    shown = _camel(asdict(explanation))
    assert isinstance(shown, dict)
    shown["workload"] = str(explanation.workload)
    for victim, source in zip(shown["victims"], explanation.victims, strict=True):
        victim["workload"] = str(source.workload)
    return shown


def _camel(value: object) -> object:
    if isinstance(value, dict):
        return {_name(str(key)): _camel(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_camel(inner) for inner in value]
    return str(value) if isinstance(value, str) else value


def _name(field: str) -> str:
    head, *rest = field.split("_")
    return head + "".join(part.capitalize() for part in rest)
