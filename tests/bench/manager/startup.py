# SPDX-License-Identifier: Apache-2.0
"""How long the manager takes to be ready on a real API server, and how much memory it holds then.

Prints the median of five starts: seconds from fork to /readyz 200, resident MiB two seconds later, and seconds from
SIGTERM to the end. Goals: ready within 1 s, at most 120 MiB.
"""

from __future__ import annotations

import asyncio
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from time import monotonic, sleep

from anyio import to_thread

from multikueue.api.crds import manifests
from multikueue.devcluster.binaries.provider import BinariesProvider
from multikueue.devcluster.provider import ClusterSpec
from tests.support.managers import free_port

_STARTS = 5
_RSS = re.compile(r"^VmRSS:\s+(\d+) kB", re.MULTILINE)


def main() -> dict[str, float]:
    """The figures."""
    starts = asyncio.run(_measure())
    ready, resident, ended = zip(*starts, strict=True)
    return {
        "ready_seconds": round(statistics.median(ready), 3),
        "rss_mib": round(statistics.median(resident), 1),
        "exit_seconds": round(statistics.median(ended), 3),
    }


async def _measure() -> list[tuple[float, float, float]]:
    with tempfile.TemporaryDirectory() as folder:
        async with BinariesProvider(folder=Path(folder)) as provider:
            spec = ClusterSpec(controllers=False, scheduler=False, manifests=manifests())
            cluster = await provider.create("bench", folder=Path(folder) / "bench", spec=spec)
            async with cluster:
                return [await to_thread.run_sync(_start, cluster.kubeconfig) for _ in range(_STARTS)]


def _start(kubeconfig: Path) -> tuple[float, float, float]:
    health = free_port()
    began = monotonic()
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "manager", f"--kubeconfig={kubeconfig}"),
            *(f"--health-bind=127.0.0.1:{health}", "--metrics-bind=127.0.0.1:0"),
            f"--webhook-url=https://127.0.0.1:{free_port()}",
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        while not _ready(health):
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
