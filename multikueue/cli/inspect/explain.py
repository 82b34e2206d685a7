# SPDX-License-Identifier: Apache-2.0
"""`mkctl explain`: the state of a workload with the reasons, on a live hub or in manifests (`-f`).

Owns the options. For manifests the answer comes from the engine, for a hub also from dispatch. Nothing is decided here
and nothing is changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from multikueue.cli.hub_options import WORKLOAD, WorkloadRef, add_options, hub_options, target
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
from multikueue.cli.terminal import BAD_INPUT, print_message, show_wrapped
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.core.keys import Key
from multikueue.engine.explain import Explanation
from multikueue.simulation import explanations, manifests
from multikueue.simulation.admission import check_manifests
from multikueue.simulation.run import Evict, run
from multikueue.simulation.simulated_cluster import SimulatedCluster, build

_SHOWN = 5


def main(arguments: Sequence[str]) -> int:
    """Run `mkctl explain`; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.files is None:
            return _live(options)
        explanation, complete = _explain(options)
    except MultikueueError as error:
        print_message(f"mkctl explain: {error}")
        return BAD_INPUT
    output = OutputFormat(options.output)
    if output is OutputFormat.TABLE:
        show_wrapped(explanations.lines(explanation))
    else:
        show(explanations.document(explanation), output)
    return 0 if complete else INCOMPLETE


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "explain", "Show the state of a workload and the reasons for it, on a hub or (-f) in manifests.", files=False
    )
    made.add_argument(
        "target",
        metavar="WORKLOAD",
        nargs="+",
        help="workload NAME or workload/NAMESPACE/NAME, or KIND/NAMESPACE/NAME of its job, such as job or jobset.",
    )
    add_options(made)
    made.add_argument(
        "--cycles",
        type=number(at_least=0),
        default=0,
        metavar="N",
        help="With -f: number of scheduling cycles to run first. Default: 0.",
    )
    return made


def _live(options: argparse.Namespace) -> int:
    """Explain a workload of a hub. Imports the client here: that takes longer than explaining small manifests."""
    import anyio

    from multikueue.cli.inspect import explanation_view, live_explanation

    if options.cycles:
        raise BadInput("--cycles needs manifests; pass them with -f")
    ref, hub, now = target(options.target, namespace=options.namespace), hub_options(options), moment(options.now)

    async def run() -> live_explanation.LiveExplanation:
        return await live_explanation.explain(hub, ref, config=options.config, now=now)

    explanation = anyio.run(run)
    output = OutputFormat(options.output)
    if output is OutputFormat.TABLE:
        show_wrapped(explanation_view.lines(explanation))
    else:
        show(explanation_view.document(explanation), output)
    return 0


def _explain(options: argparse.Namespace) -> tuple[Explanation, bool]:
    """The explanation, and whether all manifests were used; the others are printed. Raises `BadInput`."""
    ref = target(options.target, namespace=options.namespace).within("default")
    now = moment(options.now)
    given = manifests.read(options.files)
    rules = configured(options.config, given.found)
    checked = check_manifests(given, gate=rules.gate, kinds=rules.kinds, schema_rules=schema_refusals)
    cluster = build(checked.manifests, settings=rules.settings, kinds=rules.kinds, now=now)
    unusable = [*checked.unusable, *cluster.unusable]
    print_left_out("explain", unusable, checked.left_out, warnings=checked.warnings)
    if options.cycles:
        now = run(cluster, now=now, cycles=options.cycles, evict=Evict.INSTANT).now
    key = ref.key if ref.kind == WORKLOAD else _workload_of_job(cluster, ref)
    explanation = cluster.explain(key, now)
    if explanation.state == "Unknown":
        known = ", ".join(f"workload/{name}" for name in sorted(map(str, cluster.workloads))[:_SHOWN])
        raise BadInput(f"workload/{key} is not in the manifests; they have {known or 'no workload'}")
    return explanation, not unusable


def _workload_of_job(cluster: SimulatedCluster, ref: WorkloadRef) -> Key:
    """The Workload of a job of the manifests. Raises `BadInput`."""
    for job, workload in cluster.jobs.items():
        kind = job.kind.lower()
        if job.key == ref.key and ref.kind in (kind, f"{kind}s", f"{kind}.{job.group}", f"{kind}s.{job.group}"):
            return workload
    known = ", ".join(sorted(map(str, cluster.jobs))[:_SHOWN])
    raise BadInput(
        f"{ref.kind}/{ref.key} is not a job that the manifests queue; use workload/NAMESPACE/NAME or"
        f" KIND/NAMESPACE/NAME; they have {known or 'no job'}"
    )
