# SPDX-License-Identifier: Apache-2.0
"""The CPU time of the processes of a federation, for the benches that say who uses it."""

from __future__ import annotations

import os
from typing import Final

from devcluster.federation.federation import Federation
from tests.bench.queueing.processes import cpu_seconds

BENCH: Final = "bench"
"""The name of this process."""


def cpu_seconds_by_process(made: Federation) -> dict[str, float]:
    """Of each process of the federation so far, by cluster and component, and of this one."""
    pids = {f"{owner} {part.name}": part.pid for owner, part in made.components() if part.pid is not None}
    return {name: cpu_seconds(pid) for name, pid in {**pids, BENCH: os.getpid()}.items()}
