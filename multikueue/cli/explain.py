# SPDX-License-Identifier: Apache-2.0
"""`mkctl explain`: why a workload stands where it stands.

Owns its options and the names of its JSON. The answer is the engine's own; nothing is decided here, nothing changes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict

from multikueue.api.objects import JsonObject
from multikueue.cli.manifest_options import BAD_INPUT, Output, moment, number, parser, settings_of, show
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.core.keys import Key
from multikueue.engine.explain import Explanation
from multikueue.simulation import explanations, manifests
from multikueue.simulation.run import Evict, run
from multikueue.simulation.world import build


def main(arguments: Sequence[str]) -> int:
    """Show what was asked, free, borrowable and short for each flavor, which rule ended the search, and the victims."""
    options = _parser().parse_args(arguments)
    try:
        explanation = _explain(options)
    except MultikueueError as error:
        print(f"mkctl explain: {error}", file=sys.stderr)
        return BAD_INPUT
    output = Output(options.output)
    if output is Output.TABLE:
        print(explanations.text(explanation))
    else:
        show(document(explanation), output)
    return 0


def _parser() -> argparse.ArgumentParser:
    made = parser("explain", "Show why a workload of some manifests stands where it stands.")
    made.add_argument("target", metavar="WORKLOAD", help="workload/NAMESPACE/NAME")
    made.add_argument(
        "--cycles", type=number(at_least=0), default=0, metavar="N", help="run this many cycles first; default: 0"
    )
    return made


def _explain(options: argparse.Namespace) -> Explanation:
    key = parse_target(options.target)
    now = moment(options.now)
    given = manifests.read(options.files)
    world = build(given, settings=settings_of(options.config, given), now=now)
    if options.cycles:
        now = run(world, now=now, cycles=options.cycles, evict=Evict.INSTANT).now
    explanation = world.explain(key, now)
    if explanation.standing == "Unknown":
        known = ", ".join(f"workload/{name}" for name in sorted(map(str, world.workloads))[:5])
        raise BadInput(f"{options.target} is not among the manifests; they hold {known or 'no workload'}")
    return explanation


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
