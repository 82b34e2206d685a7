# SPDX-License-Identifier: Apache-2.0
"""Counts the finished pods of a Job. Pure.

A pod keeps a finalizer until it is counted, so that none is lost: its uid is added to `uncountedTerminatedPods`, then
the finalizer is removed, then the counter is incremented and the uid removed. Successes of an indexed Job need no such
tracking: its status has the completed indexes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from devcluster.controllers import index_ranges, pod_facts
from devcluster.controllers.pod_failure_policy import Action, verdict_of
from multikueue.api.objects import JsonObject


@dataclass(slots=True, kw_only=True)
class Counts:
    """The counts so far; `release` has the uids of pods whose finalizer can be removed."""

    succeeded: int
    failed: int
    uncounted_succeeded: list[str] = field(default_factory=list)
    uncounted_failed: list[str] = field(default_factory=list)
    completed: set[int] = field(default_factory=set)
    failed_indexes: set[int] = field(default_factory=set)
    release: list[str] = field(default_factory=list)
    ends: list[tuple[datetime, bool]] = field(default_factory=list)
    """When the newly counted pods ended, and whether they succeeded."""
    fail_job: str = ""
    """The message with which the pod failure policy fails the Job."""

    @property
    def all_succeeded(self) -> int:
        """Succeeded pods, including uncounted ones."""
        return self.succeeded + len(self.uncounted_succeeded)

    @property
    def all_failed(self) -> int:
        """Failed pods, including uncounted ones."""
        return self.failed + len(self.uncounted_failed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The fields of a Job's spec on which counting depends."""

    indexed: bool
    completions: int | None
    limit_per_index: int | None
    policy: JsonObject | None
    replace_failed_only: bool

    @classmethod
    def of(cls, spec: JsonObject) -> Rules:
        """The rules of a Job's spec."""
        policy = spec.get("podFailurePolicy")
        return cls(
            indexed=spec.get("completionMode") == "Indexed",
            completions=spec.get("completions"),
            limit_per_index=spec.get("backoffLimitPerIndex"),
            policy=policy,
            replace_failed_only=policy is not None or spec.get("podReplacementPolicy") == "Failed",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Whether and how the Job ends: running pods fail with it, or are not counted."""

    failing: bool = False
    succeeding: bool = False
    deleted: bool = False

    @property
    def decided(self) -> bool:
        """Whether the Job ends."""
        return self.failing or self.succeeding or self.deleted


def counts_of(status: JsonObject, pods: Sequence[JsonObject], *, rules: Rules) -> Counts:
    """The counts of the status, plus uncounted pods whose finalizer has been removed."""
    uncounted = status.get("uncountedTerminatedPods") or {}
    held = {pod_facts.uid(pod) for pod in pods if pod_facts.tracked(pod)}
    succeeded: list[str] = uncounted.get("succeeded") or []
    failed: list[str] = uncounted.get("failed") or []
    counts = Counts(
        succeeded=status.get("succeeded", 0) + sum(uid not in held for uid in succeeded),
        failed=status.get("failed", 0) + sum(uid not in held for uid in failed),
        uncounted_succeeded=[uid for uid in succeeded if uid in held],
        uncounted_failed=[uid for uid in failed if uid in held],
    )
    counts.release += [*counts.uncounted_succeeded, *counts.uncounted_failed]
    if rules.indexed:
        counts.completed = index_ranges.parse(status.get("completedIndexes", ""), below=rules.completions)
        counts.succeeded = len(counts.completed)
        if rules.limit_per_index is not None:
            counts.failed_indexes = index_ranges.parse(status.get("failedIndexes", ""), below=rules.completions)
    return counts


def count(
    counts: Counts,
    pods: Sequence[JsonObject],
    *,
    rules: Rules,
    ending: Ending,
    awaited: Mapping[int, str],
    now: datetime,
) -> None:
    """Count each finished pod that is not counted yet.

    `awaited` has the last failed pod of each index that is retried: it is counted once its replacement exists, which
    takes the number of failures from it.
    """
    known = {*counts.uncounted_succeeded, *counts.uncounted_failed}
    for pod in pods:
        uid = pod_facts.uid(pod)
        if not pod_facts.tracked(pod) or uid in known:
            continue
        if pod_facts.phase(pod) == "Succeeded":
            _count_success(counts, pod, rules=rules, now=now)
        elif fails(pod, rules=rules) or (ending.failing and not pod_facts.ended(pod)):
            if ending.succeeding and not pod_facts.ended(pod):
                counts.release.append(uid)  # deleted because the success policy is met
                continue
            index = pod_facts.index_of(pod)
            waits = not ending.decided and index is not None and awaited.get(index) == uid
            if waits and index is not None and not _over(counts, pod, index, rules=rules):
                continue
            _count_failure(counts, pod, rules=rules, now=now)
        elif ending.deleted and pod_facts.deleting(pod):
            counts.release.append(uid)


def fails(pod: JsonObject, *, rules: Rules) -> bool:
    """Whether the pod has failed; a terminating pod counts as failed unless podReplacementPolicy is Failed."""
    if pod_facts.phase(pod) == "Failed":
        return True
    return pod_facts.terminating(pod) and not rules.replace_failed_only


def tries(pod: JsonObject) -> int:
    """How often the index of a failed pod failed before, from its annotation."""
    return pod_facts.count(pod, pod_facts.FAILURES)


def _over(counts: Counts, pod: JsonObject, index: int, *, rules: Rules) -> bool:
    """Whether the index is not retried."""
    verdict = verdict_of(rules.policy, pod)
    if verdict.action is Action.FAIL_JOB or verdict.action is Action.FAIL_INDEX:
        return True
    if index in counts.completed or index in counts.failed_indexes:
        return True
    limit = rules.limit_per_index
    return verdict.action is Action.COUNT and limit is not None and tries(pod) >= limit


def _count_success(counts: Counts, pod: JsonObject, *, rules: Rules, now: datetime) -> None:
    uid = pod_facts.uid(pod)
    counts.release.append(uid)
    if not rules.indexed:
        counts.uncounted_succeeded.append(uid)
    else:
        index = pod_facts.index_of(pod)
        if index is None or index in counts.completed or index >= (rules.completions or 0):
            return
        counts.completed.add(index)
        counts.succeeded = len(counts.completed)
    counts.ends.append((pod_facts.finished_at(pod, now=now), True))


def _count_failure(counts: Counts, pod: JsonObject, *, rules: Rules, now: datetime) -> None:
    uid, index = pod_facts.uid(pod), pod_facts.index_of(pod)
    counts.release.append(uid)
    verdict = verdict_of(rules.policy, pod)
    if rules.indexed and (index is None or index >= (rules.completions or 0)):
        return
    counts.ends.append((pod_facts.finished_at(pod, now=now), False))
    if verdict.action is Action.IGNORE:
        return
    if verdict.action is Action.FAIL_JOB and not counts.fail_job:
        counts.fail_job = verdict.message
    if rules.limit_per_index is not None and index is not None and pod_facts.phase(pod) == "Failed":
        over = verdict.action is Action.COUNT and tries(pod) >= rules.limit_per_index
        if over or verdict.action is Action.FAIL_INDEX:
            counts.failed_indexes.add(index)
    counts.uncounted_failed.append(uid)
