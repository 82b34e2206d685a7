# SPDX-License-Identifier: Apache-2.0
"""All Workloads of one owner go to one cluster (`docs/spec/multikueue.md §1.5` rule 8, scenario X11; ADR 0022).

Owns the rule for a kind with a Workload for each of its replicas, such as LeaderWorkerSet: the replicas follow one that
is on a cluster; while none is, one of those that could be sent chooses for all, and the others wait for it. The lowest
index comes first in both cases. What is on a cluster is never moved by this rule.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One Workload of the owner: on the cluster `cluster_name` or, if that is empty, ready to be sent to one."""

    name: str
    index: int
    cluster_name: str = ""
    chooses: bool = False
    """Whether a cluster is being chosen for it: the write may be under way, so that no other one may choose."""

    @property
    def rank(self) -> tuple[bool, int, str]:
        """Less for one that comes first: names end with the index, and are unique where a long one is cut."""
        return not self.chooses, *name_rank(self.name)


def name_rank(name: str) -> tuple[int, str]:
    """The order of the names of replicas, which is that of their indices: llm-9 comes before llm-10."""
    return len(name), name


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFacts:
    """A Workload without a cluster that is one replica of `owner`, and the other replicas that matter.

    A Workload is one of the owner by the owner's uid. Those that have finished, that are evicted or deleted, and that
    wait for quota or another check are not among `others`.
    """

    owner: str
    own: Replica
    others: tuple[Replica, ...] = ()

    @property
    def leader(self) -> Replica | None:
        """The replica that this one follows or waits for; None if this one may choose."""
        placed = [other for other in self.others if other.cluster_name]
        if placed:
            return min(placed, key=lambda other: other.rank)
        first = min((self.own, *self.others), key=lambda each: each.rank)
        return None if first is self.own else first

    def objection(self, cluster: str) -> str:
        """Why this replica may not be sent to that cluster; empty if it may."""
        leader = self.leader
        if leader is None or leader.cluster_name == cluster:
            return ""
        if leader.cluster_name:
            return f"replica {leader.index} of {self.owner} is on {leader.cluster_name}, and all run on one cluster"
        return f"replica {leader.index} of {self.owner} is sent first, and all run on one cluster"
