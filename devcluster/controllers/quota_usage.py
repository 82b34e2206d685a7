# SPDX-License-Identifier: Apache-2.0
"""Computes the usage of a ResourceQuota. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from devcluster.controllers import pod_facts
from devcluster.controllers.pod_info import limits_of, requests_of
from multikueue.api.objects import JsonObject
from multikueue.core.quantity import Quantity

Count = Callable[[str], int]
"""The number of objects of a resource (`jobs.batch`, `pods`) in the namespace."""

_COUNTED: Final = frozenset(
    {"configmaps", "secrets", "services", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas"}
)
_UNPREFIXED: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
"""Names that mean requests if they have no prefix."""


def used_of(hard: JsonObject, pods: Iterable[JsonObject], *, count: Count) -> JsonObject:
    """The usage of each resource in `hard`; `pods` are those that the quota's scopes select."""
    active = [pod for pod in pods if not pod_facts.ended(pod)]
    requests = [requests_of(pod["spec"]) for pod in active]
    limits = [limits_of(pod["spec"]) for pod in active]
    used: JsonObject = {}
    for name, limit in hard.items():
        if name == "pods":
            used[name] = str(len(active))
        elif name.startswith("count/"):
            used[name] = str(count(name.removeprefix("count/")))
        elif name in _COUNTED:
            used[name] = str(count(name))
        elif name.startswith("limits."):
            used[name] = _total(limits, name.removeprefix("limits."), limit)
        elif name in _UNPREFIXED or name.startswith("requests."):
            used[name] = _total(requests, name.removeprefix("requests."), limit)
    return used


def selected(pod: JsonObject, spec: JsonObject) -> bool:
    """Whether the scopes of the quota select the pod."""
    terms = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    terms += (spec.get("scopeSelector") or {}).get("matchExpressions") or []
    return all(_in_scope(pod, term) for term in terms)


def _in_scope(pod: JsonObject, term: JsonObject) -> bool:
    limited = pod["spec"].get("activeDeadlineSeconds") is not None
    plain = not limits_of(pod["spec"]) and requests_of(pod["spec"]).keys() <= {"pods"}
    match term["scopeName"]:
        case "Terminating":
            return limited
        case "NotTerminating":
            return not limited
        case "BestEffort":
            return plain
        case "NotBestEffort":
            return not plain
        case "PriorityClass":
            name = pod["spec"].get("priorityClassName") or ""
            match term.get("operator"):
                case "In":
                    return name in (term.get("values") or ())
                case "NotIn":
                    return name not in (term.get("values") or ())
                case "DoesNotExist":
                    return not name
                case _:
                    return bool(name)
        case _:
            return False


def _total(amounts: Iterable[dict[str, int]], name: str, like: str) -> str:
    milli = sum(found.get(name, 0) for found in amounts)
    whole, rest = divmod(milli, 1000)
    if rest:
        return str(Quantity.of_milli(milli))
    return str(Quantity.of(whole, Quantity.parse(like).format))
