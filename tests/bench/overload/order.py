# SPDX-License-Identifier: Apache-2.0
"""How far Jobs overtook each other. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def overtaken_seconds(served: Iterable[float]) -> float:
    """The most seconds by which a Job was queued after one that was served later.

    `served` are the times at which the Jobs were queued, in the order in which they were served.
    """
    newest, most = float("-inf"), 0.0
    for queued in served:
        most = max(most, newest - queued)
        newest = max(newest, queued)
    return most
