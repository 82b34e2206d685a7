# SPDX-License-Identifier: Apache-2.0
"""Label selectors: what is wrong with one, and what it selects."""

from __future__ import annotations

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from multikueue.core.errors import BadInput
from multikueue.core.selectors import LabelSelector, Requirement


def problems(selector: JsonValue, path: str) -> list[StatusCause]:
    """Everything that is wrong with it; nothing without one."""
    if not isinstance(selector, dict):
        return []
    found = field_errors.label_problems(f"{path}.matchLabels", selector.get("matchLabels"))
    for index, term in enumerate(documents.items(selector, "matchExpressions")):
        found += _term_problems(term, f"{path}.matchExpressions[{index}]")
    return found


def selects(selector: JsonValue, labels: dict[str, str]) -> bool:
    """Whether it matches; an empty one matches everything, and one that no server takes matches nothing."""
    if not isinstance(selector, dict) or not selector:
        return True
    try:
        terms = [
            Requirement(term.get("key", ""), term.get("operator", ""), tuple(term.get("values") or ()))
            for term in documents.items(selector, "matchExpressions")
        ]
    except BadInput:
        return False
    base = LabelSelector.of(documents.strings(selector.get("matchLabels")))
    return base.matches(labels) and LabelSelector(tuple(terms)).matches(labels)


def shown(selector: JsonObject) -> JsonObject:
    """As a message shows it: without what is empty."""
    terms: list[JsonValue] = [
        {key: value for key, value in term.items() if value or key != "values"}
        for term in documents.items(selector, "matchExpressions")
    ]
    whole: JsonObject = {"matchLabels": documents.child(selector, "matchLabels"), "matchExpressions": terms}
    return {key: value for key, value in whole.items() if value}


def _term_problems(term: JsonObject, path: str) -> list[StatusCause]:
    key, operator, values = term.get("key", ""), term.get("operator", ""), term.get("values") or []
    found = []
    if operator in ("In", "NotIn"):
        if not values:
            found.append(
                field_errors.required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
            )
    elif operator not in ("Exists", "DoesNotExist"):
        found.append(field_errors.invalid(f"{path}.operator", operator, "not a valid selector operator"))
    elif values:
        text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        found.append(field_errors.forbidden(f"{path}.values", text))
    found += field_errors.key_problems(f"{path}.key", key)
    for index, value in enumerate(values):
        found += field_errors.label_value_problems(f"{path}.values[{index}]", value)
    return found
