# SPDX-License-Identifier: Apache-2.0
"""What a process has used: CPU seconds so far, and memory."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PEAK: Final = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)


def cpu_seconds(pid: int) -> float:
    """User and system time so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_mib(pid: int) -> int:
    """The most memory that was resident."""
    found = _PEAK.search(Path(f"/proc/{pid}/status").read_text())
    if found is None:
        raise ValueError(f"/proc/{pid}/status has no VmHWM")
    return int(found[1]) // 1024
