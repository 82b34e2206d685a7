# SPDX-License-Identifier: Apache-2.0
"""What a page of metrics says."""

from __future__ import annotations

import re


def total(page: str, series: str) -> float:
    """The sum of a series over all of its labels; 0 while there is none."""
    return sum(map(float, re.findall(rf"^{re.escape(series)}(?:{{.*}})? (\S+)$", page, re.MULTILINE)))
