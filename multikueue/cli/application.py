# SPDX-License-Identifier: Apache-2.0
"""The Typer application behind `mkctl`.

Owns how the table of commands becomes an application. Apart from the entry point, because Typer costs a quarter of a
second that commands of plain arguments need not wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from multikueue import __version__

if TYPE_CHECKING:
    from multikueue.cli.main import Entry

_PASS_ON: Final = {"ignore_unknown_options": True, "allow_extra_args": True}


def application(commands: Mapping[str, Entry], arguments: Sequence[str]) -> typer.Typer:
    """The application for these arguments: every name is known, the invoked one is loaded."""
    app = typer.Typer(add_completion=False, rich_markup_mode=None, no_args_is_help=True)
    app.callback(invoke_without_command=True)(_mkctl)
    invoked = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, entry in commands.items():
        if name != invoked:
            app.command(name, help=entry.help)(_listed)
        elif entry.plain:
            app.command(name, add_help_option=False, context_settings=_PASS_ON)(_passed_on(entry))
        else:
            app.command(name)(entry.load())
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


def _passed_on(entry: Entry) -> Callable[[typer.Context], None]:
    def command(context: typer.Context) -> None:
        raise typer.Exit(entry.load()(context.args))

    return command
