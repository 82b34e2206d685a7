# SPDX-License-Identifier: Apache-2.0
"""Resource quotas: which names and scopes they may have; what counts for them is in `devcluster.quota_usage`."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds import pod_rules, quantities
from devcluster.apiserver.kinds.behaviour import KindBehaviour, RequestContext, age
from multikueue.core.quantity import Quantity, QuantityError

_AMOUNTS: Final = ("cpu", "memory", "ephemeral-storage")
_COUNTED: Final = frozenset(
    {
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    }
)
_COUNTABLE: Final = frozenset(
    {
        *_AMOUNTS,
        *(f"requests.{name}" for name in (*_AMOUNTS, "storage")),
        *(f"limits.{name}" for name in _AMOUNTS),
        *_COUNTED,
    }
)
_HUGE: Final = ("hugepages-", "requests.hugepages-")
_NO_QUOTA: Final = "must be a standard resource for quota"
_OF_PODS: Final = frozenset(
    {"pods", *(f"{prefix}{name}" for prefix in ("", "requests.", "limits.") for name in ("cpu", "memory"))}
)
_SCOPES: Final = {
    "BestEffort": frozenset({"pods"}),
    "CrossNamespacePodAffinity": _OF_PODS,
    "NotBestEffort": _OF_PODS,
    "NotTerminating": _OF_PODS,
    "PriorityClass": _OF_PODS,
    "Terminating": _OF_PODS,
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
"""The scopes, and the standard resources that each may have."""
_VALUED: Final = frozenset({"PriorityClass", "VolumeAttributesClass"})
"""The scopes whose operator may be another than Exists."""
_CONFLICTS: Final = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})


def _is_standard(name: str) -> bool:
    return name in _COUNTABLE or name.startswith(_HUGE)


def _round_amounts(amounts: JsonObject) -> None:
    """Round amounts up to thousandths, in place."""
    for name, amount in amounts.items():
        try:
            parsed = Quantity.parse(amount)
        except QuantityError:
            continue
        rounded = Quantity.of_milli(parsed.milli_ceil())
        if rounded != parsed:
            amounts[name] = str(rounded)


def _hard_problems(amounts: JsonObject, path: str) -> list[StatusCause]:
    """The problems of names and amounts in `hard` or `used`."""
    found = []
    for name, amount in amounts.items():
        where = f"{path}[{name}]"
        # A real server calls every qualified name a label key.
        bad = field_errors.key_problems("metadata.labels", name)
        found += [StatusCause(cause.reason, cause.message, where) for cause in bad]
        if "/" not in name and not _is_standard(name):
            known = bool(bad) or name == "storage"
            for text in (_NO_QUOTA,) if known else ("must be a standard resource type or fully qualified", _NO_QUOTA):
                found.append(field_errors.invalid(where, name, text))
        if str(amount).startswith("-"):
            found.append(field_errors.invalid(where, amount, pod_rules.NOT_NEGATIVE))
        if name in _COUNTED or ("/" in name and "kubernetes.io/" not in name and not name.startswith("requests.")):
            found += pod_rules.whole_problems(amount, where)
    return found


def _scope_problems(spec: JsonObject) -> list[StatusCause]:
    scopes = spec.get("scopes") or []
    found = []
    for scope in scopes:
        if scope not in _SCOPES:
            found.append(field_errors.invalid("spec.scopes", scopes, "unsupported scope"))
        for _ in _misfits(spec, scope):
            found.append(field_errors.invalid("spec.scopes", scopes, "unsupported scope applied to resource"))
    return found + _conflicts(scopes, "spec.scopes", scopes)


def _misfits(spec: JsonObject, scope: str) -> list[str]:
    """The standard resources of the quota that may not have the scope."""
    if scope not in _SCOPES:
        return []
    return [name for name in documents.child(spec, "hard") if _is_standard(name) and name not in _SCOPES[scope]]


def _conflicts(scopes: list[str], path: str, shown: JsonValue) -> list[StatusCause]:
    return [field_errors.invalid(path, shown, "conflicting scopes") for pair in _CONFLICTS if pair <= set(scopes)]


def _selector_problems(spec: JsonObject) -> list[StatusCause]:
    path = "spec.scopeSelector.matchExpressions"
    terms = documents.items(spec, "scopeSelector", "matchExpressions")
    # A real server shows the selector in the form that it has inside.
    shown = {
        "MatchExpressions": [
            {"ScopeName": term.get("scopeName"), "Operator": term.get("operator"), "Values": term.get("values")}
            for term in terms
        ]
    }
    found = []
    for term in terms:
        scope, operator, values = term.get("scopeName", ""), term.get("operator", ""), term.get("values")
        if scope not in _SCOPES:
            found.append(field_errors.invalid(f"{path}.scopeName", scope, "unsupported scope"))
        for _ in _misfits(spec, scope):
            found.append(field_errors.invalid(path, shown, "unsupported scope applied to resource"))
        if scope in _SCOPES and scope not in _VALUED and operator != "Exists":
            text = (
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
                "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or "
                "ResourceQuotaScopeCrossNamespacePodAffinity"
            )
            found.append(field_errors.invalid(f"{path}.operator", operator, text))
        if operator in ("In", "NotIn"):
            if not values:
                text = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                found.append(field_errors.required(f"{path}.values", text))
        elif operator not in ("Exists", "DoesNotExist"):
            found.append(field_errors.invalid(f"{path}.operator", operator, "not a valid selector operator"))
        elif values:
            text = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            found.append(field_errors.invalid(f"{path}.values", values, text))
    return found + _conflicts([term.get("scopeName", "") for term in terms], path, spec.get("scopes"))


class ResourceQuotaBehaviour(KindBehaviour):
    """Resource quotas."""

    has_status = True

    def default(self, value: JsonObject) -> None:
        """Write amounts in their canonical form."""
        for part, field in (("spec", "hard"), ("status", "hard"), ("status", "used")):
            quantities.settle_amounts(documents.child(value, part), field)
            _round_amounts(documents.child(value, part, field))

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        if request_context.subresource == "status":
            status = documents.child(value, "status")
            found = _hard_problems(documents.child(status, "hard"), "status.hard")
            return found + _hard_problems(documents.child(status, "used"), "status.used")
        spec = documents.child(value, "spec")
        found = _hard_problems(documents.child(spec, "hard"), "spec.hard")
        found += _scope_problems(spec) + _selector_problems(spec)
        if old is not None and set(spec.get("scopes") or ()) != set(documents.child(old, "spec").get("scopes") or ()):
            found.append(field_errors.immutable("spec.scopes", spec.get("scopes")))
        # A scope may be wrong for several resources; the message has that once.
        return list(dict.fromkeys(found))

    def warnings(self, value: JsonObject, old: JsonObject | None) -> list[str]:
        """Requests that are greater than the limits."""
        hard = documents.child(value, "spec", "hard")
        found = []
        for name in _AMOUNTS if old is None else ():
            request, limit = f"requests.{name}", f"limits.{name}"
            if request not in hard and name in ("cpu", "memory"):
                request = name
            if request in hard and limit in hard and Quantity.parse(hard[request]) > Quantity.parse(hard[limit]):
                texts = (f"ResourceQuota {request} ({hard[request]})", f"{limit} ({hard[limit]})")
                found.append(" should be less than ".join(texts))
        return found

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Remove the status of a new one."""
        value["status"] = {}

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Request, Limit, Age."""
        status = documents.child(value, "status")
        hard, used = documents.child(status, "hard"), documents.child(status, "used")
        requests: list[str] = []
        limits: list[str] = []
        for name in sorted(hard):
            (limits if name.startswith("limits.") else requests).append(f"{name}: {used.get(name, '0')}/{hard[name]}")
        return [value["metadata"]["name"], ", ".join(requests), ", ".join(limits), age(value, now)]
