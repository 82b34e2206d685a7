# SPDX-License-Identifier: Apache-2.0
"""Places the pod sets of a workload on the leaves of the flavors that they were assigned (`docs/spec/engine.md §6`).

Owns which flavor a pod set is placed on, which leaves may take its pods and how many, and the texts of failures. What a
workload was given before does not count against itself if the caller has freed it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from multikueue.api.constants import HOSTNAME_LABEL
from multikueue.core.taints import untolerated
from multikueue.engine.flavorassigner.eligibility import Topologies
from multikueue.engine.resources import Requests
from multikueue.engine.topology.capacity import Leaf, LeafKey, Place, Places, TopologyCapacity, leaf_key
from multikueue.engine.topology.placement import place
from multikueue.engine.topology.requests import PlacedTogether, placed_together, placement_request, single_pod
from multikueue.engine.topology.values import (
    DomainValues,
    LeafCapacity,
    PlacedDomains,
    PlacementFailure,
    PlacementRequest,
)
from multikueue.engine.values import Flavor
from multikueue.engine.workloads import PodSet, PodShape, TopologyRequest

NO_INFORMATION = "workload requires Topology, but there is no TAS cache information"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSetPlacement:
    """Where the pods of one pod set are: as written to the Workload, and what they take of each leaf."""

    levels: tuple[str, ...]
    domains: tuple[tuple[DomainValues, int], ...]
    places: Places


@dataclass(frozen=True, slots=True)
class Asked:
    """One pod set to be placed: with how many pods, and with which flavors."""

    pod_set: PodSet
    count: int
    flavors: frozenset[str]


@dataclass(slots=True)
class Placed:
    """The result for one workload, by pod set: places, why there are none, or what is wrong with the request."""

    placements: dict[str, PodSetPlacement] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether all pod sets have places."""
        return not self.failures and not self.errors


class Taken:
    """What other pod sets of the same workload take."""

    def __init__(self) -> None:
        self._used: dict[LeafKey, Counter[str]] = {}

    def add(self, places: Places) -> None:
        """Take these places."""
        for each in places:
            used = self._used.setdefault(each.leaf, Counter())
            for name, amount in each.single.items():
                used[name] += amount * each.pods

    def of(self, key: LeafKey) -> Mapping[str, int]:
        """What is taken of a leaf."""
        return self._used.get(key, {})


class TopologyPlacer:
    """Places workloads on the current usage of the leaves; changes nothing."""

    def __init__(
        self,
        capacity: TopologyCapacity,
        *,
        flavors: Mapping[str, Flavor],
        topologies: Topologies,
        mixed_profile: bool = True,
    ) -> None:
        self._capacity = capacity
        self._flavors = flavors
        self._topologies = topologies
        self._mixed_profile = mixed_profile

    def place(
        self,
        asked: Sequence[Asked],
        *,
        empty: bool = False,
        without: Collection[str] = (),
        taken: Taken | None = None,
    ) -> Placed:
        """Places for all of these pod sets; with `empty` as if no workload had any, and none on hosts in `without`.

        They are added to `taken`.
        """
        result = Placed()
        taken = Taken() if taken is None else taken
        by_flavor: dict[str, list[Asked]] = {}
        for each in asked:
            flavor = self._flavor_of(each)
            if isinstance(flavor, str):
                result.errors[each.pod_set.name] = flavor
            else:
                by_flavor.setdefault(flavor.name, []).append(each)
        for name in sorted(by_flavor):
            counts = {each.pod_set.name: each.count for each in by_flavor[name]}
            for together in placed_together([each.pod_set for each in by_flavor[name]]):
                self._place(together, counts, self._flavors[name], result, taken, empty=empty, without=without)
        return result

    def place_more(
        self,
        asked: Asked,
        count: int,
        *,
        beside: DomainValues,
        kept: tuple[tuple[DomainValues, int], ...],
        without: Collection[str],
        taken: Taken,
    ) -> Placed:
        """Places for so many pods of a pod set, of which, or of its leader or workers, one is on the host `beside`.

        They are in the domain that is required of all, if one is, or in that of the slice of the pods `kept` that has
        lost some; else in one that is preferred, first in that of the others. None is on hosts in `without`. They are
        added to `taken`, which has those of the others.
        """
        result, flavor = Placed(), self._flavor_of(asked)
        if isinstance(flavor, str):
            result.errors[asked.pod_set.name] = flavor
            return result
        levels = self._topologies.levels(flavor.topology) or ()
        request = asked.pod_set.topology or TopologyRequest()
        key = request.required or request.preferred
        inside = self._domain_of(beside, flavor, levels, key)
        choices = [inside] if request.required else [inside, ()]
        whole = [size for _, size in request.layers if size and count % size == 0]
        lost = len(request.layers) - len(whole)
        if lost:
            level, size = request.layers[lost - 1]
            choices = [self._broken_slice(kept, flavor, levels, level, size) or inside]
            # Its domain is chosen already, so that nothing is asked for above the slices that are left.
            request = TopologyRequest(unconstrained=True, slices=request.layers[lost:])
        rest = replace(asked.pod_set, count=count, topology=request)
        for within in dict.fromkeys(choices):
            result = Placed()
            self._place(
                PlacedTogether(rest),
                {rest.name: count},
                flavor,
                result,
                taken,
                without=without,
                within=within,
            )
            if result.complete:
                break
        return result

    def _broken_slice(
        self,
        kept: tuple[tuple[DomainValues, int], ...],
        flavor: Flavor,
        levels: tuple[str, ...],
        level: str,
        size: int,
    ) -> DomainValues:
        """The domain of that level with pods that are no whole slices; empty if there is none."""
        if not size:
            return ()  # written without the webhook
        counts: Counter[DomainValues] = Counter()
        for host, pods in kept:
            counts[self._domain_of(host, flavor, levels, level)] += pods
        return next((domain for domain, pods in sorted(counts.items()) if domain and pods % size), ())

    def _domain_of(self, host: DomainValues, flavor: Flavor, levels: tuple[str, ...], key: str) -> DomainValues:
        """The domain of the level `key` that a host is in; empty for a host that is not known, and without a level."""
        if key not in levels:
            return ()
        found = (leaf.values for leaf in self._capacity.leaves(flavor, levels) if leaf.values[-1:] == host[-1:])
        return next(found, ())[: levels.index(key) + 1]

    def _flavor_of(self, asked: Asked) -> Flavor | str:
        """The flavor with a topology among those that were assigned, or why there is not one."""
        known = [self._flavors[name] for name in sorted(asked.flavors) if name in self._flavors]
        found = [flavor for flavor in known if flavor.topology]
        if not found:
            return "no TAS flavor assigned"
        if len(found) > 1:
            return f"more than one TAS flavor assigned: {', '.join(flavor.name for flavor in found)}"
        return found[0] if self._topologies.levels(found[0].topology) else NO_INFORMATION

    def _place(
        self,
        together: PlacedTogether,
        counts: Mapping[str, int],
        flavor: Flavor,
        result: Placed,
        taken: Taken,
        *,
        empty: bool = False,
        without: Collection[str] = (),
        within: DomainValues = (),
    ) -> None:
        levels = self._topologies.levels(flavor.topology) or ()
        workers, leader = together.workers, together.leader
        request = placement_request(
            workers.topology, count=counts[workers.name], levels=levels, leader=leader is not None
        )
        if isinstance(request, str):
            result.failures.update((each.name, request) for each in together.pod_sets)
            return
        excluded: Counter[str] = Counter()
        usable = [
            leaf for leaf in self._capacity.leaves(flavor, levels) if not (without and leaf.values[-1] in without)
        ]
        outside = [leaf for leaf in usable if leaf.values[: len(within)] != within]
        excluded["topologyDomain"] += len(outside)
        inside = usable if not outside else [leaf for leaf in usable if leaf.values[: len(within)] == within]
        leaves = list(self._leaf_capacities(together, inside, flavor, levels, taken, excluded, empty=empty))
        found = place(len(levels), leaves, request, mixed_profile=self._mixed_profile)
        if isinstance(found, PlacementFailure):
            text = _failure_text(flavor.topology, request, found, levels, total=len(usable), excluded=+excluded)
            result.failures.update((each.name, text) for each in together.pod_sets)
            return
        for pod_set, domains in _by_pod_set(together, found):
            placement = _placement(pod_set, domains, flavor=flavor, levels=levels)
            taken.add(placement.places)
            result.placements[pod_set.name] = placement

    def _leaf_capacities(
        self,
        together: PlacedTogether,
        leaves: Iterable[Leaf],
        flavor: Flavor,
        levels: tuple[str, ...],
        taken: Taken,
        excluded: Counter[str],
        *,
        empty: bool,
    ) -> Iterator[LeafCapacity]:
        worker = single_pod(together.workers.shape)
        leader = None if together.leader is None else single_pod(together.leader.shape)
        names = {*worker, *(leader or ())}
        for leaf in leaves:
            used = taken.of(leaf.key)
            left = self._capacity.remaining(leaf, names, empty=empty)
            free = {name: max(0, amount - used.get(name, 0)) for name, amount in left.items()}
            why = _exclusion(leaf, together.workers.shape, flavor, levels)
            pods, limiting = (0, "") if why else _fitting(free, worker)
            if why or not pods:
                excluded[why or f'resource "{limiting}"'] += 1
            hosts = together.leader is not None and leader is not None and _fitting(free, leader)[0] > 0
            if hosts and together.leader is not None and _exclusion(leaf, together.leader.shape, flavor, levels):
                hosts = False
            beside = pods
            if hosts and pods and leader is not None:
                beside, _ = _fitting({name: amount - leader.get(name, 0) for name, amount in free.items()}, worker)
            yield LeafCapacity(leaf.values, pods, beside, hosts)


def _fitting(free: Requests, single: Requests) -> tuple[int, str]:
    """How many pods fit, and the resource that limits them."""
    return min((free[name] // amount, name) for name, amount in single.items())


def _exclusion(leaf: Leaf, shape: PodShape, flavor: Flavor, levels: tuple[str, ...]) -> str:
    """Why pods of that shape cannot run on a leaf that is one host; empty if they can, and for other leaves."""
    if levels[-1] != HOSTNAME_LABEL:
        return ""
    node = leaf.nodes[0]
    taint = untolerated(node.taints, (*shape.tolerations, *flavor.tolerations))
    if taint is not None:
        value = f"={taint.value}" if taint.value else ""
        return f'taint "{taint.key}{value}:{taint.effect}"'
    if any(node.labels.get(key) != value for key, value in shape.node_selector.items()):
        return "nodeSelector"
    if shape.affinity is not None:
        names = {"metadata.name": node.name}
        if not any(term.matches(node.labels, names) for term in shape.affinity):
            return "affinity"
    return ""


def _by_pod_set(
    together: PlacedTogether, found: PlacedDomains
) -> Iterator[tuple[PodSet, tuple[tuple[DomainValues, int], ...]]]:
    yield together.workers, found.workers
    if together.leader is not None and found.leader is not None:
        yield together.leader, ((found.leader, 1),)


def _placement(
    pod_set: PodSet, domains: tuple[tuple[DomainValues, int], ...], *, flavor: Flavor, levels: tuple[str, ...]
) -> PodSetPlacement:
    """A host says which domains of higher levels it is in, so that only it is written."""
    shown = slice(-1, None) if levels[-1] == HOSTNAME_LABEL else slice(None)
    single = single_pod(pod_set.shape)
    return PodSetPlacement(
        levels=levels[shown],
        domains=tuple((values[shown], count) for values, count in domains),
        places=tuple(Place(leaf_key(flavor.name, levels, values), count, single) for values, count in domains),
    )


def _failure_text(
    topology: str,
    request: PlacementRequest,
    failure: PlacementFailure,
    levels: tuple[str, ...],
    *,
    total: int,
    excluded: Counter[str],
) -> str:
    """As of §6.9."""
    if not total:
        return f"no topology domains at level: {levels[request.level]}"
    unit = "slice(s)" if request.slice_size > 1 else "pod(s)"
    if failure.layers:
        parts = "; ".join(f"{fits}/{wanted} slice(s) fit on level {levels[at]}" for at, fits, wanted in failure.layers)
        text = f'topology "{topology}" doesn\'t allow to fit; {parts}'
    elif failure.fits:
        text = f'topology "{topology}" allows to fit only {failure.fits} out of {failure.wanted} {unit}'
    else:
        text = f'topology "{topology}" doesn\'t allow to fit any of {failure.wanted} {unit}'
    if not excluded:
        return text
    shown = ", ".join(f"{why}: {excluded[why]}" for why in sorted(excluded))
    return f"{text}. Total nodes: {total}; excluded: {shown}"
