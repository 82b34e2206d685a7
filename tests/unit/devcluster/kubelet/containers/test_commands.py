# SPDX-License-Identifier: Apache-2.0
"""The commands of virtual containers; what reaches other pods is in tests/component/embedded."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from devcluster.kubelet.containers.command_result import CommandResult
from devcluster.kubelet.containers.commands import CommandContext, run_command
from devcluster.kubelet.pod_network import PodNetwork, UnknownHost
from multikueue.core.keys import Key

ENV = [{"name": "A", "value": "1"}, {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]


class NoNetwork:
    """Knows no name."""

    async def resolve(self, host: str, port: int, *, inside: Key) -> None:
        raise UnknownHost(host)


async def run(*words: str, stdin: Sequence[bytes] = ()) -> tuple[CommandResult, bytes]:
    pod: dict[str, Any] = {
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": {"nodeName": "node-1", "containers": [{"name": "c", "env": ENV}]},
    }
    parts, written = list(stdin), bytearray()

    async def read() -> bytes:
        return parts.pop(0) if parts else b""

    async def write(data: bytes) -> None:
        written.extend(data)

    place = CommandContext(
        key=Key("n", "p"),
        pod=pod,
        container=pod["spec"]["containers"][0],
        network=cast(PodNetwork, NoNetwork()),
        now=lambda: datetime(2026, 1, 1, tzinfo=UTC),
        stdin=read,
        write=write,
    )
    return await run_command(words, place), bytes(written)


@pytest.mark.parametrize(
    ("words", "output", "code"),
    [
        pytest.param(["true"], "", 0, id="true"),
        pytest.param(["/bin/false"], "", 1, id="false by its path"),
        pytest.param(["echo", "a", "b"], "a b\n", 0, id="echo"),
        pytest.param(["hostname"], "p\n", 0, id="hostname"),
        pytest.param(["printenv", "A", "NAME"], "1\np\n", 0, id="variables"),
        pytest.param(["printenv", "NONE"], "", 1, id="no such variable"),
        pytest.param(["sh", "-c", "exit 7"], "", 7, id="exit"),
        pytest.param(["sh", "-c", "echo a && echo b; false || echo c"], "a\nb\nc\n", 0, id="several"),
        pytest.param(["sh", "-c", "false && echo a; true || echo b"], "", 0, id="none of several"),
        pytest.param(["bash", "-ec", "exit 3; echo a"], "", 3, id="nothing after exit"),
        pytest.param(["sh", "-c", "echo 'a && b'"], "a && b\n", 0, id="quoted signs"),
    ],
)
async def test_a_command_ends_as_in_a_container(words: list[str], output: str, code: int) -> None:
    found, _ = await run(*words)
    assert (found.output, found.code) == (output, code)


async def test_cat_passes_on_what_it_is_sent() -> None:
    found, written = await run("cat", stdin=[b"a\n", b"b\n"])
    assert (found.code, written) == (0, b"a\nb\n")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        pytest.param(["ls"], 127, "ls: not found: a virtual container supports only", id="an unknown command"),
        pytest.param(["cat", "/etc/passwd"], 1, "No such file", id="a file"),
        pytest.param(["sh"], 2, "has no shell", id="a shell"),
        pytest.param(["sh", "-c", "echo a | cat"], 2, "no pipes", id="a pipe"),
        pytest.param(["sh", "-c", "echo a > /tmp/x"], 2, "no pipes", id="a redirection"),
        pytest.param(["sh", "-c", "echo 'a"], 2, "No closing quotation", id="an open quote"),
        pytest.param(["sh", "-c", "true;" * 101], 2, "101 commands", id="very many"),
        pytest.param(["curl", "http://x"], 6, "Could not resolve host: x", id="an unknown host"),
        pytest.param(["curl", "--upload-file", "/etc/passwd", "x"], 2, "is unknown", id="an unknown option"),
        pytest.param(["curl", "file:///etc/passwd"], 1, "not supported", id="a file by its URL"),
        pytest.param(["curl", "http://x:99999/"], 3, "Malformed", id="a port that is none"),
        pytest.param(["curl"], 2, "no URL", id="no URL"),
        pytest.param(["wget", "-qO-", "http://x"], 1, "Could not resolve host: x", id="wget"),
        pytest.param([], 2, "no command", id="nothing"),
    ],
)
async def test_unsupported_commands_are_reported(words: list[str], code: int, says: str) -> None:
    found, _ = await run(*words)
    assert found.code == code
    assert says in found.errors


async def test_a_quiet_curl_prints_nothing() -> None:
    found, _ = await run("curl", "-s", "http://x")
    assert (found.errors, found.code) == ("", 6)
