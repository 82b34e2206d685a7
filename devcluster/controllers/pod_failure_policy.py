# SPDX-License-Identifier: Apache-2.0
"""Evaluates a Job's podFailurePolicy for a failed pod. Pure: the first matching rule decides."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from devcluster.controllers import pod_facts
from multikueue.api.objects import JsonObject


class Action(StrEnum):
    """How the failure is handled."""

    COUNT = "Count"
    IGNORE = "Ignore"
    FAIL_JOB = "FailJob"
    FAIL_INDEX = "FailIndex"


@dataclass(frozen=True, slots=True)
class PodFailureVerdict:
    """The action, and the message of the condition for FailJob."""

    action: Action = Action.COUNT
    message: str = ""


def verdict_of(policy: JsonObject | None, pod: JsonObject) -> PodFailureVerdict:
    """The verdict of the first matching rule; Count if none matches."""
    for number, rule in enumerate((policy or {}).get("rules") or ()):
        why = _match(rule, pod)
        if why is not None:
            action = Action(rule["action"])
            return PodFailureVerdict(
                action, f"{why} matching {action} rule at index {number}" if action is Action.FAIL_JOB else ""
            )
    return PodFailureVerdict()


def _match(rule: JsonObject, pod: JsonObject) -> str | None:
    about = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    if rule.get("onExitCodes") is not None:
        wanted = rule["onExitCodes"]
        for entry in pod_facts.container_statuses(pod):
            if wanted.get("containerName") not in (None, entry["name"]):
                continue
            ended = (entry.get("state") or {}).get("terminated")
            # Exit code 0 is not a failure, also with operator NotIn.
            if ended is None or ended.get("exitCode", 0) == 0:
                continue
            if (ended["exitCode"] in wanted["values"]) == (wanted["operator"] == "In"):
                return f"Container {entry['name']} for pod {about} failed with exit code {ended['exitCode']}"
        return None
    for pattern in rule.get("onPodConditions") or ():
        found = pod_facts.condition(pod, pattern["type"])
        if found is not None and found.get("status") == pattern.get("status", "True"):
            return f"Pod {about} has condition {pattern['type']}"
    return None
