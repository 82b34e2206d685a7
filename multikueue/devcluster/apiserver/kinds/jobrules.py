# SPDX-License-Identifier: Apache-2.0
"""What jobs may not say, beyond the limits of their numbers."""

from __future__ import annotations

import re
from typing import Final

from multikueue.devcluster.apiserver import documents, words
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.errors import Cause

_ACTIONS: Final = ["Count", "FailIndex", "FailJob", "Ignore"]
_PREFIXED: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[-A-Za-z0-9._~%!$&'()*+,;=:@/]+")


def problems(spec: JsonObject, path: str) -> list[Cause]:
    """What is wrong with the policies of a job."""
    found = []
    indexed = spec.get("completionMode") == "Indexed"
    manager = spec.get("managedBy")
    if manager is not None and _PREFIXED.fullmatch(manager) is None:
        text = 'must be a domain-prefixed path (such as "acme.io/foo")'
        found.append(words.bad_value(f"{path}.managedBy", manager, text))
    per_index, failed = spec.get("backoffLimitPerIndex"), spec.get("maxFailedIndexes")
    if per_index is not None and not indexed:
        text = "requires indexed completion mode"
        found.append(words.bad_value(f"{path}.backoffLimitPerIndex", per_index, text))
    if failed is not None and indexed and failed > (spec.get("completions") or 0):
        text = "must be less than or equal to completions"
        found.append(words.bad_value(f"{path}.maxFailedIndexes", failed, text))
    replacement = spec.get("podReplacementPolicy")
    if replacement is not None and replacement not in ("Failed", "TerminatingOrFailed"):
        allowed = ["Failed", "TerminatingOrFailed"]
        found.append(words.one_of(f"{path}.podReplacementPolicy", replacement, allowed))
    for index, rule in enumerate(documents.items(spec, "podFailurePolicy", "rules")):
        found += _failure_problems(rule, f"{path}.podFailurePolicy.rules[{index}]")
    return found


def _failure_problems(rule: JsonObject, path: str) -> list[Cause]:
    found = []
    if rule.get("action") not in _ACTIONS:
        found.append(words.one_of(f"{path}.action", rule.get("action", ""), _ACTIONS))
    codes = rule.get("onExitCodes")
    if isinstance(codes, dict):
        for index, code in enumerate(codes.get("values") or ()):
            if code == 0 and codes.get("operator") == "In":
                where = f"{path}.onExitCodes.values[{index}]"
                found.append(words.bad_value(where, 0, "must not be 0 for the In operator"))
    elif not rule.get("onPodConditions"):
        text = "Invalid value: specifying one of OnExitCodes and OnPodConditions is required"
        found.append(Cause("FieldValueInvalid", text, path))
    return found
