# SPDX-License-Identifier: Apache-2.0
"""What every process of ours owes at its start: how soon it is ready, what it holds then, how soon it ends.

Owns the measurement of one process that has `/readyz`; the benches of manager and agent say which process.
"""

from __future__ import annotations

import re
import signal
import statistics
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, sleep

from anyio import to_thread

from tests.bench.figure import FigureShape

_STARTS = 5
_RSS = re.compile(r"^VmRSS:\s+(\d+) kB", re.MULTILINE)


FIGURES = (
    FigureShape("ready_seconds", "s", 1),
    FigureShape("rss_mib", "MiB", 120),
    FigureShape("exit_seconds", "s", 5),
)


async def figures(command: Sequence[str], *, health: int) -> dict[str, float]:
    """The medians of five starts of a command that answers /readyz at the port `health`."""
    starts = [await to_thread.run_sync(_start, command, health) for _ in range(_STARTS)]
    ready, resident, ended = zip(*starts, strict=True)
    return {
        "ready_seconds": round(statistics.median(ready), 3),
        "rss_mib": round(statistics.median(resident), 1),
        "exit_seconds": round(statistics.median(ended), 3),
    }


def _start(command: Sequence[str], health: int) -> tuple[float, float, float]:
    began = monotonic()
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        while not _ready(health):
            if process.poll() is not None:
                raise RuntimeError(f"{' '.join(command)} ended with {process.returncode} before it was ready")
            sleep(0.005)
        ready = monotonic() - began
        sleep(2)
        found = _RSS.search(Path(f"/proc/{process.pid}/status").read_text())
        assert found is not None
        process.send_signal(signal.SIGTERM)
        stopped = monotonic()
        process.wait()
        return ready, int(found[1]) / 1024, monotonic() - stopped
    finally:
        process.kill()
        process.wait()


def _ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
