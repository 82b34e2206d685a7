# SPDX-License-Identifier: Apache-2.0
"""The number of pods that a Job needs, which ones are in excess, and the back-off after failures. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from devcluster.controllers import index_ranges, pod_facts
from devcluster.controllers.job_counts import Counts, Rules, fails, tries
from devcluster.controllers.job_pods import PodRequest
from devcluster.controllers.pod_failure_policy import Action, verdict_of
from multikueue.api.objects import JsonObject
from multikueue.core.backoff import Backoff

MOST_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Failures:
    """The failures of a Job since its last success; in memory only, so a controller restart resets them."""

    count: int = 0
    last: datetime | None = None


NO_FAILURES: Final = Failures()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodDifference:
    """The pods to create and to delete; `at` is when the back-off of further pods ends."""

    create: tuple[PodRequest, ...] = ()
    excess: tuple[str, ...] = ()
    at: datetime | None = None


def count_failures(failures: Failures, ends: Iterable[tuple[datetime, bool]]) -> Failures:
    """The failures including newly finished pods."""
    for at, succeeded in sorted(ends):
        failures = NO_FAILURES if succeeded else Failures(failures.count + 1, at)
    return failures


def awaited(pods: Sequence[JsonObject], *, active: Sequence[JsonObject], rules: Rules) -> Mapping[int, str]:
    """The uid of the last failed pod of each index without a newer pod; only with backoffLimitPerIndex."""
    if rules.limit_per_index is None:
        return {}
    return {index: pod_facts.uid(pod) for index, pod in _last_failures(pods, active=active, rules=rules).items()}


def change(
    spec: JsonObject,
    pods: Sequence[JsonObject],
    active: Sequence[JsonObject],
    counts: Counts,
    *,
    failures: Failures,
    backoff: Backoff,
    now: datetime,
) -> PodDifference:
    """The pods to create or delete for an unfinished Job."""
    rules = Rules.of(spec)
    wanted = _wanted(spec, len(active), counts)
    excess = _excess(active, counts, wanted=wanted, rules=rules)
    if excess:
        return PodDifference(excess=tuple(excess))
    alive = list(active)
    if rules.replace_failed_only:
        alive += [pod for pod in pods if pod_facts.terminating(pod)]
    missing = min(wanted - len(alive), MOST_AT_ONCE)
    if missing <= 0:
        return PodDifference()
    if rules.limit_per_index is not None:
        return _by_index(pods, alive, counts, missing=missing, backoff=backoff, now=now, rules=rules)
    if failures.last is not None:
        due = failures.last + timedelta(seconds=backoff.delay(failures.count))
        if due > now:
            return PodDifference(at=due)
    if not rules.indexed:
        return PodDifference(create=(PodRequest(),) * missing)
    return PodDifference(create=tuple(PodRequest(index=index) for index in _free(alive, counts, rules=rules)[:missing]))


def _wanted(spec: JsonObject, active: int, counts: Counts) -> int:
    parallelism: int = spec.get("parallelism", 1)
    completions: int | None = spec.get("completions")
    if completions is None:
        # A work queue Job: after the first success no pods are created.
        return min(active, parallelism) if counts.all_succeeded else parallelism
    over = counts.all_succeeded + len(counts.failed_indexes - counts.completed)
    return max(0, min(parallelism, completions - over))


def _excess(active: Sequence[JsonObject], counts: Counts, *, wanted: int, rules: Rules) -> list[str]:
    """The uids to delete: pods without a needed index first, then those with the least progress."""
    useless: list[str] = []
    useful: list[JsonObject] = []
    seen: set[int] = set()
    for pod in active:
        index = pod_facts.index_of(pod) if rules.indexed else None
        if rules.indexed and (
            index is None
            or index in seen
            or index in counts.completed
            or index in counts.failed_indexes
            or index >= (rules.completions or 0)
        ):
            useless.append(pod_facts.uid(pod))
            continue
        if index is not None:
            seen.add(index)
        useful.append(pod)
    too_many = len(useful) - wanted
    if too_many > 0:
        useful.sort(key=_progress)
        useless += [pod_facts.uid(pod) for pod in useful[:too_many]]
    return useless[:MOST_AT_ONCE]


def _progress(pod: JsonObject) -> tuple[bool, bool, bool, int, int]:
    bound = bool(pod["spec"].get("nodeName"))
    index = pod_facts.index_of(pod)
    running = pod_facts.phase(pod) == "Running"
    return (bound, running, pod_facts.ready(pod), -(index or 0), -pod_facts.restarts(pod))


def _free(alive: Sequence[JsonObject], counts: Counts, *, rules: Rules) -> list[int]:
    taken = {pod_facts.index_of(pod) for pod in alive} | counts.completed | counts.failed_indexes
    return [index for index in range(min(rules.completions or 0, index_ranges.MOST)) if index not in taken]


def _by_index(
    pods: Sequence[JsonObject],
    alive: Sequence[JsonObject],
    counts: Counts,
    *,
    missing: int,
    backoff: Backoff,
    now: datetime,
    rules: Rules,
) -> PodDifference:
    last = _last_failures(pods, active=alive, rules=rules)
    create: list[PodRequest] = []
    later: list[datetime] = []
    for index in _free(alive, counts, rules=rules):
        if len(create) == missing:
            break
        failed = last.get(index)
        if failed is None:
            create.append(PodRequest(index=index, failures=0))
            continue
        ignored = verdict_of(rules.policy, failed).action is Action.IGNORE
        before = pod_facts.count(failed, pod_facts.IGNORED_FAILURES)
        due = pod_facts.finished_at(failed, now=now) + timedelta(seconds=backoff.delay(tries(failed) + before + 1))
        if due > now:
            later.append(due)
            continue
        create.append(
            PodRequest(
                index=index,
                failures=tries(failed) + (0 if ignored else 1),
                ignored_failures=before + (1 if ignored else 0),
            )
        )
    return PodDifference(create=tuple(create), at=min(later, default=None))


def _last_failures(
    pods: Sequence[JsonObject], *, active: Sequence[JsonObject], rules: Rules
) -> Mapping[int, JsonObject]:
    """The last uncounted failed pod of each index without an active pod."""
    tried_anew = {pod_facts.index_of(pod) for pod in active}
    found: dict[int, JsonObject] = {}
    for pod in pods:
        index = pod_facts.index_of(pod)
        if index is None or index in tried_anew or not pod_facts.tracked(pod) or not fails(pod, rules=rules):
            continue
        known = found.get(index)
        if known is None or _order(known) < _order(pod):
            found[index] = pod
    return found


def _order(pod: JsonObject) -> int:
    return tries(pod) + pod_facts.count(pod, pod_facts.IGNORED_FAILURES)
