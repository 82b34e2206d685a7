# SPDX-License-Identifier: Apache-2.0
"""What every dispatcher answers, and from what.

Owns the interface. A dispatcher is asked while the check is Pending, no cluster is chosen and all other checks are
Ready; it names the clusters that are to have a copy, and may say that one of them needs no asking.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from multikueue.federation.actions import Waiting
from multikueue.federation.facts import ClusterFacts, Round, Settings, WorkloadFacts


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one filter or the scores said of one cluster; without a score it was filtered out."""

    cluster: str
    says: str
    score: float | None = None

    def __str__(self) -> str:
        return f"{self.cluster}: {self.says}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nomination:
    """The clusters that are to have a copy, why others are not among them, and when to ask again.

    `grant` names the one cluster that is sure enough to be granted without being asked. `round` is the round that
    begins with this nomination, to be kept in the Workload before anything else is written.
    """

    clusters: tuple[str, ...]
    waiting: tuple[Waiting, ...] = ()
    requeue_after: float | None = None
    grant: str = ""
    held_back: bool = False
    """Whether nobody is nominated since no cluster has room."""
    verdicts: tuple[Verdict, ...] = ()
    round: Round | None = None


class Dispatcher(Protocol):
    """A way to choose candidates."""

    def __call__(
        self, workload: WorkloadFacts, candidates: tuple[ClusterFacts, ...], *, settings: Settings, now: datetime
    ) -> Nomination:
        """The nomination; `candidates` are the usable clusters of the config, in its order."""
