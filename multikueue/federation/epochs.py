# SPDX-License-Identifier: Apache-2.0
"""The epoch of a dispatch.

Owns how it is computed and which of an agent's words belong to it (ADR 0002). It needs no write of its own: every
Retry ends in an eviction, and evictions are counted in the Workload. The annotation is a floor for a workload whose
counters were lost, as after a restore.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from multikueue.api.constants import EPOCH_ANNOTATION


def epoch_of(eviction_counts: Iterable[int], annotations: Mapping[str, str]) -> int:
    """One more than the evictions so far, and at least what the annotation says; nonsense in it says nothing."""
    counted = 1 + sum(eviction_counts)
    floor = annotations.get(EPOCH_ANNOTATION, "")
    return max(counted, int(floor)) if floor.isascii() and floor.isdigit() else counted
