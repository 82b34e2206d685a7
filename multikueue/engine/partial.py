# SPDX-License-Identifier: Apache-2.0
"""Partial admission: the most pods that can be had (`docs/spec/engine.md §3.7`).

Owns the binary search over counts. What a count leads to is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from multikueue.engine.requests import PodSetRequests, scaled
from multikueue.engine.workloads import PodSet

T = TypeVar("T")


def possible(pod_sets: Sequence[PodSet]) -> bool:
    """Whether some pod set would do with fewer pods."""
    return any(pod_set.min_count is not None and pod_set.min_count < pod_set.count for pod_set in pod_sets)


def search(
    pod_sets: Sequence[PodSet],
    requests: Sequence[PodSetRequests],
    attempt: Callable[[list[PodSetRequests]], T | None],
) -> T | None:
    """What `attempt` gives for the smallest reduction that it accepts; success is taken to be monotone."""
    deltas = [pod_set.count - pod_set.min_count if pod_set.min_count is not None else 0 for pod_set in pod_sets]
    whole = sum(deltas)
    low, high = 0, whole + 1
    found: tuple[int, T] | None = None
    while low < high:
        middle = (low + high) // 2
        result = attempt(
            [
                scaled(counted, pod_set.count - delta * middle // whole)
                for pod_set, counted, delta in zip(pod_sets, requests, deltas, strict=True)
            ]
        )
        if result is not None:
            found, high = (middle, result), middle
        else:
            low = middle + 1
    return found[1] if found is not None and found[0] == low else None
