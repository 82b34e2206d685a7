# SPDX-License-Identifier: Apache-2.0
"""The CPU time of the processes of a federation, for the benches that say who uses it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from devcluster.federation.federation import Federation

BENCH: Final = "bench"
"""The name of this process."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(made: Federation) -> dict[str, float]:
    """Of each process of the federation so far, by cluster and component, and of this one."""
    pids = {f"{owner} {part.name}": part.pid for owner, part in made.components() if part.pid is not None}
    return {name: cpu_seconds_of(pid) for name, pid in {**pids, BENCH: os.getpid()}.items()}


def cpu_seconds_of(pid: int) -> float:
    """Of one process, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
