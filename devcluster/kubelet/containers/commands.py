# SPDX-License-Identifier: Apache-2.0
"""The commands that `exec` can run in a virtual container; no process is started and no file is opened.

Simple commands, also as `sh -c "curl ..."` and connected with `;`, `&&` and `||`; curl and wget reach virtual pods
only. docs/reference/virtual-pods.md lists them. Other commands fail with 127 (not found) or 2 (not supported).
"""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

import anyio

from devcluster.kubelet.behaviour import parse_seconds
from devcluster.kubelet.containers import http_commands
from devcluster.kubelet.containers.command_result import CommandResult
from devcluster.kubelet.containers.netexec import hostname_of
from devcluster.kubelet.pod_network import PodNetwork
from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key

MAX_SLEEP: Final = 3600.0
_SHELLS: Final = frozenset({"sh", "bash", "ash"})
_CONNECTORS: Final = frozenset({";", "&&", "||"})
_UNKNOWN_SIGNS: Final = frozenset("|&;<>()")
_MAX_COMMANDS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandContext:
    """The context of a command."""

    key: Key
    pod: JsonObject
    container: JsonObject
    network: PodNetwork
    now: Callable[[], datetime]
    stdin: Callable[[], Awaitable[bytes]]
    """Reads the next input of the client; empty at its end."""
    write: Callable[[bytes], Awaitable[None]]
    """Writes to the client's standard output before the command has ended."""


Command: TypeAlias = Callable[[Sequence[str], CommandContext], Awaitable[CommandResult]]


async def run_command(arguments: Sequence[str], context: CommandContext) -> CommandResult:
    """Run a command with its arguments."""
    if not arguments:
        return CommandResult(errors="no command\n", code=2)
    name = arguments[0].rpartition("/")[2]
    if name in _SHELLS:
        return await _shell(arguments[1:], context)
    command = _COMMANDS.get(name)
    if command is None:
        known = ", ".join(sorted([*_COMMANDS, *_SHELLS]))
        return CommandResult(errors=f"{arguments[0]}: not found: a virtual container supports only {known}\n", code=127)
    try:
        return await command(arguments[1:], context)
    except BadInput as error:
        return CommandResult(errors=f"{name}: {error}\n", code=2)


async def _shell(arguments: Sequence[str], context: CommandContext) -> CommandResult:
    if len(arguments) < 2 or not arguments[0].startswith("-") or not arguments[0].endswith("c"):
        return CommandResult(errors='sh: a virtual container has no shell: use -c "COMMAND"\n', code=2)
    try:
        commands = _split(arguments[1])
    except ValueError as error:
        return CommandResult(errors=f"sh: {error}\n", code=2)
    output, errors, code = "", "", 0
    for connector, simple in commands:
        if (connector == "&&" and code) or (connector == "||" and not code):
            continue
        found = await run_command(simple, context)
        output, errors, code = output + found.output, errors + found.errors, found.code
        if simple[0] == "exit":
            break
    return CommandResult(output=output, errors=errors, code=code)


def _split(text: str) -> list[tuple[str, list[str]]]:
    """The simple commands of a line, each with the connector before it. Raises `ValueError`."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[tuple[str, list[str]]] = [("", [])]
    for argument in lexer:
        if argument in _CONNECTORS:
            found.append((argument, []))
        elif argument and set(argument) <= _UNKNOWN_SIGNS:
            raise ValueError(f"{argument!r} is not supported: a virtual container has no pipes, files or subshells")
        else:
            found[-1][1].append(argument)
    commands = [entry for entry in found if entry[1]]
    if not commands or len(commands) > _MAX_COMMANDS:
        raise ValueError(f"{len(commands)} commands, expected 1 to {_MAX_COMMANDS}")
    return commands


async def _true(arguments: Sequence[str], context: CommandContext) -> CommandResult:
    return CommandResult()


async def _false(arguments: Sequence[str], context: CommandContext) -> CommandResult:
    return CommandResult(code=1)


async def _exit(arguments: Sequence[str], context: CommandContext) -> CommandResult:
    code = arguments[0] if arguments else "0"
    if not code.isdecimal() or len(code) > 3:
        return CommandResult(errors=f"exit: {code}: numeric argument required\n", code=2)
    return CommandResult(code=int(code) & 0xFF)


async def _echo(arguments: Sequence[str], context: CommandContext) -> CommandResult:
    line = list(arguments)
    end = "\n"
    if line and line[0] == "-n":
        end = ""
        del line[0]
    return CommandResult(output=" ".join(line) + end)


async def _cat(arguments: Sequence[str], context: CommandContext) -> CommandResult:
    for name in arguments:
        if name != "-":
            return CommandResult(errors=f"cat: {name}: No such file or directory\n", code=1)
    while data := await context.stdin():
        await context.write(data)
    return CommandResult()


async def _hostname(arguments: Sequence[str], context: CommandContext) -> CommandResult:
    return CommandResult(output=f"{hostname_of(context.pod)}\n")


async def _date(arguments: Sequence[str], context: CommandContext) -> CommandResult:
    return CommandResult(output=f"{context.now():%a %b %d %H:%M:%S UTC %Y}\n")


async def _sleep(arguments: Sequence[str], context: CommandContext) -> CommandResult:
    try:
        seconds = sum(parse_seconds(argument) for argument in arguments)
    except ValueError:
        return CommandResult(errors=f"sleep: invalid number '{' '.join(arguments)}'\n", code=1)
    await anyio.sleep(min(seconds, MAX_SLEEP))
    return CommandResult()


async def _env(arguments: Sequence[str], context: CommandContext) -> CommandResult:
    values = environment(context.pod, context.container)
    if not arguments:
        return CommandResult(output="".join(f"{name}={value}\n" for name, value in values.items()))
    found = [values[name] for name in arguments if name in values]
    return CommandResult(output="".join(f"{value}\n" for value in found), code=0 if len(found) == len(arguments) else 1)


def environment(pod: JsonObject, container: JsonObject) -> Mapping[str, str]:
    """The environment variables of a container whose values are in the pod."""
    metadata = pod["metadata"]
    status = pod.get("status") or {}
    fields = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": pod["spec"].get("nodeName", ""),
        "spec.serviceAccountName": pod["spec"].get("serviceAccountName", ""),
        "status.podIP": status.get("podIP", ""),
        "status.hostIP": status.get("hostIP", ""),
    }
    for kind in ("labels", "annotations"):
        fields |= {f"metadata.{kind}['{key}']": text for key, text in (metadata.get(kind) or {}).items()}
    values = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOSTNAME": hostname_of(pod)}
    for entry in container.get("env") or ():
        source = (entry.get("valueFrom") or {}).get("fieldRef") or {}
        values[entry["name"]] = entry.get("value") or fields.get(source.get("fieldPath", ""), "")
    return values


async def _curl(arguments: Sequence[str], context: CommandContext) -> CommandResult:
    return await http_commands.curl(arguments, network=context.network, inside=context.key, pod=context.pod)


async def _wget(arguments: Sequence[str], context: CommandContext) -> CommandResult:
    return await http_commands.wget(arguments, network=context.network, inside=context.key, pod=context.pod)


_COMMANDS: Final[Mapping[str, Command]] = {
    "cat": _cat,
    "curl": _curl,
    "date": _date,
    "echo": _echo,
    "env": _env,
    "exit": _exit,
    "false": _false,
    "hostname": _hostname,
    "printenv": _env,
    "sleep": _sleep,
    "true": _true,
    "wget": _wget,
}
