# SPDX-License-Identifier: Apache-2.0
"""`mkctl simulate`: what the engine would decide about manifests, without a cluster.

Owns its options and the order of its steps. Starts in a fraction of a second: it imports neither the client nor the
models, and for JSON no rich.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from multikueue.api.objects import JsonObject
from multikueue.cli.manifest_options import BAD_INPUT, Output, moment, number, parser, settings_of, show
from multikueue.core.errors import MultikueueError
from multikueue.simulation import differences, manifests, report
from multikueue.simulation.run import Evict, run
from multikueue.simulation.world import build

_ENDLESS = 1


def main(arguments: Sequence[str]) -> int:
    """Show what the queues would decide about manifests; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        document = _decide(options)
    except MultikueueError as error:
        print(f"mkctl simulate: {error}", file=sys.stderr)
        return BAD_INPUT
    output = Output(options.output)
    if output is Output.TABLE:
        from rich.console import Console

        from multikueue.simulation import tables

        tables.show(document, Console())
    else:
        show(document, output)
    if document["endless"]:
        names = ", ".join(document["endless"])
        print(f"mkctl simulate: no end: these evict each other in turn: {names}", file=sys.stderr)
        return _ENDLESS
    return 0


def _parser() -> argparse.ArgumentParser:
    made = parser("simulate", "Show what the queues would decide about manifests: who gets quota, who waits and why.")
    made.add_argument(
        "--cycles", type=number(at_least=1), metavar="N", help="run this many; default: until nothing changes"
    )
    made.add_argument(
        "--evict",
        choices=[str(choice) for choice in Evict],
        default=str(Evict.INSTANT),
        help="when a victim gives its quota back; default: instant",
    )
    made.add_argument("--diff", metavar="OTHER", help="file or folder to compare with, for the same workloads")
    return made


def _decide(options: argparse.Namespace) -> JsonObject:
    now = moment(options.now)
    evict = Evict(options.evict)
    given = manifests.read(options.files)
    world = build(given, settings=settings_of(options.config, given), now=now)
    document = report.document(world, run(world, now=now, cycles=options.cycles, evict=evict))
    if options.diff is not None:
        others = differences.with_workloads_of(given, manifests.read([options.diff]))
        other = build(others, settings=settings_of(options.config, others), now=now)
        run(other, now=now, cycles=options.cycles, evict=evict)
        document["diff"] = differences.compare(world, other)
    return document
