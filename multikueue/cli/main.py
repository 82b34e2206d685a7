# SPDX-License-Identifier: Apache-2.0
"""The entry point of `mkctl`.

Owns the table of commands. Only the module of the invoked command is imported. Plain commands run without Typer, so
that `mkctl simulate` starts in a fraction of a second.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from multikueue.cli.entry import Command

if TYPE_CHECKING:
    import typer


COMMANDS: Final = {
    "up": Command("multikueue.cli.local.up:up", "Start a local federation and leave it running."),
    "down": Command("multikueue.cli.local.down:down", "Stop a local federation and delete its data."),
    "status": Command("multikueue.cli.local.status:status", "Show the local federations and their health."),
    "kubeconfig": Command("multikueue.cli.local.kubeconfig:kubeconfig", "Print the path of a cluster's kubeconfig."),
    "demo": Command("multikueue.cli.local.demo:demo", "Start a federation, run 20 Jobs on it and remove it."),
    "cluster": Command(
        "multikueue.cli.cluster.commands:main", "Register, list, cordon, drain and remove worker clusters.", plain=True
    ),
    "binaries": Command(
        "multikueue.cli.local.binaries:binaries", "Find, download or build etcd and the Kubernetes control plane."
    ),
    "simulate": Command(
        "multikueue.cli.inspect.simulate:main", "Simulate admission of manifests, without a cluster.", plain=True
    ),
    "explain": Command(
        "multikueue.cli.inspect.explain:main", "Show the state of a workload and the reasons for it.", plain=True
    ),
    "timeline": Command(
        "multikueue.cli.inspect.timeline:main", "Show what happened to a workload, where and why.", plain=True
    ),
    "owners": Command(
        "multikueue.cli.inspect.owners:main", "Show pods that run outside the quota of their owner.", plain=True
    ),
    "integration": Command(
        "multikueue.cli.inspect.integration:main", "Check the declaration of a job kind, without a cluster.", plain=True
    ),
    "logs": Command(
        "multikueue.cli.logs.command:main", "Print the logs of a Job's pods, on whichever cluster they run.", plain=True
    ),
    "story": Command(
        "multikueue.cli.inspect.timeline:former_main", "Former name of `timeline`.", plain=True, hidden=True
    ),
}


def build(arguments: Sequence[str]) -> typer.Typer:
    """The Typer application for these arguments."""
    from multikueue.cli.application import application

    return application(COMMANDS, arguments)


def main() -> None:
    """Run `mkctl`; a pipe closed by the reader, as in `mkctl … | head`, is not an error."""
    arguments = sys.argv[1:]
    entry = COMMANDS.get(arguments[0]) if arguments else None
    try:
        if entry is not None and entry.plain:
            sys.exit(entry.load()(arguments[1:]))
        build(arguments)()
    except BrokenPipeError:
        sys.stderr.close()
