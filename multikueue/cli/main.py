# SPDX-License-Identifier: Apache-2.0
"""The entry point of `mkctl`.

Owns the table of commands. Only the module of the command that is invoked is imported; one of plain arguments starts
without Typer, which is what lets `mkctl simulate` answer in a fraction of a second.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import typer


class Entry(NamedTuple):
    """Where a command's function stands, and the line that `mkctl --help` shows for it.

    A plain one takes the arguments as they are and returns the exit status; any other is a Typer command.
    """

    target: str
    help: str
    plain: bool = False

    def load(self) -> Callable[..., Any]:
        """The function, imported."""
        module, _, function = self.target.partition(":")
        loaded: Callable[..., Any] = getattr(import_module(module), function)
        return loaded


COMMANDS: Final = {
    "up": Entry("multikueue.cli.up:up", "Bring a federation up and leave it running."),
    "down": Entry("multikueue.cli.down:down", "End a federation and remove its data."),
    "status": Entry("multikueue.cli.status:status", "Show what runs, as a table or as JSON."),
    "kubeconfig": Entry("multikueue.cli.kubeconfig:kubeconfig", "Print the path of a cluster's kubeconfig."),
    "demo": Entry("multikueue.cli.demo:demo", "Run 20 Jobs through a federation of its own and watch them."),
    "cluster": Entry("multikueue.cli.cluster:main", "Register, list, cordon, drain and remove workers.", plain=True),
    "binaries": Entry("multikueue.cli.binaries:binaries", "Find, download or build the real control plane."),
    "simulate": Entry("multikueue.cli.simulate:main", "Show what the queues would decide about manifests.", plain=True),
    "story": Entry("multikueue.cli.story:main", "Show what happened to a workload, where and why.", plain=True),
    "explain": Entry("multikueue.cli.explain:main", "Show why a workload stands where it stands.", plain=True),
}


def build(arguments: Sequence[str]) -> typer.Typer:
    """The application for these arguments."""
    from multikueue.cli.application import application

    return application(COMMANDS, arguments)


def main() -> None:
    """Run `mkctl`; that `mkctl … | head` closes the pipe is no error."""
    arguments = sys.argv[1:]
    entry = COMMANDS.get(arguments[0]) if arguments else None
    try:
        if entry is not None and entry.plain:
            sys.exit(entry.load()(arguments[1:]))
        build(arguments)()
    except BrokenPipeError:
        sys.stderr.close()
