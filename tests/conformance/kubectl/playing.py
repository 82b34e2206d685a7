# SPDX-License-Identifier: Apache-2.0
"""Plays a chapter of the kubectl session on one server, and normalises what differs between two runs.

Owns the processes it starts: none outlives its chapter. Leaves uids, times and addresses of servers to the harness.
"""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.conformance.harness import Side
from tests.conformance.kubectl.script import Chapter, Step

_PATIENCE: Final = 30.0
_ARGUMENT: Final = re.compile(r"""'[^']*'(?=\s|$)|"[^"]*"(?=\s|$)|\S+""")
"""Quotes count only around a whole argument, so that JSON needs no escapes."""
_GAP: Final = re.compile(" {2,}|(?<=>) ")
_PATTERNS: Final = (
    # Whether a watch that ends with its command still prints that is a race.
    (re.compile(r"(?m)^[EWI]\d{4} [\d:.]+ +\d+ reflector\.go.*\n"), ""),
    (re.compile(r"(?m)^[EWI]\d{4} [\d:.]+ +\d+ "), "<log> "),
    (re.compile(r"\b[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}\b"), "<date>"),
    (re.compile(r"\beyJ[\w-]+\.[\w-]+\.[\w-]+"), "<token>"),
    (re.compile(r"\b10\.\d+\.\d+\.\d+\b *"), "<address> "),
    (re.compile(r"(?m)(?<![\w.-])(?:\d+[dhm])?\d+s(?= |$)(?: ago)? *"), "<age> "),
    (re.compile(r'(resourceVersion"?: )"\d+"'), r'\1"<version>"'),
    (re.compile(r"(?<=NodePort:  )( +<unset>  )\d+"), r"\1<port>"),
    (re.compile(r"(?<=Resource Version:)( +)\d+"), r"\1<version>"),
    (re.compile(r"\bkube-api-access-\w{5}\b"), "kube-api-access-<random>"),
    (re.compile(r"(?<=:)3\d{4}(?=/TCP)"), "<port>"),
    (re.compile(r"(?<![\w-])\d{3}d( ago)?\b *"), "<days> "),
    (re.compile(r"\bkubectl-edit-\d+\.yaml"), "kubectl-edit.yaml"),
    (re.compile(r"(?m) +$"), ""),
)


class Player:
    """kubectl, for one server."""

    def __init__(self, side: Side, *, kubectl: Path, folder: Path) -> None:
        self._side = side
        self._folder = folder / side.server.name / side.id
        self._folder.mkdir(parents=True)
        config = side.server.kubeconfig
        where = [f"--kubeconfig={config}"] if config else [f"--server={side.server.url}"]
        self._command = [str(kubectl), *where, f"--namespace={side.ns}"]
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self._folder),
            "KUBECACHEDIR": str(folder / side.server.name / "cache"),
            "KUBE_EDITOR": f"sh {self._folder}/edit.sh",
            "TZ": "UTC",
        }
        self._running: tuple[str, asyncio.subprocess.Process] | None = None
        self._lines: list[str] = []

    async def play(self, chapter: Chapter) -> None:
        """All steps in order."""
        try:
            for step in chapter.steps:
                await self._step(step)
        finally:
            await self._end()

    async def _step(self, step: Step) -> None:
        text = self._own(step.text)
        match step.verb:
            case ">":
                (self._folder / step.rest).write_text(text)
            case "&":
                await self._end()
                self._running, self._lines = (step.rest, await self._start(step.rest)), []
            case ".":
                await self._listen(len(self._lines) + int(step.rest))
            case "!":
                await self._listen(int(step.rest))
                command, _ = self._started()
                await self._end()
                self._side.note(f"kubectl {command}", self._lines)
            case _:
                code, output = await self._run(step.rest, text)
                if step.verb == "~":
                    assert code == 0, f"{self._side.server.name}: kubectl {step.rest}: {output}"
                    return
                lines = self._clean(output).splitlines()
                if step.verb == "$loose":
                    lines = [_GAP.sub("  ", line) for line in lines]
                if step.rest.startswith("explain "):
                    lines = _without_prose(lines)
                self._side.note(
                    f"kubectl {step.rest}", [*(sorted(lines) if step.verb == "$sorted" else lines), f"[{code}]"]
                )

    async def _run(self, rest: str, text: str) -> tuple[int, str]:
        process = await self._start(rest)
        try:
            async with asyncio.timeout(_PATIENCE):
                output, _ = await process.communicate(text.encode())
        except TimeoutError:
            process.kill()
            output, _ = await process.communicate()
            output += f"\nno end within {_PATIENCE:.0f} s".encode()
        return process.returncode or 0, output.decode()

    async def _listen(self, count: int) -> None:
        _, process = self._started()
        assert process.stdout is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while len(self._lines) < count and (line := await process.stdout.readline()):
                    self._lines.append(self._clean(line.decode()).rstrip("\n"))

    def _started(self) -> tuple[str, asyncio.subprocess.Process]:
        assert self._running is not None, "nothing has been started"
        return self._running

    async def _start(self, rest: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._command,
            *(found[1:-1] if found[0] in "'\"" else found for found in _ARGUMENT.findall(self._own(rest))),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._environment,
            cwd=self._folder,
        )

    async def _end(self) -> None:
        if self._running is not None:
            _, process = self._running
            self._running = None
            if process.returncode is None:
                process.kill()
            await process.communicate()

    def _own(self, text: str) -> str:
        return text.replace("{ns}", self._side.ns).replace("{id}", self._side.id).replace("{dir}", str(self._folder))

    def _clean(self, text: str) -> str:
        text = text.replace(str(self._folder), "<dir>")
        # An address is printed with and without its scheme.
        text = text.replace(self._side.server.url, "<server>")
        text = text.replace(self._side.server.url.partition("://")[2], "<server>")
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        return text


def _without_prose(lines: list[str]) -> list[str]:
    """What `kubectl explain` prints but for descriptions: our tables of built-in kinds hold no text of others."""
    kept, section = [], ""
    for line in lines:
        if line and not line.startswith(" "):
            section = line.partition(":")[0]
        typed = "\t<" in line or line.lstrip().startswith("enum:")
        if line and (not line.startswith(" ") or (typed if section == "FIELDS" else section != "DESCRIPTION")):
            kept.append(line)
    return kept
