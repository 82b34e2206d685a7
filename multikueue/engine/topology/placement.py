# SPDX-License-Identifier: Apache-2.0
"""Where the pods of a request are placed in a topology (`docs/spec/engine.md §6.6` and §6.7).

Owns the choice of the level and its domains, and the way down from them to leaves. The order in which leaves are given
does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from multikueue.engine.topology.domains import Domain, LevelUnit, domain_levels, level_units
from multikueue.engine.topology.values import (
    DomainValues,
    LeafCapacity,
    PlacedDomains,
    PlacementFailure,
    PlacementMode,
    PlacementRequest,
)


class DomainShare(NamedTuple):
    """A domain with the pods that it is to hold, and whether the leader is among its pods."""

    domain: Domain
    pods: int
    leader: bool


def place(
    levels: int, leaves: Sequence[LeafCapacity], request: PlacementRequest, *, mixed_profile: bool = True
) -> PlacedDomains | PlacementFailure:
    """The leaves for the workers and the leader, with all values of each, or why they do not fit.

    `mixed_profile` is the feature gate TASProfileMixed: with it, unconstrained pods fill the fullest domains first.
    `layers` of a failure are of the best domain on the level where the search ended: the one that holds most slices
    beside the leader. What fits on a level is the sum over its domains there, each counted alone and in whole slices;
    it may be more than what is needed, as slices of the level above it may be what is missing.
    """
    wanted = request.count // request.slice_size
    if not leaves:
        return PlacementFailure(0, wanted)
    units = level_units(levels, request)
    search = _Search(
        request,
        wanted,
        units,
        domain_levels(leaves, request, units),
        least_free=mixed_profile and request.mode is PlacementMode.UNCONSTRAINED,
    )
    return search.place()


@dataclass(frozen=True, slots=True)
class _Search:
    """One request with the domains, and the order in which they are tried."""

    request: PlacementRequest
    wanted: int
    units: list[LevelUnit]
    by_level: list[list[Domain]]
    least_free: bool

    def place(self) -> PlacedDomains | PlacementFailure:
        if not self.by_level[-1]:
            return self._failure(0, None)
        level = self.request.level
        while True:
            domains = self.by_level[level]
            single = self._single(domains)
            if single is not None:
                return self._descend(level, [single])
            if self.request.mode is not PlacementMode.PREFERRED or level == 0:
                break
            level -= 1
        best = min(domains, key=_most_slices_first)
        if self.request.mode is PlacementMode.REQUIRED:
            return self._failure(best.slices, best)
        several, fits = self._several(domains)
        return self._failure(fits, best) if fits < self.wanted else self._descend(level, several)

    def _single(self, domains: list[Domain]) -> Domain | None:
        """The smallest domain that holds everything.

        Both ways to sort lead to the same one: least free has it first, and best fit looks for it.
        """
        fitting = (
            domain
            for domain in domains
            if domain.slices_with_leader >= self.wanted and (domain.leader or not self.request.leader)
        )
        return min(fitting, key=_least_slices_first, default=None)

    def _several(self, domains: list[Domain]) -> tuple[list[Domain], int]:
        """Domains that hold everything together, that of the leader first, and how many slices fit in them."""
        chosen: list[Domain] = []
        rest = self.wanted
        if self.request.leader:
            domains = sorted(domains, key=_least_slices_first if self.least_free else _most_slices_first)
            # Domains that can host the leader are sorted first, and none of them holds everything.
            first, *domains = _leader_first(domains, rest)
            if not first.leader:
                return [], 0
            chosen.append(first)
            rest -= first.slices_with_leader
        domains = self._sorted(domains, sliced=True)
        for index, domain in enumerate(domains):
            if rest <= 0:
                break
            if not self.least_free and domain.slices >= rest:
                domain = _best_fit(domains[index:], rest, leader=False)
            chosen.append(domain)
            rest -= domain.slices
        return chosen, self.wanted - max(0, rest)

    def _descend(self, level: int, chosen: list[Domain]) -> PlacedDomains:
        request = self.request
        shares = self._trim(chosen, request.count, self.units[level], leader=request.leader)
        for below in range(level + 1, len(self.units)):
            unit = self.units[below]
            if below <= request.slice_level:
                # The shares of the parents are ignored: slices may move between the chosen domains.
                children = [child for share in shares for child in share.domain.children]
                children = self._sorted(children, sliced=True)
                shares = self._trim(children, request.count, unit, leader=request.leader)
                continue
            shares = [
                trimmed
                for share in shares
                if share.pods or share.leader
                for trimmed in self._trim(
                    self._sorted(share.domain.children, sliced=unit.sliced), share.pods, unit, leader=share.leader
                )
            ]
        workers: list[tuple[DomainValues, int]] = sorted((share.domain.values, share.pods) for share in shares)
        return PlacedDomains(
            tuple(worker for worker in workers if worker[1]),
            next((share.domain.values for share in shares if share.leader), None),
        )

    def _trim(self, domains: list[Domain], pods: int, unit: LevelUnit, *, leader: bool) -> list[DomainShare]:
        """Shares of the first domains, in their order, that hold exactly the pods and the leader."""
        shares: list[DomainShare] = []
        rest = pods // unit.size
        if leader:
            domains = _leader_first(domains, rest)
        for index, domain in enumerate(domains):
            fits = domain.slices_with_leader if leader else domain.slices
            if fits >= rest and (domain.leader or not leader):
                if not self.least_free:
                    domain = _best_fit(domains[index:], rest, leader=leader)
                shares.append(DomainShare(domain, rest * unit.size, leader))
                break
            fits = min(fits, rest)
            shares.append(DomainShare(domain, fits * unit.size, leader and domain.leader))
            leader = leader and not domain.leader
            rest -= fits
        return shares

    def _sorted(self, domains: list[Domain], *, sliced: bool) -> list[Domain]:
        """The domains as workers are placed on them. Where there are no slices, few pods come first in every case."""
        if not sliced:
            return sorted(domains, key=lambda domain: (domain.pods, domain.values))
        if self.least_free:
            return sorted(domains, key=lambda domain: (domain.slices, domain.pods, domain.values))
        return sorted(domains, key=lambda domain: (-domain.slices, domain.pods, domain.values))

    def _failure(self, fits: int, best: Domain | None) -> PlacementFailure:
        request = self.request
        if not request.inner:
            return PlacementFailure(fits, self.wanted)
        layers = [
            (
                level,
                sum(domain.slices for domain in self.by_level[level] if _within(domain, best)),
                request.count // self.units[level].size,
            )
            for level in (request.slice_level, *(level for level, _ in request.inner))
        ]
        return PlacementFailure(fits, self.wanted, tuple(layers))


def _within(domain: Domain, other: Domain | None) -> bool:
    return other is not None and domain.values[: len(other.values)] == other.values


def _most_slices_first(domain: Domain) -> tuple[bool, int, int, DomainValues]:
    return not domain.leader, -domain.slices_with_leader, domain.pods_with_leader, domain.values


def _least_slices_first(domain: Domain) -> tuple[bool, int, int, DomainValues]:
    return not domain.leader, domain.slices_with_leader, domain.pods_with_leader, domain.values


def _best_fit(domains: list[Domain], need: int, *, leader: bool) -> Domain:
    """The first of the smallest that are large enough, and can host the leader if it is needed.

    At least one of them must.
    """
    if leader:
        hosts = (domain for domain in domains if domain.leader and domain.slices_with_leader >= need)
        return min(hosts, key=lambda domain: domain.slices_with_leader)
    return min((domain for domain in domains if domain.slices >= need), key=lambda domain: domain.slices)


def _leader_first(domains: list[Domain], need: int) -> list[Domain]:
    """The domains with the first one ahead that can host the leader, if all together hold enough beside it."""
    spare = sum(domain.slices for domain in domains) - need
    for index, domain in enumerate(domains):
        if domain.leader and domain.slices - domain.slices_with_leader <= spare:
            return [domain, *domains[:index], *domains[index + 1 :]]
    return domains
