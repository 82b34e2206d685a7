# SPDX-License-Identifier: Apache-2.0
"""`mkctl explain`: why a workload stands where it stands, in manifests (`-f`) or on a live hub.

Owns its options and the names of the engine's JSON. The answer about manifests is the engine's own, the one about a
hub also the federation's; nothing is decided here, nothing changes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict

from multikueue.api.objects import JsonObject
from multikueue.cli.manifest_options import BAD_INPUT, Output, moment, number, parser, settings_of, show
from multikueue.cli.reaching import add_options, reach, target
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.engine.explain import Explanation
from multikueue.simulation import explanations, manifests
from multikueue.simulation.run import Evict, run
from multikueue.simulation.world import build


def main(arguments: Sequence[str]) -> int:
    """Show what was asked, free, borrowable and short for each flavor, which rule ended the search, and the victims."""
    options = _parser().parse_args(arguments)
    try:
        if options.files is None:
            return _live(options)
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
    made = parser(
        "explain", "Show why a workload stands where it stands: of a hub, or with -f of manifests.", files=False
    )
    made.add_argument(
        "target", metavar="WORKLOAD", nargs="+", help="workload NAME or NAMESPACE/NAME, or on a hub job …"
    )
    add_options(made)
    made.add_argument(
        "--cycles", type=number(at_least=0), default=0, metavar="N", help="run this many cycles first; default: 0"
    )
    return made


def _live(options: argparse.Namespace) -> int:
    """Explain a workload of a hub. The imports are for this alone: the runtime takes longer than small manifests do."""
    import anyio

    from multikueue.cli import explanation_view, live_explanation

    if options.cycles:
        raise BadInput("--cycles needs manifests, see -f: a hub runs its cycles itself")
    asked, given, now = target(options.target, namespace=options.namespace), reach(options), moment(options.now)

    async def run() -> live_explanation.LiveExplanation:
        return await live_explanation.explain(given, asked, config=options.config, now=now)

    explanation = anyio.run(run)
    output = Output(options.output)
    if output is Output.TABLE:
        print(explanation_view.text(explanation))
    else:
        show(explanation_view.document(explanation), output)
    return 0


def _explain(options: argparse.Namespace) -> Explanation:
    asked = target(options.target, namespace=options.namespace).within("default")
    if asked.kind != "workload":
        raise BadInput("among manifests a Job is named by its Workload, as `mkctl simulate` prints it")
    key = asked.key
    now = moment(options.now)
    given = manifests.read(options.files)
    world = build(given, settings=settings_of(options.config, given), now=now)
    if options.cycles:
        now = run(world, now=now, cycles=options.cycles, evict=Evict.INSTANT).now
    explanation = world.explain(key, now)
    if explanation.standing == "Unknown":
        known = ", ".join(f"workload/{name}" for name in sorted(map(str, world.workloads))[:5])
        raise BadInput(f"workload/{key} is not among the manifests; they hold {known or 'no workload'}")
    return explanation


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
