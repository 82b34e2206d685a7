# SPDX-License-Identifier: Apache-2.0
"""The entry point of `mkctl`.

Owns the table of commands. Only the module of the command that is invoked is imported, so that `mkctl simulate` starts
without the client and `mkctl --help` without anything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Final

import typer

from multikueue import __version__


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command's function stands, and the line that `mkctl --help` shows for it."""

    target: str
    help: str

    def load(self) -> Callable[..., None]:
        """The function, imported."""
        module, _, function = self.target.partition(":")
        loaded: Callable[..., None] = getattr(import_module(module), function)
        return loaded


COMMANDS: Final = {
    "up": Entry("multikueue.cli.up:up", "Bring a federation up and leave it running."),
    "down": Entry("multikueue.cli.down:down", "End a federation and remove its data."),
    "status": Entry("multikueue.cli.status:status", "Show what runs, as a table or as JSON."),
    "kubeconfig": Entry("multikueue.cli.kubeconfig:kubeconfig", "Print the path of a cluster's kubeconfig."),
    "demo": Entry("multikueue.cli.demo:demo", "Run 20 Jobs through a federation of its own and watch them."),
    "binaries": Entry("multikueue.cli.binaries:binaries", "Find, download or build the real control plane."),
    "simulate": Entry("multikueue.cli.simulate:simulate", "Show what the queues would decide about manifests."),
    "explain": Entry("multikueue.cli.explain:explain", "Show why a workload of some manifests stands where it stands."),
}


def build(arguments: Sequence[str]) -> typer.Typer:
    """The application for these arguments: every name is known, the invoked one is loaded."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
    app.callback(invoke_without_command=True)(_mkctl)
    invoked = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, entry in COMMANDS.items():
        if name == invoked:
            app.command(name)(entry.load())
        else:
            app.command(name, help=entry.help)(_listed)
    return app


def _mkctl(
    version: Annotated[bool, typer.Option("--version", help="print the version and exit")] = False,
) -> None:
    """Federate Kubernetes clusters for batch work."""
    if version:
        typer.echo(f"mkctl {__version__}")
        raise typer.Exit


def _listed() -> None:
    """Stands for a command in `--help`; what is invoked has been loaded instead."""


def main() -> None:
    """Run `mkctl`; that `mkctl … | head` closes the pipe is no error."""
    try:
        build(sys.argv[1:])()
    except BrokenPipeError:
        sys.stderr.close()
