# SPDX-License-Identifier: Apache-2.0
"""What it costs until a federation is up: `mkctl up` with two and with twenty workers, and one in an event loop.

Wall time is unreliable on a busy machine, so CPU seconds of all processes are printed too, and the memory that they
hold together, shared pages counted once.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic

from tests.bench.figure import FigureShape

_TICKS = os.sysconf("SC_CLK_TCK")
_MKCTL = "from multikueue.cli.main import main; main()"
_IN_PROCESS = """
import json, resource, time
began = time.monotonic()
import anyio
from multikueue.testing.in_process import embedded_federation

async def main():
    imported = time.monotonic()
    async with embedded_federation():
        used = resource.getrusage(resource.RUSAGE_SELF)
        print(json.dumps({
            "import_seconds": round(imported - began, 2),
            "up_seconds": round(time.monotonic() - imported, 2),
            "cpu_seconds": round(used.ru_utime + used.ru_stime, 2),
            "rss_mib": used.ru_maxrss // 1024,
        }))

anyio.run(main)
"""


FIGURES = (
    FigureShape("mkctl_up.seconds", "s", 4),
    FigureShape("in_process.up_seconds", "s", 2),
    FigureShape("*cpu_seconds", "CPU s"),
    FigureShape("*seconds", "s"),
    FigureShape("*_mib", "MiB"),
    FigureShape("*.processes", ""),
)


def main() -> dict[str, object]:
    """Bring each up once."""
    done = subprocess.run([sys.executable, "-c", _IN_PROCESS], capture_output=True, text=True, check=True)
    return {"mkctl_up": _up(2), "mkctl_up_20_workers": _up(20), "in_process": json.loads(done.stdout)}


def _up(workers: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_STATE_HOME": folder}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        began = monotonic()
        command = [sys.executable, "-c", _MKCTL]
        try:
            subprocess.run([*command, "up", f"--workers={workers}"], env=environment, capture_output=True, check=True)
            wall = monotonic() - began
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            own = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            pids = _descendants(_supervisor(Path(folder)))
            return {
                "seconds": round(wall, 2),
                "cpu_seconds": round(own + sum(map(_cpu, pids)), 2),
                "processes": len(pids),
                "memory_mib": round(sum(map(_memory, pids))),
            }
        finally:
            subprocess.run([*command, "down"], env=environment, capture_output=True, check=True)


def _supervisor(root: Path) -> int:
    state = json.loads((root / "multikueue" / "default" / "state.json").read_bytes())
    supervisor: int = state["supervisor"]
    return supervisor


def _descendants(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += _descendants(int(child))
    return found


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _memory(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise ValueError(f"/proc/{pid}/smaps_rollup has no Pss")
