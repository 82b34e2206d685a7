# SPDX-License-Identifier: Apache-2.0
"""The container programs that are simulated, and their behaviour. Pure.

Supported are the subcommands `netexec`, `entrypoint-tester` and `pause` of `agnhost`, the image of Kubernetes'
end-to-end tests, and the image `pause`. docs/reference/virtual-pods.md describes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.parsing import parse_unsigned

FOREVER: Final = math.inf
NETEXEC: Final = "netexec"
ENTRYPOINT_TESTER: Final = "entrypoint-tester"
PAUSE: Final = "pause"
_AGNHOST: Final = "agnhost"
_HTTP_PORT: Final = 8080
_MAX_PORT: Final = 65_535
_MAX_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """The program of one container; times in seconds."""

    name: str
    container: str
    run_for: float = FOREVER
    stop_after: float = 0.0
    stop_code: int = 0
    """The exit code after SIGTERM."""
    http_port: int | None = None
    output: tuple[str, ...] = ()
    """The lines that it prints at start."""


def programs_of(pod: JsonObject) -> tuple[Program, ...] | None:
    """The programs of all containers in order; None if one is unknown."""
    found = [program_of(container) for container in pod["spec"]["containers"]]
    known = tuple(program for program in found if program is not None)
    return known if known and len(known) == len(found) else None


def program_of(container: JsonObject) -> Program | None:
    """The program of a container; None if it is unknown."""
    image = str(container.get("image", "")).partition("@")[0].rpartition("/")[2].partition(":")[0]
    command: list[str] = [*(container.get("command") or ()), *(container.get("args") or ())]
    name: str = container.get("name", "")
    if image == PAUSE and not command:
        return Program(name=PAUSE, container=name)
    if image != _AGNHOST:
        return None
    if container.get("command"):
        if command[0].rpartition("/")[2] != _AGNHOST:
            return None
        command = command[1:]
    subcommand, arguments = (command[0], command[1:]) if command else (PAUSE, [])
    if subcommand == ENTRYPOINT_TESTER:
        printed = " ".join(["/agnhost", subcommand, *arguments])
        return Program(name=subcommand, container=name, run_for=0.0, output=(f"[{printed}]",))
    if subcommand == PAUSE:
        return Program(name=subcommand, container=name, stop_code=2, output=("Paused", "Signals registered"))
    return _netexec(name, arguments) if subcommand == NETEXEC else None


def _netexec(container: str, arguments: list[str]) -> Program:
    port = _flag(arguments, "http-port", usual=_HTTP_PORT, maximum=_MAX_PORT)
    delay = _flag(arguments, "delay-shutdown", usual=0, maximum=_MAX_SECONDS)
    return Program(
        name=NETEXEC,
        container=container,
        stop_after=float(delay),
        http_port=port,
        output=(f"Started HTTP server on port {port}",),
    )


def _flag(arguments: list[str], name: str, *, usual: int, maximum: int) -> int:
    """The number of `--name=N` or `--name N`. Raises `BadInput`."""
    for index, argument in enumerate(arguments):
        flag, assigned, value = argument.partition("=")
        if flag.lstrip("-") == name and flag.startswith("-"):
            following = arguments[index + 1] if index + 1 < len(arguments) else ""
            return parse_unsigned(value if assigned else following, field=f"netexec --{name}", maximum=maximum)
    return usual


def http_program(pod: JsonObject, port: int) -> Program | None:
    """The program of the pod with an HTTP server on the port."""
    for container in pod["spec"]["containers"]:
        try:
            program = program_of(container)
        except BadInput:
            continue  # the pod was rejected at its start
        if program is not None and program.http_port == port:
            return program
    return None
