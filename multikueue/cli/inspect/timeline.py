# SPDX-License-Identifier: Apache-2.0
"""`mkctl timeline`: what happened to a workload, on which cluster and why.

Owns the options and the output. The entries come from `multikueue.dispatch.timeline`. `mkctl story` is the former name
of the command, accepted for one release.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from datetime import datetime

from multikueue.api.objects import JsonObject
from multikueue.cli.hub_options import WorkloadRef, add_options, add_workers, hub_and_workers, target
from multikueue.cli.inspect.manifest_options import OutputFormat, add_output, show
from multikueue.cli.inspect.timeline_objects import TimelineSources, read
from multikueue.cli.terminal import BAD_INPUT, print_message, show_wrapped
from multikueue.core.errors import MultikueueError
from multikueue.core.timestamps import format_micro_time, format_time
from multikueue.dispatch.timeline import Timeline, timeline

_HANG = 4


def main(arguments: Sequence[str]) -> int:
    """Show the timeline of a workload across hub and workers."""
    import anyio

    options = _parser().parse_args(arguments)
    try:
        ref, hub = _target(options), hub_and_workers(options)

        async def run() -> TimelineSources:
            return await read(hub, ref)

        sources = anyio.run(run)
    except MultikueueError as error:
        print_message(f"mkctl timeline: {error}")
        return BAD_INPUT
    found, output = timeline(sources.objects), OutputFormat(options.output)
    if output is not OutputFormat.TABLE:
        show(document(found, sources), output)
        return 0
    show_wrapped(lines(found), hang=_HANG)
    for each in sources.unreachable:
        print_message(f"# {each.cluster} was not read: {each.why}")
    for part in sources.left_out:
        print_message(f"# left out: {part.what}; needs permission to {'; '.join(part.rights)}")
    return 0


def former_main(arguments: Sequence[str]) -> int:
    """`mkctl story`: as `mkctl timeline`, with a warning."""
    print_message("mkctl story: warning: this command is now called `mkctl timeline`")
    return main(arguments)


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="mkctl timeline",
        description="Show what happened to a workload on the hub and the workers.",
        allow_abbrev=False,
    )
    made.add_argument(
        "target",
        metavar="WORKLOAD",
        nargs="+",
        help="Workload as NAME or NAMESPACE/NAME, or its job as KIND NAME or KIND/NAMESPACE/NAME (job, jobset, …).",
    )
    add_options(made)
    add_workers(made, help="Kubeconfig of a worker, to include its job and events. May be repeated.")
    add_output(made)
    return made


def _target(options: argparse.Namespace) -> WorkloadRef:
    return target(options.target, kind="workload", namespace=options.namespace)


def lines(found: Timeline) -> Iterator[str]:
    """The timeline as text."""
    facts = [f"epoch {found.epoch}"]
    if found.cluster_name:
        facts.append(f"on {found.cluster_name}")
    if found.nominated:
        facts.append(f"nominated {', '.join(found.nominated)}")
    if found.evictions:
        facts.append("evicted " + ", ".join(f"{count} x {reason}" for reason, count in found.evictions))
    yield f"workload/{found.workload}: {', '.join(facts)}"
    yield ""
    clusters = max((len(entry.cluster) for entry in found.entries), default=0)
    for entry in found.entries:
        why = f"  ({entry.why})" if entry.why else ""
        yield f"{format_time(entry.time)}  {entry.cluster:{clusters}}  {entry.what}{why}"


def document(found: Timeline, sources: TimelineSources) -> JsonObject:
    """The timeline as a document; the keys `toldBy` and `unheard` are the former names and stable."""
    return {
        "workload": found.workload,
        "epoch": found.epoch,
        "clusterName": found.cluster_name or None,
        "nominatedClusterNames": list(found.nominated),
        "evictions": [{"reason": reason, "count": count} for reason, count in found.evictions],
        "entries": [
            {
                "time": _moment(entry.time),
                "cluster": entry.cluster,
                "what": entry.what,
                "why": entry.why,
                "toldBy": entry.evidence,
            }
            for entry in found.entries
        ],
        "unheard": [{"cluster": each.cluster, "why": each.why} for each in sources.unreachable],
        "leftOut": [{"what": part.what, "rights": list(part.rights)} for part in sources.left_out],
    }


def _moment(time: datetime) -> str:
    return format_micro_time(time) if time.microsecond else format_time(time)
