# SPDX-License-Identifier: Apache-2.0
"""What the model gives a head (`docs/spec/engine.md §3.3` to §3.7)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from multikueue.core.keys import Key
from multikueue.engine import resources
from multikueue.engine.flavorassigner.eligibility import mismatch
from multikueue.engine.requests import PodSetRequests, RequestCounter, scaled
from multikueue.engine.resources import FlavorResource
from multikueue.engine.settings import Settings
from multikueue.engine.values import ClusterQueue, Flavor, Fungibility, ResourceGroup
from multikueue.engine.workloads import PodSet
from tests.support.reference_engine.records import FIT, NO_CANDIDATES, NO_FIT, PREEMPT, RECLAIM, Found, Item, Target
from tests.support.reference_engine.tree import Tree, Use

PodSetChoice = dict[str, Any]
Tried = Sequence[Mapping[str, int]]
Pins = Sequence[Mapping[str, str]] | None


class Nomination:
    """The part of the model that assigns flavors."""

    settings: Settings
    queues: dict[str, ClusterQueue]
    flavors: dict[str, Flavor]
    counter: RequestCounter
    items: dict[Key, Item]
    queue_of: Callable[[Item], str]
    search: Callable[..., list[Target]]

    def nominate(
        self,
        tree: Tree,
        queue: str,
        item: Item,
        *,
        tried: Tried = (),
        pins: Pins = None,
        gone: Collection[Key] = (),
    ) -> Found:
        found = self._capped(tree, queue, item, tried, pins, gone)
        if pins is None and item.preempted_on and found.mode() != FIT and not found.targets:
            again = self._capped(tree, queue, item, (), item.preempted_on, gone)
            return again if again.mode() == FIT or again.targets else found
        return found

    def _capped(self, tree: Tree, queue: str, item: Item, tried: Tried, pins: Pins, gone: Collection[Key]) -> Found:
        found = self._most_pods(tree, queue, item, tried, pins, gone)
        if found.mode() == FIT and self._may_be_reclaimed(item):
            fewer = [scaled(*each) for each in zip(self.counter.pending(item.value), item.preempted_for, strict=True)]
            smaller = self._assign(tree, queue, item, fewer, tried, pins, gone)
            return smaller if smaller.mode() == FIT else found
        return found

    def _most_pods(self, tree: Tree, queue: str, item: Item, tried: Tried, pins: Pins, gone: Collection[Key]) -> Found:
        requests = list(self.counter.pending(item.value))
        found = self._assign(tree, queue, item, requests, tried, pins, gone)
        if found.mode() == PREEMPT:
            found.targets = self.search(tree, queue, item, found.usage(), found.contested(), gone)
        pod_sets = item.value.pod_sets
        if (
            found.mode() == FIT
            or found.targets
            or not any(p.min_count is not None and p.min_count < p.count for p in pod_sets)
        ):
            return found
        deltas = [p.count - p.min_count if p.min_count is not None else 0 for p in pod_sets]
        low, high, best = 0, sum(deltas) + 1, None
        while low < high:
            mid = (low + high) // 2
            fewer = [
                scaled(counted, p.count - d * mid // sum(deltas))
                for p, counted, d in zip(pod_sets, requests, deltas, strict=True)
            ]
            attempt = self._assign(tree, queue, item, fewer, tried, pins, gone)
            if attempt.mode() == PREEMPT:
                attempt.targets = self.search(tree, queue, item, attempt.usage(), attempt.contested(), gone)
            if attempt.mode() == FIT or attempt.targets:
                best, high = (mid, attempt), mid
            else:
                low = mid + 1
        return best[1] if best is not None and best[0] == low else found

    def _may_be_reclaimed(self, item: Item) -> bool:
        """Whether it preempted for a part of its pods, and a victim may preempt it for the others."""
        counts = tuple(each.count for each in self.counter.pending(item.value))
        if len(counts) != len(item.preempted_for) or counts == item.preempted_for:
            return False
        for victim in (self.items[key] for key in item.victims if key in self.items and self.items[key].waits):
            known = self.queues.get(self.queue_of(victim))
            policy = known.preemption.reclaim_within_cohort if known is not None else "Never"
            if policy == "Any" or (policy != "Never" and victim.value.priority > item.value.priority):
                return True
        return False

    def _assign(
        self,
        tree: Tree,
        queue: str,
        item: Item,
        requests: Sequence[PodSetRequests],
        tried: Tried,
        pins: Pins,
        gone: Collection[Key],
    ) -> Found:
        value = self.queues[queue]
        found = Found()
        used: Use = {}
        groups = {r: g for g in value.resource_groups for r in g.covered}
        for position, (pod_set, counted) in enumerate(zip(item.value.pod_sets, requests, strict=True)):
            total = dict(counted.total)
            if "pods" in groups:
                total["pods"] = counted.count
            result: PodSetChoice = {
                "name": pod_set.name,
                "count": counted.count,
                "requests": total,
                "choices": {},
                "reasons": [],
                "severity": 3,
            }
            found.pod_sets.append(result)
            failed = False
            for r in sorted(total, key=resources.fnv1a):
                if r in result["choices"] or (r not in groups and total[r] == 0):
                    continue
                if r not in groups:
                    result["reasons"] = [f"resource {r} unavailable in ClusterQueue"]
                    failed = True
                    break
                start = 0
                if position < len(tried):
                    start = tried[position].get(r, -1) + 1
                pinned = None if pins is None else (pins[position] if position < len(pins) else {})
                best, reasons, severity = self._choose(
                    tree, queue, item, pod_set, groups[r], r, total, used, start, pinned, gone
                )
                if best is None:
                    result["reasons"], result["severity"] = reasons, severity
                    failed = True
                    break
                result["choices"].update(best["choices"])
                if best["mode"] != FIT:
                    result["reasons"] = result["reasons"] + reasons
            if failed:
                result["choices"] = {}
                break
            for name, choice in result["choices"].items():
                fr = FlavorResource(choice["flavor"], name)
                used[fr] = used.get(fr, 0) + total[name]
                found.level = max(found.level, choice["level"])
        return found

    def _choose(
        self,
        tree: Tree,
        queue: str,
        item: Item,
        pod_set: PodSet,
        group: ResourceGroup,
        resource: str,
        total: Mapping[str, int],
        used: Use,
        start: int,
        pinned: Mapping[str, str] | None,
        gone: Collection[Key],
    ) -> tuple[PodSetChoice | None, list[str], int]:
        policy = self.queues[queue].fungibility
        flavors = group.flavors
        if start >= len(flavors):
            start = 0
        best: PodSetChoice | None = None
        reasons: list[str] = []
        severities: list[int] = []
        position = start
        for position in range(start, len(flavors)):
            name = flavors[position].name
            if pinned is not None and pinned.get(resource) != name:
                problem = f"skipping flavor {name} as it is not found in the nomination mapping for resource {resource}"
            elif name not in self.flavors:
                problem = f"flavor {name} not found"
            else:
                problem = mismatch(self.flavors[name], pod_set.shape)
            if problem:
                reasons.append(problem)
                severities.append(3)
                continue
            mode, level, severity = FIT, 0, 0
            choices: dict[str, PodSetChoice] = {}
            for r in [r for r in total if r in group.covered]:
                fr = FlavorResource(name, r)
                m, lv, why, s = self._check(tree, queue, item, fr, used.get(fr, 0), total[r], gone)
                reasons.extend(why)
                severity = max(severity, s)
                choices[r] = {"flavor": name, "mode": m, "level": lv, "tried": -1}
                if self._preferred(policy, (mode, level), (m, lv)):
                    mode, level = m, lv
            severities.append(severity)
            attempt = {"mode": mode, "level": level, "choices": choices}
            stop = not (
                mode in (NO_FIT, NO_CANDIDATES)
                or (mode in (PREEMPT, RECLAIM) and policy.when_can_preempt == "TryNextFlavor")
                or (level > 0 and policy.when_can_borrow == "TryNextFlavor")
            )
            if stop:
                best = attempt
                break
            if mode != NO_FIT and (
                best is None or self._preferred(policy, (mode, level), (best["mode"], best["level"]))
            ):
                best = attempt
        if best is not None:
            for choice in best["choices"].values():
                choice["tried"] = -1 if position == len(flavors) - 1 else position
        return best, reasons, min(severities, default=3)

    @staticmethod
    def _preferred(policy: Fungibility, a: tuple[int, int], b: tuple[int, int]) -> bool:
        if a[0] == NO_FIT:
            return False
        if b[0] == NO_FIT:
            return True
        if (a[0] == NO_CANDIDATES) != (b[0] == NO_CANDIDATES):
            return b[0] == NO_CANDIDATES
        if policy.preference == "PreemptionOverBorrowing":
            return (a[1], -a[0]) < (b[1], -b[0])
        return (-a[0], a[1]) < (-b[0], b[1])

    def _check(
        self, tree: Tree, queue: str, item: Item, fr: FlavorResource, used: int, wanted: int, gone: Collection[Key]
    ) -> tuple[int, int, list[str], int]:
        """The mode, the level, why it does not fit, and how severe that is."""
        node, value = ("q", queue), used + wanted
        r = fr.resource
        most = tree.potential(node, fr)
        if value > most:
            text = (
                f"insufficient quota for {r} in flavor {fr.flavor}, previously considered podsets requests"
                f" ({resources.text(r, used)}) + current podset request ({resources.text(r, wanted)})"
                f" > maximum capacity ({resources.text(r, most)})"
            )
            return NO_FIT, 0, [text], 2
        level, may_reclaim = tree.level(queue, fr, value)
        available = max(0, tree.available(node, fr))
        if value <= available:
            return FIT, level, [], 0
        short = resources.text(r, value - available)
        text = f"insufficient unused quota for {r} in flavor {fr.flavor}, {short} more needed"
        policy = self.queues[queue].preemption
        while_borrowing = (policy.borrow_within_cohort or "Never") != "Never" or (
            self.settings.fair_sharing and policy.reclaim_within_cohort != "Never"
        )
        if not (tree.quota(node, fr).nominal >= value or may_reclaim or while_borrowing):
            return NO_FIT, level, [text], 1
        targets = self.search(tree, queue, item, {fr: value}, [fr], gone)
        if not targets:
            return NO_CANDIDATES, level, [text], 0
        without = tree.copy()
        for target in targets:
            without.take_all(target.item.reservation.queue, target.item.reservation.usage)
        own = any(target.item.reservation.queue == queue for target in targets)
        return (PREEMPT if own else RECLAIM), without.level(queue, fr, value)[0], [text], 0
