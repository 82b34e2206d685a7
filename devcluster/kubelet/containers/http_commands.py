# SPDX-License-Identifier: Apache-2.0
"""The `curl` and `wget` of virtual containers, which reach programs of virtual pods only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import anyio

from devcluster.kubelet.behaviour import parse_seconds
from devcluster.kubelet.containers.command_result import CommandResult
from devcluster.kubelet.containers.netexec import MAX_WAIT, HttpAnswer, HttpRequest
from devcluster.kubelet.pod_network import ConnectionRefused, PodNetwork, UnknownHost
from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key

_LIMIT: Final = MAX_WAIT + 30.0
_UNKNOWN_HOST, _REFUSED, _HTTP_ERROR, _TIMED_OUT, _NO_ANSWER = 6, 7, 22, 28, 52
_USAGE: Final = 2
_BAD_URL: Final = 3
_LONG_FLAGS: Final = {
    "--silent": "s",
    "--show-error": "S",
    "--fail": "f",
    "--insecure": "k",
    "--location": "L",
    "--verbose": "v",
    "--include": "i",
    "--head": "I",
    "--globoff": "g",
    "--no-progress-meter": "s",
}
_LONG_VALUES: Final = {
    "--request": "X",
    "--header": "H",
    "--data": "d",
    "--max-time": "m",
    "--output": "o",
    "--write-out": "w",
    "--user-agent": "A",
    "--connect-timeout": "",
    "--retry": "",
    "--retry-delay": "",
    "--max-redirs": "",
}
_FLAGS: Final = frozenset("sSfkLviIgq46")
_VALUES: Final = frozenset("XHdmowA")


@dataclass(slots=True)
class _Options:
    flags: set[str] = field(default_factory=set)
    values: dict[str, list[str]] = field(default_factory=dict)
    urls: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """A failed request: curl's exit code and message."""

    code: int
    text: str


async def curl(arguments: Sequence[str], *, network: PodNetwork, inside: Key, pod: JsonObject) -> CommandResult:
    """Request each URL. Raises `BadInput` for unknown options."""
    options = _options(arguments)
    if not options.urls:
        return CommandResult(errors="curl: no URL specified!\n", code=_USAGE)
    output, errors, code = "", "", 0
    for url in options.urls:
        found = await _fetch(url, options, network=network, inside=inside, pod=pod)
        if isinstance(found, _Failure):
            code = found.code
            if "s" not in options.flags or "S" in options.flags:
                errors += f"curl: ({found.code}) {found.text}\n"
            continue
        code = 0
        if "f" in options.flags and found.status >= 400:
            code = _HTTP_ERROR
            if "s" not in options.flags or "S" in options.flags:
                errors += f"curl: ({code}) The requested URL returned error: {found.status}\n"
        else:
            head = f"HTTP/1.1 {found.status}\r\n\r\n" if options.flags & {"i", "I"} else ""
            shown = head + ("" if "I" in options.flags else found.body)
            output += "" if options.values.get("o", [""])[-1] == "/dev/null" else shown
        for text in options.values.get("w", ()):
            output += text.replace("%{http_code}", str(found.status)).replace("\\n", "\n")
    return CommandResult(output=output, errors=errors, code=code)


async def wget(arguments: Sequence[str], *, network: PodNetwork, inside: Key, pod: JsonObject) -> CommandResult:
    """Request a URL and print the answer; no file is written."""
    quiet, seconds, urls = False, "", []
    rest = iter(arguments)
    for argument in rest:
        if argument in ("-q", "-qO-", "--quiet", "-nv"):
            quiet = True
        elif argument in ("-O", "-T", "-t"):
            value = next(rest, "")
            seconds = value if argument == "-T" else seconds
        elif argument.startswith("--timeout="):
            seconds = argument.partition("=")[2]
        elif argument in ("-O-", "--spider", "-S") or argument.startswith(("--tries=", "-T", "--output-document=")):
            continue
        elif argument == "-qO":
            quiet = True
            next(rest, "")
        elif argument.startswith("-"):
            raise BadInput(f"unrecognized option '{argument}'")
        else:
            urls.append(argument)
    if len(urls) != 1:
        raise BadInput(f"expected one URL, found {len(urls)}")
    options = _Options(values={"m": [seconds]} if seconds else {})
    found = await _fetch(urls[0], options, network=network, inside=inside, pod=pod)
    if isinstance(found, _Failure):
        return CommandResult(errors=f"wget: {found.text}\n", code=1)
    if found.status >= 400:
        return CommandResult(errors=f"wget: server returned error: HTTP/1.1 {found.status}\n", code=1)
    return CommandResult(output=found.body, errors="" if quiet else f"Connecting to {urls[0]}\n")


async def _fetch(
    url: str, options: _Options, *, network: PodNetwork, inside: Key, pod: JsonObject
) -> HttpAnswer | _Failure:
    if "://" not in url:
        url = f"http://{url}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or 80
    except ValueError:
        return _Failure(code=_BAD_URL, text="URL rejected: Malformed input to a URL function")
    if parts.scheme != "http" or not host:
        return _Failure(code=1, text=f'Protocol "{parts.scheme}" not supported by a virtual container')
    headers = dict(_header(text) for text in options.values.get("H", ()))
    http_request = HttpRequest(
        method=(options.values.get("X") or ["POST" if options.values.get("d") else "GET"])[-1],
        path=parts.path or "/",
        query=dict(parse_qsl(parts.query, keep_blank_values=True)),
        client=(pod.get("status") or {}).get("podIP", ""),
        headers={"host": parts.netloc, "user-agent": "curl/8", **headers},
    )
    with anyio.move_on_after(_seconds(options)):
        try:
            listener = await network.resolve(host, port, inside=inside)
        except UnknownHost:
            return _Failure(code=_UNKNOWN_HOST, text=f"Could not resolve host: {host}")
        except ConnectionRefused as error:
            text = f"Failed to connect to {host} port {port}: Connection refused ({error})"
            return _Failure(code=_REFUSED, text=text)
        answer = await network.ask(listener, http_request)
        return answer or _Failure(code=_NO_ANSWER, text="Empty reply from server")
    return _Failure(code=_TIMED_OUT, text="Operation timed out")


def _seconds(options: _Options) -> float:
    given = options.values.get("m")
    if not given:
        return _LIMIT
    try:
        return min(parse_seconds(given[-1]), _LIMIT)
    except ValueError as error:
        raise BadInput(f"expected a number of seconds, found {given[-1]!r}") from error


def _options(arguments: Sequence[str]) -> _Options:
    found = _Options()
    rest = iter(arguments)
    for argument in rest:
        name, assigned, value = argument.partition("=")
        if not argument.startswith("-") or argument == "-":
            found.urls.append(argument)
        elif argument in _LONG_FLAGS:
            found.flags.add(_LONG_FLAGS[argument])
        elif name in _LONG_VALUES:
            value = value if assigned else next(rest, "")
            found.values.setdefault(_LONG_VALUES[name], []).append(value)
        elif argument == "--url":
            found.urls.append(next(rest, ""))
        else:
            _letters(argument, found, rest=rest)
    return found


def _letters(argument: str, found: _Options, *, rest: Iterator[str]) -> None:
    """Parse short options such as `-sS` and `-m5`."""
    for index, letter in enumerate(argument[1:], 1):
        if letter in _VALUES:
            value = argument[index + 1 :]
            if not value:
                value = next(rest, "")
            found.values.setdefault(letter, []).append(value)
            return
        if argument.startswith("--") or letter not in _FLAGS:
            raise BadInput(f"option {argument}: is unknown")
        found.flags.add(letter)


def _header(text: str) -> tuple[str, str]:
    name, _, value = text.partition(":")
    return name.strip().lower(), value.strip()
