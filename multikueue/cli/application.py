# SPDX-License-Identifier: Apache-2.0
"""Builds the Typer application of `mkctl` from the table of commands.

Separate from the entry point: importing Typer takes a quarter of a second, which plain commands do not need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from multikueue import __version__

if TYPE_CHECKING:
    from multikueue.cli.entry import Command

_PASS_ON: Final = {"ignore_unknown_options": True, "allow_extra_args": True}


def application(commands: Mapping[str, Command], arguments: Sequence[str]) -> typer.Typer:
    """The application for these arguments: all commands are registered, only the invoked one is imported."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
    app.callback(invoke_without_command=True)(_mkctl)
    invoked = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, entry in commands.items():
        if name != invoked:
            app.command(name, help=entry.help, hidden=entry.hidden)(_listed)
        elif entry.plain:
            app.command(name, add_help_option=False, context_settings=_PASS_ON, hidden=entry.hidden)(_passed_on(entry))
        else:
            app.command(name)(entry.load())
    return app


def _mkctl(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Federate Kubernetes clusters for batch work."""
    if version:
        typer.echo(f"mkctl {__version__}")
        raise typer.Exit


def _listed() -> None:
    """Placeholder for a command that is not invoked, for `--help`."""


def _passed_on(entry: Command) -> Callable[[typer.Context], None]:
    def command(context: typer.Context) -> None:
        raise typer.Exit(entry.load()(context.args))

    return command
