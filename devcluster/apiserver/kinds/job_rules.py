# SPDX-License-Identifier: Apache-2.0
"""Validation of the policies of jobs, and of cron jobs apart from their job template."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.cron_schedule import parse_schedule, zone_of
from multikueue.core.errors import BadInput

_ACTIONS: Final = ["Count", "FailIndex", "FailJob", "Ignore"]
_PREFIXED: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[-A-Za-z0-9._~%!$&'()*+,;=:@/]+")
_POLICIES: Final = ["Allow", "Forbid", "Replace"]
_COUNTED: Final = ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
_ZONE_PART: Final = re.compile(r"[A-Za-z0-9._+-]{1,14}")
_NOT_NEGATIVE: Final = "must be greater than or equal to 0"


def job_problems(spec: JsonObject, path: str) -> list[StatusCause]:
    """The problems of the policies of a job."""
    found = []
    indexed = spec.get("completionMode") == "Indexed"
    manager = spec.get("managedBy")
    if manager is not None and _PREFIXED.fullmatch(manager) is None:
        text = 'must be a domain-prefixed path (such as "acme.io/foo")'
        found.append(field_errors.invalid(f"{path}.managedBy", manager, text))
    per_index, failed = spec.get("backoffLimitPerIndex"), spec.get("maxFailedIndexes")
    if per_index is not None and not indexed:
        text = "requires indexed completion mode"
        found.append(field_errors.invalid(f"{path}.backoffLimitPerIndex", per_index, text))
    if failed is not None and indexed and failed > (spec.get("completions") or 0):
        text = "must be less than or equal to completions"
        found.append(field_errors.invalid(f"{path}.maxFailedIndexes", failed, text))
    replacement = spec.get("podReplacementPolicy")
    if replacement is not None and replacement not in ("Failed", "TerminatingOrFailed"):
        allowed = ["Failed", "TerminatingOrFailed"]
        found.append(field_errors.not_supported(f"{path}.podReplacementPolicy", replacement, allowed))
    for index, rule in enumerate(documents.items(spec, "podFailurePolicy", "rules")):
        found += _failure_problems(rule, f"{path}.podFailurePolicy.rules[{index}]")
    return found


def hostname_problems(value: JsonObject) -> list[StatusCause]:
    """The problem of an indexed job's name that makes no valid hostname with its largest index."""
    name, spec = value["metadata"].get("name", ""), value["spec"]
    completions = spec.get("completions") or 0
    hostname = f"{name}-{completions - 1}"
    if spec.get("completionMode") != "Indexed" or completions < 1 or field_errors.is_label(hostname):
        return []
    text = f"will not able to create pod with invalid DNS label: {hostname}"
    return [field_errors.invalid("metadata.name", name, text)]


def _failure_problems(rule: JsonObject, path: str) -> list[StatusCause]:
    found = []
    if rule.get("action") not in _ACTIONS:
        found.append(field_errors.not_supported(f"{path}.action", rule.get("action", ""), _ACTIONS))
    codes = rule.get("onExitCodes")
    if isinstance(codes, dict):
        for index, code in enumerate(codes.get("values") or ()):
            if code == 0 and codes.get("operator") == "In":
                where = f"{path}.onExitCodes.values[{index}]"
                found.append(field_errors.invalid(where, 0, "must not be 0 for the In operator"))
    elif not rule.get("onPodConditions"):
        text = "Invalid value: specifying one of OnExitCodes and OnPodConditions is required"
        found.append(StatusCause("FieldValueInvalid", text, path))
    return found


def cron_job_problems(spec: JsonObject, before: JsonObject) -> list[StatusCause]:
    """The problems of a cron job's spec; `before` is empty for a new one."""
    found = list(_schedule_problems(spec, before))
    found += _negative(spec, _COUNTED[:1])
    if not before or spec.get("timeZone") != before.get("timeZone"):
        found += _zone_problems(spec.get("timeZone"))
    policy = spec.get("concurrencyPolicy")
    if policy not in _POLICIES:
        found.append(field_errors.not_supported("spec.concurrencyPolicy", policy, sorted(_POLICIES)))
    return [*found, *_negative(spec, _COUNTED[1:])]


def _schedule_problems(spec: JsonObject, before: JsonObject) -> Iterator[StatusCause]:
    schedule = spec.get("schedule")
    if not schedule:
        yield field_errors.required("spec.schedule")
        return
    try:
        parse_schedule(schedule)
    except BadInput as error:
        yield field_errors.invalid("spec.schedule", schedule, str(error))
    if "TZ" not in schedule:
        return
    if "TZ" not in str(before.get("schedule", "")):
        text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        yield field_errors.invalid("spec.schedule", schedule, text)
    elif spec.get("timeZone") is not None:
        text = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
        yield field_errors.invalid("spec.schedule", schedule, text)


def _zone_problems(zone: JsonValue) -> Iterator[StatusCause]:
    if zone is None:
        return
    if not isinstance(zone, str) or not zone:
        yield field_errors.invalid("spec.timeZone", zone, "timeZone must be nil or non-empty string")
        return
    parts = zone.split("/")
    if any(part in (".", "..") or part.startswith("-") or not _ZONE_PART.fullmatch(part) for part in parts):
        yield field_errors.invalid("spec.timeZone", zone, f"unknown time zone {zone}")
        return
    if zone.lower() == "local":
        text = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        yield field_errors.invalid("spec.timeZone", zone, text)
        return
    try:
        zone_of(zone)
    except BadInput as error:
        yield field_errors.invalid("spec.timeZone", zone, str(error))


def _negative(spec: JsonObject, names: tuple[str, ...]) -> Iterator[StatusCause]:
    for name in names:
        value = spec.get(name)
        if isinstance(value, int) and value < 0:
            yield field_errors.invalid(f"spec.{name}", value, _NOT_NEGATIVE)
