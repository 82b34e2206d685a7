# SPDX-License-Identifier: Apache-2.0
"""The HTTP server of the virtual `netexec`. Pure: a request in, an answer or an exit request out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from multikueue.api.meta import JsonObject
from multikueue.core.duration import parse_duration
from multikueue.core.errors import BadInput
from multikueue.core.parsing import parse_signed

MAX_WAIT: Final = 300.0
"""The longest delay of an exit, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request to a virtual pod."""

    method: str
    path: str
    query: Mapping[str, str]
    client: str
    """The IP address of the client."""
    headers: Mapping[str, str]
    """Names in lower case."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The answer of a virtual pod."""

    status: int
    body: str = ""
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class ExitRequest:
    """A request that ends the program."""

    code: int
    wait: float
    """Seconds until the program ends."""
    answers: bool
    """Whether the client gets an answer; otherwise the connection breaks when the program ends."""


def respond(request: HttpRequest, pod: JsonObject, *, port: int, now: datetime) -> HttpAnswer | ExitRequest:
    """The answer of the program in `pod` that listens on `port`."""
    terminating = "deletionTimestamp" in pod["metadata"]
    match request.path:
        case "/healthz":
            return HttpAnswer(200)
        case "/readyz":
            return HttpAnswer(503 if terminating else 200)
        case "/hostname" | "/hostName":
            return HttpAnswer(200, hostname_of(pod))
        case "/clientip":
            return HttpAnswer(200, f"{request.client}:0")
        case "/serverport":
            return HttpAnswer(200, str(port))
        case "/header":
            return HttpAnswer(200, request.headers.get(request.query.get("key", "").lower(), ""))
        case "/echo":
            return _echo(request.query)
        case "/exit":
            return _exit(request.query)
        case "/shutdown":
            return ExitRequest(0, 0.0, answers=False)
        case "/redirect":
            return HttpAnswer(302, "", {"Location": _one_line(request.query.get("location", "/"))})
        case "/dial" | "/shell" | "/upload":
            return HttpAnswer(501, f"a virtual container does not support {request.path}\n")
    return HttpAnswer(200, f"NOW: {now.isoformat(sep=' ')}")


def hostname_of(pod: JsonObject) -> str:
    """The host name in the pod's containers."""
    name: str = pod["spec"].get("hostname") or pod["metadata"]["name"]
    return name


def _echo(query: Mapping[str, str]) -> HttpAnswer:
    text = query.get("code", "")
    try:
        code = parse_signed(text, field="code") if text else 200
    except BadInput:
        return HttpAnswer(200, f"argument 'code' must be an integer or empty, got \"{text}\"\n")
    return HttpAnswer(code if 200 <= code < 600 else 500, query.get("msg", ""))


def _exit(query: Mapping[str, str]) -> HttpAnswer | ExitRequest:
    seconds: dict[str, float] = {}
    for name in ("timeout", "wait"):
        text = query.get(name, "")
        try:
            seconds[name] = parse_duration(text).total_seconds() if text else 0.0
        except (BadInput, OverflowError):
            return HttpAnswer(200, f"argument '{name}' must be a valid golang duration or empty, got \"{text}\"\n")
    text = query.get("code", "")
    try:
        code = parse_signed(text, field="code") if text else 0
    except BadInput:
        return HttpAnswer(200, f"argument 'code' must be an integer [0-127] or empty, got \"{text}\"\n")
    return ExitRequest(code & 0xFF, min(max(seconds["wait"], 0.0), MAX_WAIT), answers=seconds["timeout"] > 0)


def _one_line(text: str) -> str:
    return text.replace("\r", "").replace("\n", "")
