# SPDX-License-Identifier: Apache-2.0
"""`mkctl simulate`: the engine's decisions about manifests, without a cluster.

Owns the options and the order of the steps. To start fast it does not import the client, and rich only for tables.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from multikueue.api.objects import JsonObject
from multikueue.cli.inspect.manifest_options import (
    INCOMPLETE,
    OutputFormat,
    configured,
    moment,
    number,
    parser,
    print_left_out,
    show,
)
from multikueue.cli.inspect.schema_rules import schema_refusals
from multikueue.cli.terminal import BAD_INPUT, print_message
from multikueue.core.errors import MultikueueError
from multikueue.simulation import differences, manifests, report
from multikueue.simulation.admission import LeftOut, check_manifests
from multikueue.simulation.job_kinds import is_declaration
from multikueue.simulation.manifests import Unusable
from multikueue.simulation.run import Evict, run
from multikueue.simulation.simulated_cluster import build

_ENDLESS = 1


def main(arguments: Sequence[str]) -> int:
    """Simulate admission of the manifests; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        decided = _decide(options)
    except MultikueueError as error:
        print_message(f"mkctl simulate: {error}")
        return BAD_INPUT
    document, output = decided.document, OutputFormat(options.output)
    if output is OutputFormat.TABLE:
        from multikueue.cli.console import PrintableConsole
        from multikueue.simulation import tables

        tables.show(document, PrintableConsole())
    else:
        show(document, output)
    print_left_out("simulate", decided.unusable, decided.left_out, warnings=decided.warnings)
    if document["endless"]:
        names = ", ".join(document["endless"])
        print_message(f"mkctl simulate: stopped: endless preemption between {names}")
        return _ENDLESS
    return INCOMPLETE if decided.unusable else 0


def _parser() -> argparse.ArgumentParser:
    made = parser("simulate", "Simulate the queues in manifests: which workloads get quota, which wait and why.")
    made.add_argument(
        "--cycles",
        type=number(at_least=1),
        metavar="N",
        help="Number of scheduling cycles. Default: until nothing changes.",
    )
    made.add_argument(
        "--evict",
        choices=[str(choice) for choice in Evict],
        default=str(Evict.INSTANT),
        help="When preempted workloads release their quota. Default: instant.",
    )
    made.add_argument("--diff", metavar="OTHER", help="File or folder to compare with, using the same workloads.")
    return made


@dataclass(slots=True)
class _Decided:
    """The document, and the manifests that were not used."""

    document: JsonObject
    unusable: list[Unusable]
    left_out: list[LeftOut]
    warnings: list[Unusable]


def _decide(options: argparse.Namespace) -> _Decided:
    now = moment(options.now)
    evict = Evict(options.evict)
    given = manifests.read(options.files)
    rules = configured(options.config, given.found)
    checked = check_manifests(given, gate=rules.gate, kinds=rules.kinds, schema_rules=schema_refusals)
    cluster = build(checked.manifests, settings=rules.settings, kinds=rules.kinds, now=now)
    document = report.document(cluster, run(cluster, now=now, cycles=options.cycles, evict=evict))
    unusable, left_out = [*checked.unusable, *cluster.unusable], list(checked.left_out)
    warnings = list(checked.warnings)
    if options.diff is not None:
        others = manifests.read([options.diff])
        own, before = (
            [each for each in side.found if each.group == manifests.CONFIG_GROUP] for side in (others, given)
        )
        declared = [each for each in (*given.found, *others.found) if is_declaration(each)]
        rules = configured(options.config, [*(own or before), *declared])
        changed = check_manifests(others, gate=rules.gate, kinds=rules.kinds, schema_rules=schema_refusals)
        both = differences.with_workloads_of(checked.manifests, changed.manifests, kinds=rules.kinds)
        other = build(both, settings=rules.settings, kinds=rules.kinds, now=now)
        run(other, now=now, cycles=options.cycles, evict=evict)
        document["diff"] = differences.compare(cluster, other)
        unusable += [each for each in (*changed.unusable, *other.unusable) if each not in unusable]
        left_out += changed.left_out
        warnings += [each for each in changed.warnings if each not in warnings]
    document["refused"] = [{"object": each.place, "reasons": list(each.reasons)} for each in unusable]
    document["leftOut"] = [
        {"apiVersion": each.api_version, "kind": each.kind, "count": each.count, "reason": each.reason}
        for each in left_out
    ]
    document["warnings"] = [{"object": each.place, "reasons": list(each.reasons)} for each in warnings]
    return _Decided(document, unusable, left_out, warnings)
