# SPDX-License-Identifier: Apache-2.0
"""The interface of dispatchers.

A dispatcher is called while the check is Pending, no cluster is chosen and all other checks are Ready. It names the
clusters that get an assignment, and may name one that is granted without a reservation.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from multikueue.dispatch.hub.actions import WaitingReason
from multikueue.dispatch.hub.facts import ClusterFacts, DispatchedWorkload, DispatchSettings, Round

MAX_NOMINATED: Final = 20
"""The API takes no more in `status.nominatedClusterNames`."""


@dataclass(frozen=True, slots=True)
class ClusterVerdict:
    """The result of filters and scores for one cluster; without a score it was filtered out."""

    cluster: str
    reason: str
    score: float | None = None

    def __str__(self) -> str:
        return f"{self.cluster}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nomination:
    """The clusters that get an assignment, why others do not, and when to call the dispatcher again.

    `grant` is the cluster to grant without a reservation. `round` is the round that begins with this nomination; it is
    stored in the Workload before anything else is written.
    """

    clusters: tuple[str, ...]
    waiting: tuple[WaitingReason, ...] = ()
    requeue_after: float | None = None
    grant: str = ""
    held_back: bool = False
    """Whether no cluster has free capacity, so that the workload is planned again when some becomes free."""
    verdicts: tuple[ClusterVerdict, ...] = ()
    round: Round | None = None


class Dispatcher(Protocol):
    """Chooses among the candidates."""

    def __call__(
        self,
        workload: DispatchedWorkload,
        candidates: tuple[ClusterFacts, ...],
        *,
        settings: DispatchSettings,
        now: datetime,
    ) -> Nomination:
        """The nomination; `candidates` are the usable clusters of the config, in its order."""
