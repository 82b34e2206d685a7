# SPDX-License-Identifier: Apache-2.0
"""The entry point of `mkctl`.

Owns the table of commands. A command's module is imported when the command is invoked and not before, so that
`mkctl simulate` starts without the client and `mkctl --help` without anything.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Final

import click
import typer
from typer.core import TyperGroup
from typer.main import get_command

from multikueue import __version__


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command's function stands, and the line that `mkctl --help` shows for it."""

    target: str
    help: str


COMMANDS: Final = {
    "simulate": Entry("multikueue.cli.simulate:simulate", "what the queues would decide about manifests"),
    "explain": Entry("multikueue.cli.explain:explain", "why a workload of some manifests stands where it stands"),
}


class LazyGroup(TyperGroup):
    """A group whose commands are imported when they are asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, function = entry.target.partition(":")
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        app.command(cmd_name)(getattr(import_module(module), function))
        return get_command(app)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of `--help`, without importing a single command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])


app = typer.Typer(cls=LazyGroup, add_completion=False, rich_markup_mode=None, no_args_is_help=True)


@app.callback(invoke_without_command=True)
def mkctl(version: bool = typer.Option(False, "--version", help="print the version and exit")) -> None:
    """Federate Kubernetes clusters for batch work."""
    if version:
        typer.echo(f"mkctl {__version__}")
        raise typer.Exit


def main() -> None:
    """Run `mkctl`; a broken pipe of `mkctl … | head` is no error."""
    try:
        app()
    except BrokenPipeError:
        sys.stderr.close()
