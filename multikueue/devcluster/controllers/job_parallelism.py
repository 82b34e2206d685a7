# SPDX-License-Identifier: Apache-2.0
"""How many pods a Job wants now, which ones are too many, and how long it waits after failures. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from multikueue.api.objects import JsonObject
from multikueue.core.backoff import Backoff
from multikueue.devcluster.controllers import pod_facts
from multikueue.devcluster.controllers.job_counts import Counts, Rules, fails, tries
from multikueue.devcluster.controllers.job_pods import PodRequest
from multikueue.devcluster.controllers.pod_failure_policy import Action, verdict_of

MOST_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Failures:
    """The failures of a Job since its last success. Not in its status: it begins anew with the controller."""

    count: int = 0
    last: datetime | None = None


NO_FAILURES: Final = Failures()


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """What brings the pods to the number that is wanted; `at` is when more are due."""

    create: tuple[PodRequest, ...] = ()
    excess: tuple[str, ...] = ()
    at: datetime | None = None


def noted(failures: Failures, ends: Iterable[tuple[datetime, bool]]) -> Failures:
    """The failures after some more ends of pods."""
    for at, succeeded in sorted(ends):
        failures = NO_FAILURES if succeeded else Failures(failures.count + 1, at)
    return failures


def awaited(pods: Sequence[JsonObject], *, active: Sequence[JsonObject], rules: Rules) -> Mapping[int, str]:
    """The uid of the last failed pod of each index that has no newer pod yet; only where each index has a limit."""
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
) -> Difference:
    """What a Job that goes on needs."""
    rules = Rules.of(spec)
    wanted = _wanted(spec, len(active), counts)
    excess = _excess(active, counts, wanted=wanted, rules=rules)
    if excess:
        return Difference(excess=tuple(excess))
    alive = list(active)
    if rules.replace_failed_only:
        alive += [pod for pod in pods if pod_facts.terminating(pod)]
    missing = min(wanted - len(alive), MOST_AT_ONCE)
    if missing <= 0:
        return Difference()
    if rules.limit_per_index is not None:
        return _by_index(pods, alive, counts, missing=missing, backoff=backoff, now=now, rules=rules)
    if failures.last is not None:
        due = failures.last + timedelta(seconds=backoff.delay(failures.count))
        if due > now:
            return Difference(at=due)
    if not rules.indexed:
        return Difference(create=(PodRequest(),) * missing)
    return Difference(create=tuple(PodRequest(index=index) for index in _free(alive, counts, rules=rules)[:missing]))


def _wanted(spec: JsonObject, active: int, counts: Counts) -> int:
    parallelism: int = spec.get("parallelism", 1)
    completions: int | None = spec.get("completions")
    if completions is None:
        # A work queue: once one pod has found it empty, no more are made.
        return min(active, parallelism) if counts.all_succeeded else parallelism
    over = counts.all_succeeded + len(counts.failed_indexes - counts.completed)
    return max(0, min(parallelism, completions - over))


def _excess(active: Sequence[JsonObject], counts: Counts, *, wanted: int, rules: Rules) -> list[str]:
    """Who has to go: pods of no use first, then those that have come the least far."""
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
    return [index for index in range(rules.completions or 0) if index not in taken]


def _by_index(
    pods: Sequence[JsonObject],
    alive: Sequence[JsonObject],
    counts: Counts,
    *,
    missing: int,
    backoff: Backoff,
    now: datetime,
    rules: Rules,
) -> Difference:
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
    return Difference(create=tuple(create), at=min(later, default=None))


def _last_failures(
    pods: Sequence[JsonObject], *, active: Sequence[JsonObject], rules: Rules
) -> Mapping[int, JsonObject]:
    """Of each index without a living pod, the failed pod that was tried last and is not counted yet."""
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
