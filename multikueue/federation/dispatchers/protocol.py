# SPDX-License-Identifier: Apache-2.0
"""What every dispatcher answers, and from what.

Owns the interface. A dispatcher is asked while the check is Pending, no cluster is chosen and all other checks are
Ready; it names the clusters that are to have a copy. It never grants.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from multikueue.federation.actions import Waiting
from multikueue.federation.facts import ClusterFacts, Settings, WorkloadFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Nomination:
    """The clusters that are to have a copy, why others are not among them, and when to ask again."""

    clusters: tuple[str, ...]
    waiting: tuple[Waiting, ...] = ()
    requeue_after: float | None = None


class Dispatcher(Protocol):
    """A way to choose candidates."""

    def __call__(
        self, workload: WorkloadFacts, candidates: tuple[ClusterFacts, ...], *, settings: Settings, now: datetime
    ) -> Nomination:
        """The nomination; `candidates` are the usable clusters of the config, in its order."""
