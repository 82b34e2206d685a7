# SPDX-License-Identifier: Apache-2.0
"""`mkctl story`: what happened to a workload, where, and why.

Owns its options and how the lines are printed. What is a line is `multikueue.federation.story`'s.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from multikueue.api.objects import JsonObject
from multikueue.cli.manifest_options import BAD_INPUT, Output, add_output, show
from multikueue.cli.reaching import Reach, Target, add_options, reach, target
from multikueue.cli.story_reading import Unheard, read
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.core.timestamps import format_micro_time, format_time
from multikueue.federation.story import Story, Tale, story


def main(arguments: Sequence[str]) -> int:
    """Show the timeline of a workload across hub and workers."""
    import anyio

    options = _parser().parse_args(arguments)
    try:
        asked, given = _target(options), _reach(options)

        async def run() -> tuple[Tale, tuple[Unheard, ...]]:
            return await read(given, asked)

        tale, unheard = anyio.run(run)
    except MultikueueError as error:
        print(f"mkctl story: {error}", file=sys.stderr)
        return BAD_INPUT
    told, output = story(tale), Output(options.output)
    if output is not Output.TABLE:
        show(document(told, unheard), output)
        return 0
    for line in lines(told):
        print(line)
    for each in unheard:
        print(f"# {each.cluster} was not asked: {each.why}", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="mkctl story", description="Show the timeline of a workload across hub and workers.", allow_abbrev=False
    )
    made.add_argument("target", metavar="WORKLOAD", nargs="+", help="NAME or NAMESPACE/NAME; or job …")
    add_options(made)
    made.add_argument(
        "--worker",
        dest="workers",
        metavar="CLUSTER=FILE",
        action="append",
        default=[],
        help="the kubeconfig of a worker; may be repeated",
    )
    add_output(made)
    return made


def _target(options: argparse.Namespace) -> Target:
    return target(options.target, kind="workload", namespace=options.namespace)


def _reach(options: argparse.Namespace) -> Reach:
    given = reach(options)
    named = {}
    for text in options.workers:
        cluster, _, file = text.partition("=")
        if not cluster or not file:
            raise BadInput(f"--worker {text}: expected CLUSTER=FILE")
        named[cluster] = file
    return replace(given, workers={**given.workers, **named})


def lines(told: Story) -> Iterator[str]:
    """The story for a person."""
    where = f", on {told.cluster_name}" if told.cluster_name else ""
    asked = f", nominated {', '.join(told.nominated)}" if told.nominated else ""
    evicted = ", ".join(f"{count} x {reason}" for reason, count in told.evictions)
    yield f"workload/{told.workload}: epoch {told.epoch}{where}{asked}" + (f", evicted {evicted}" if evicted else "")
    yield ""
    clusters = max((len(entry.cluster) for entry in told.entries), default=0)
    for entry in told.entries:
        why = f"  ({entry.why})" if entry.why else ""
        yield f"{_moment(entry.time):27}  {entry.cluster:{clusters}}  {entry.what}{why}"


def document(told: Story, unheard: Sequence[Unheard]) -> JsonObject:
    """The story for a program."""
    return {
        "workload": told.workload,
        "epoch": told.epoch,
        "clusterName": told.cluster_name or None,
        "nominatedClusterNames": list(told.nominated),
        "evictions": [{"reason": reason, "count": count} for reason, count in told.evictions],
        "entries": [
            {
                "time": _moment(entry.time),
                "cluster": entry.cluster,
                "what": entry.what,
                "why": entry.why,
                "toldBy": entry.told_by,
            }
            for entry in told.entries
        ],
        "unheard": [{"cluster": each.cluster, "why": each.why} for each in unheard],
    }


def _moment(time: datetime) -> str:
    return format_micro_time(time) if time.microsecond else format_time(time)
