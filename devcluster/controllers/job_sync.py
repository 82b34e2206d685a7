# SPDX-License-Identifier: Apache-2.0
"""Plans the next step of a Job: its status, the pods to create, delete and release, and events.

Pure: Job, pods and the time in, `JobPlan` out. A plan is executed in the order of its fields; the next plan starts from
the result.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from devcluster.controllers import index_ranges, job_counts, job_parallelism, pod_facts
from devcluster.controllers.job_counts import Counts, Ending, Rules
from devcluster.controllers.job_parallelism import NO_FAILURES, Failures
from devcluster.controllers.job_pods import PodRequest
from multikueue.api.objects import JsonObject
from multikueue.core.backoff import Backoff
from multikueue.core.conditions import is_true_in
from multikueue.core.timestamps import format_time, parse_time

SUSPENDED: Final = "Suspended"
FAILURE_TARGET: Final = "FailureTarget"
SUCCESS_CRITERIA_MET: Final = "SuccessCriteriaMet"
COMPLETE: Final = "Complete"
FAILED: Final = "Failed"
_LONGEST_DEADLINE: Final = 100 * 365 * 86_400
"""Seconds; a longer activeDeadlineSeconds has no effect."""
CONTROLLER_NAME: Final = "kubernetes.io/job-controller"
_FINAL: Final = {SUCCESS_CRITERIA_MET: COMPLETE, FAILURE_TARGET: FAILED}


@dataclass(frozen=True, slots=True)
class ControllerEvent:
    """An event to emit about the Job."""

    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """What to do, in this order."""

    status: JsonObject
    release: tuple[str, ...] = ()
    """Uids of pods whose tracking finalizer is removed."""
    discard: tuple[str, ...] = ()
    """Uids of pods to delete without counting them as failed."""
    delete: tuple[str, ...] = ()
    """Uids of pods to delete."""
    create: tuple[PodRequest, ...] = ()
    events: tuple[ControllerEvent, ...] = ()
    failures: Failures = NO_FAILURES
    after: float | None = None
    """Seconds until the next reconcile without an event; None for never."""


@dataclass(frozen=True, slots=True)
class _Target:
    """The condition with which a Job will end."""

    condition: str
    reason: str
    message: str


def is_finished(job: JsonObject) -> bool:
    """Whether the Job is Complete or Failed."""
    return any(is_true_in(job.get("status") or {}, kind) for kind in (COMPLETE, FAILED))


def is_managed(job: JsonObject) -> bool:
    """Whether the built-in controller runs the Job, according to `managedBy`."""
    return job["spec"].get("managedBy") in (None, CONTROLLER_NAME)


def plan(
    job: JsonObject, pods: Sequence[JsonObject], *, now: datetime, backoff: Backoff, failures: Failures = NO_FAILURES
) -> JobPlan:
    """The plan for an unfinished Job that the built-in controller runs."""
    return _Sync(job, pods, now=now, backoff=backoff, failures=failures).plan()


def success_policy_message(policy: JsonObject | None, succeeded: Set[int], *, completions: int) -> str | None:
    """The message of the first rule of a successPolicy that matches; None if none does."""
    for number, rule in enumerate((policy or {}).get("rules") or ()):
        counted: Set[int] = succeeded
        wanted: int | None = rule.get("succeededCount")
        if rule.get("succeededIndexes") is not None:
            listed = index_ranges.parse(rule["succeededIndexes"], below=completions)
            counted = succeeded & listed
            wanted = len(listed) if wanted is None else wanted
        if wanted is not None and len(counted) >= wanted:
            return f"Matched rules at index {number}"
    return None


class _Sync:
    """One reconcile of one Job."""

    def __init__(
        self, job: JsonObject, pods: Sequence[JsonObject], *, now: datetime, backoff: Backoff, failures: Failures
    ) -> None:
        self.spec: JsonObject = job["spec"]
        self.old: JsonObject = job.get("status") or {}
        self.deleted = "deletionTimestamp" in job["metadata"]
        self.pods = pods
        self.now = now
        self.backoff = backoff
        self.rules = Rules.of(self.spec)
        self.failures = failures
        self.conditions: list[JsonObject] = [dict(entry) for entry in self.old.get("conditions") or ()]
        self.events: list[ControllerEvent] = []
        self.times: list[datetime] = []
        self.active = [pod for pod in pods if pod_facts.active(pod)]

    def plan(self) -> JobPlan:
        suspended = bool(self.spec.get("suspend"))
        counts = job_counts.counts_of(self.old, self.pods, rules=self.rules)
        started = self._started(suspended=suspended)
        target = self._current_target()
        awaited = job_parallelism.awaited(self.pods, active=self.active, rules=self.rules)
        ending = Ending(deleted=self.deleted)
        job_counts.count(
            counts,
            self.pods,
            rules=self.rules,
            ending=ending if target is None else _ending(target),
            awaited=awaited,
            now=self.now,
        )
        if target is None and not self.deleted:
            target = self._target(counts, started=started, suspended=suspended)
            if target is not None:
                # Running pods and pods awaiting a retry are counted according to how the Job ends.
                job_counts.count(counts, self.pods, rules=self.rules, ending=_ending(target), awaited={}, now=self.now)
                self._set(target.condition, "True", reason=target.reason, message=target.message)
        self.failures = job_parallelism.count_failures(self.failures, counts.ends)
        discard: list[str] = []
        delete: list[str] = []
        create: tuple[PodRequest, ...] = ()
        active = len(self.active)
        if target is not None:
            removed = [pod_facts.uid(pod) for pod in self.active]
            (delete if target.condition == FAILURE_TARGET else discard).extend(removed)
            active = 0
        elif suspended:
            discard = [pod_facts.uid(pod) for pod in self.active]
            active = 0
            started = None
            if not is_true_in(self.old, SUSPENDED):
                self._set(SUSPENDED, "True", reason="JobSuspended", message="Job suspended")
                self.events.append(ControllerEvent("Normal", "Suspended", "Job suspended"))
        elif not self.deleted:
            found = job_parallelism.change(
                self.spec, self.pods, self.active, counts, failures=self.failures, backoff=self.backoff, now=self.now
            )
            discard, create = list(found.excess), found.create
            active += len(found.create) - len(found.excess)
            if found.at is not None:
                self.times.append(found.at)
        if target is not None and self._all_counted(counts):
            self._finish(target)
        return JobPlan(
            status=self._status(counts, started=started, active=active, removed=frozenset([*delete, *discard])),
            release=tuple(dict.fromkeys(counts.release)),
            discard=tuple(discard),
            delete=tuple(delete),
            create=create,
            events=tuple(self.events),
            failures=self.failures,
            after=max(0.0, (min(self.times) - self.now).total_seconds()) if self.times else None,
        )

    def _started(self, *, suspended: bool) -> datetime | None:
        text = self.old.get("startTime")
        if not suspended and is_true_in(self.old, SUSPENDED):
            self._set(SUSPENDED, "False", reason="JobResumed", message="Job resumed")
            self.events.append(ControllerEvent("Normal", "Resumed", "Job resumed"))
            return self.now
        if text is None:
            return None if suspended else self.now
        return parse_time(text)

    def _current_target(self) -> _Target | None:
        for entry in self.conditions:
            if entry["type"] in _FINAL and entry["status"] == "True":
                return _Target(entry["type"], entry.get("reason", ""), entry.get("message", ""))
        return None

    def _target(self, counts: Counts, *, started: datetime | None, suspended: bool) -> _Target | None:
        def failed(reason: str, message: str) -> _Target:
            return _Target(FAILURE_TARGET, reason, message)

        if counts.fail_job:
            return failed("PodFailurePolicy", counts.fail_job)
        if counts.all_failed > self.spec.get("backoffLimit", 6) or self._restarted_too_often():
            return failed("BackoffLimitExceeded", "Job has reached the specified backoff limit")
        deadline = self.spec.get("activeDeadlineSeconds")
        if deadline is not None and started is not None and not suspended:
            until = started + timedelta(seconds=min(deadline, _LONGEST_DEADLINE))
            if until <= self.now:
                return failed("DeadlineExceeded", "Job was active longer than specified deadline")
            self.times.append(until)
        completions = self.rules.completions
        if self.rules.indexed and completions is not None:
            over = len(counts.failed_indexes)
            most = self.spec.get("maxFailedIndexes")
            if most is not None and over > most:
                message = "Job has exceeded the specified maximal number of failed indexes"
                return failed("MaxFailedIndexesExceeded", message)
            if over and over + len(counts.completed - counts.failed_indexes) >= completions:
                return failed("FailedIndexes", "Job has failed indexes")
            met = success_policy_message(self.spec.get("successPolicy"), counts.completed, completions=completions)
            if met is not None:
                return _Target(SUCCESS_CRITERIA_MET, "SuccessPolicy", met)
        succeeded = counts.all_succeeded
        if completions is None:
            complete = succeeded > 0 and not self.active
        else:
            complete = succeeded >= completions and not self.active
        if complete:
            return _Target(SUCCESS_CRITERIA_MET, "CompletionsReached", "Reached expected number of succeeded pods")
        return None

    def _restarted_too_often(self) -> bool:
        if self.spec["template"]["spec"].get("restartPolicy") != "OnFailure":
            return False
        limit = self.spec.get("backoffLimit", 6)
        restarts = sum(pod_facts.restarts(pod) for pod in self.active)
        return restarts > 0 if limit == 0 else restarts >= limit

    def _all_counted(self, counts: Counts) -> bool:
        """Whether no pod runs and all finished pods are counted."""
        busy = any(not pod_facts.ended(pod) for pod in self.pods)
        return not busy and not counts.release and not counts.uncounted_failed and not counts.uncounted_succeeded

    def _finish(self, target: _Target) -> None:
        final = _FINAL[target.condition]
        self._set(final, "True", reason=target.reason, message=target.message)
        if final == COMPLETE:
            self.events.append(ControllerEvent("Normal", "Completed", "Job completed"))
        else:
            self.events.append(ControllerEvent("Warning", target.reason, target.message))

    def _status(self, counts: Counts, *, started: datetime | None, active: int, removed: frozenset[str]) -> JsonObject:
        uncounted = {"succeeded": counts.uncounted_succeeded, "failed": counts.uncounted_failed}
        staying = [pod for pod in self.active if pod_facts.uid(pod) not in removed]
        own: JsonObject = {
            "conditions": self.conditions,
            "startTime": format_time(started) if started is not None else None,
            "completionTime": self.old.get("completionTime"),
            "active": active,
            "succeeded": counts.succeeded,
            "failed": counts.failed,
            "completedIndexes": index_ranges.text_of(counts.completed),
        }
        if any(entry["type"] == COMPLETE and entry["status"] == "True" for entry in self.conditions):
            own["completionTime"] = format_time(self.now)
        status = {key: value for key, value in own.items() if value}
        if self.rules.limit_per_index is not None:
            status["failedIndexes"] = index_ranges.text_of(counts.failed_indexes)
        status["uncountedTerminatedPods"] = {key: value for key, value in uncounted.items() if value}
        status["ready"] = sum(pod_facts.ready(pod) for pod in staying)
        status["terminating"] = sum(pod_facts.terminating(pod) for pod in self.pods)
        return status

    def _set(self, type_: str, value: str, *, reason: str, message: str) -> None:
        stamp = format_time(self.now)
        made = {
            "type": type_,
            "status": value,
            "lastProbeTime": stamp,
            "lastTransitionTime": stamp,
            "reason": reason,
            "message": message,
        }
        for number, entry in enumerate(self.conditions):
            if entry["type"] == type_:
                self.conditions[number] = made
                return
        self.conditions.append(made)


def _ending(target: _Target) -> Ending:
    failing = target.condition == FAILURE_TARGET
    return Ending(failing=failing, succeeding=not failing)
