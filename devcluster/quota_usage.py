# SPDX-License-Identifier: Apache-2.0
"""What an object counts for in ResourceQuotas, and whether the scopes of a quota select it. Pure.

Resources are named as in `count/…`: `pods`, `jobs.batch`. Amounts keep the format in which they were written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from multikueue.api.objects import JsonObject
from multikueue.core.quantity import Quantity
from multikueue.core.timestamps import parse_time

Amounts = dict[str, Quantity]

PODS: Final = "pods"
SERVICES: Final = "services"
CLAIMS: Final = "persistentvolumeclaims"
MEASURED: Final = (PODS, SERVICES, CLAIMS)
"""The resources whose objects count for more than their number."""
UNCOUNTED: Final = frozenset({"events", "events.events.k8s.io"})
"""The resources that no quota counts."""
COUNT: Final = "count/"

_ALIASES: Final = frozenset({"configmaps", "replicationcontrollers", "resourcequotas", "secrets"})
_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_REQUESTS: Final = "requests."
_LIMITS: Final = "limits."
_HUGE: Final = "hugepages-"
_OF_DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"
_NATIVE: Final = "kubernetes.io/"
_OF_PODS: Final = frozenset(
    {PODS, *_COMPUTE, *(_REQUESTS + name for name in _COMPUTE), *(_LIMITS + name for name in _COMPUTE)}
)
_SPECIFIED: Final = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})
"""What each container must specify if a quota has it."""
_NODE_PORTS: Final = "services.nodeports"
_LOAD_BALANCERS: Final = "services.loadbalancers"
_STORAGE: Final = "requests.storage"
_OF_CLASS: Final = ".storageclass.storage.k8s.io/"
_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
_QUALITY: Final = ("cpu", "memory")
_ONE: Final = Quantity.of(1)
_ZERO: Final = Quantity(0)


def tracked(resource: str, names: Iterable[str]) -> list[str]:
    """The names of a quota for which objects of the resource count, sorted."""
    return sorted(name for name in set(names) if _is_tracked(resource, name))


def counted_resource(name: str) -> str:
    """The resource whose number of objects the name of a quota means; empty if it means something else."""
    if name.startswith(COUNT):
        return name.removeprefix(COUNT)
    return name if name in _ALIASES or name in (SERVICES, CLAIMS) else ""


def has_scopes(spec: JsonObject) -> bool:
    """Whether a quota has scopes."""
    return bool(_terms(spec))


def selected(resource: str, value: JsonObject, spec: JsonObject) -> bool:
    """Whether the scopes of a quota select the object. Only pods and claims have scopes."""
    return all(_in_scope(resource, value, term) for term in _terms(spec))


def usage(resource: str, value: JsonObject, *, now: datetime) -> Amounts:
    """All that one object counts for."""
    if resource in UNCOUNTED:
        return {}
    found = {COUNT + resource: _ONE}
    if resource == PODS:
        if not _has_ended(value, now):
            found |= _of_pod(value)
    elif resource == SERVICES:
        found |= _of_service(value)
    elif resource == CLAIMS:
        found |= _of_claim(value)
    elif resource in _ALIASES:
        found[resource] = _ONE
    return found


def total(
    resource: str, values: Iterable[JsonObject], spec: JsonObject, *, names: Iterable[str], now: datetime
) -> Amounts:
    """What the objects that a quota selects count for, of each of the names."""
    found = dict.fromkeys(names, _ZERO)
    for value in values:
        if selected(resource, value, spec):
            for name, amount in usage(resource, value, now=now).items():
                if name in found:
                    found[name] = found[name] + amount
    return found


def increase(new: Amounts, old: Amounts) -> Amounts:
    """What an object counts for more than before."""
    found = {name: amount - old[name] if name in old else amount for name, amount in new.items()}
    return {name: amount for name, amount in found.items() if amount > _ZERO}


def unspecified(pod: JsonObject, names: Iterable[str]) -> str:
    """Which containers do not specify what the names of a quota require: `cpu for: a,b; …`; empty if all do."""
    spec = pod["spec"]
    if any(_is_of_whole_pod(name) for group in ("requests", "limits") for name in _written(spec, group)):
        return ""
    required = sorted(_SPECIFIED.intersection(names))
    missing: dict[str, set[str]] = {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        given = _counted_as(_written(container, "requests"), _written(container, "limits"))
        for name in required:
            if name not in given:
                missing.setdefault(name, set()).add(container["name"])
    return "; ".join(f"{name} for: {','.join(sorted(missing[name]))}" for name in required if name in missing)


def _is_tracked(resource: str, name: str) -> bool:
    if name.startswith(COUNT):
        return name == COUNT + resource and resource not in UNCOUNTED
    if resource == PODS:
        return (
            name in _OF_PODS
            or name.startswith((_HUGE, _REQUESTS + _HUGE, _REQUESTS + _OF_DEVICE_CLASS))
            or (name.startswith(_REQUESTS) and "/" in name and _NATIVE not in name)
        )
    if resource == SERVICES:
        return name in (SERVICES, _NODE_PORTS, _LOAD_BALANCERS)
    if resource == CLAIMS:
        return name in (CLAIMS, _STORAGE) or name.endswith((_OF_CLASS + CLAIMS, _OF_CLASS + _STORAGE))
    return name == resource and name in _ALIASES


def _terms(spec: JsonObject) -> list[JsonObject]:
    terms = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    return terms + ((spec.get("scopeSelector") or {}).get("matchExpressions") or [])


def _in_scope(resource: str, value: JsonObject, term: JsonObject) -> bool:
    scope, spec = term.get("scopeName"), value.get("spec") or {}
    if resource == CLAIMS:
        return scope == "VolumeAttributesClass" and _chosen(_attributes_classes(value), term)
    if resource != PODS:
        return False
    match scope:
        case "Terminating":
            return spec.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return spec.get("activeDeadlineSeconds") is None
        case "BestEffort":
            return _is_best_effort(value)
        case "NotBestEffort":
            return not _is_best_effort(value)
        case "PriorityClass":
            name = spec.get("priorityClassName")
            return _chosen({name} if name else set(), term)
        case "CrossNamespacePodAffinity":
            return any(
                _names_namespaces(spec.get("affinity") or {}, side) for side in ("podAffinity", "podAntiAffinity")
            )
    return False


def _chosen(names: set[str], term: JsonObject) -> bool:
    values = term.get("values") or ()
    match term.get("operator"):
        case "Exists":
            return bool(names)
        case "DoesNotExist":
            return not names
        case "In":
            return any(name in values for name in names)
        case "NotIn":
            return not names or any(name not in values for name in names)
    return False


def _attributes_classes(claim: JsonObject) -> set[str]:
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    target = (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName")
    return {
        name
        for name in (spec.get("volumeAttributesClassName"), status.get("currentVolumeAttributesClassName"), target)
        if name
    }


def _names_namespaces(affinity: JsonObject, side: str) -> bool:
    group = affinity.get(side) or {}
    terms = list(group.get("requiredDuringSchedulingIgnoredDuringExecution") or ())
    for entry in group.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
        terms.append(entry.get("podAffinityTerm") or {})
    return any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms)


def _is_best_effort(pod: JsonObject) -> bool:
    spec = pod["spec"]
    parts = [spec] if spec.get("resources") is not None else [*spec["containers"], *(spec.get("initContainers") or ())]
    return not any(
        _written(part, group).get(name, _ZERO) > _ZERO
        for part in parts
        for group in ("requests", "limits")
        for name in _QUALITY
    )


def _has_ended(pod: JsonObject, now: datetime) -> bool:
    """Whether it has ended or should have been deleted by now."""
    if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return True
    metadata = pod["metadata"]
    deleted, grace = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    return bool(deleted) and grace is not None and now > parse_time(deleted) + timedelta(seconds=grace)


def _of_pod(pod: JsonObject) -> Amounts:
    return {PODS: _ONE, **_counted_as(_resources(pod, "requests"), _resources(pod, "limits"))}


def _counted_as(requests: Amounts, limits: Amounts) -> Amounts:
    found = {_LIMITS + name: amount for name, amount in limits.items() if name in _COMPUTE}
    for name, amount in requests.items():
        if name in _COMPUTE or name.startswith(_HUGE):
            found[name] = found[_REQUESTS + name] = amount
        elif _is_extended(name):
            found[_REQUESTS + name] = amount
    return found


def _is_extended(name: str) -> bool:
    if name.startswith(_OF_DEVICE_CLASS):
        return True
    return "/" in name and _NATIVE not in name and not name.startswith(_REQUESTS)


def _is_of_whole_pod(name: str) -> bool:
    """Whether the resource may be in the `resources` of a pod, beside those of its containers."""
    return name in ("cpu", "memory") or name.startswith(_HUGE)


def _resources(pod: JsonObject, group: str) -> Amounts:
    """The requests or limits of the pod.

    Containers run at the same time. Init containers run one after the other, with the sidecars started before them.
    """
    spec, status = pod["spec"], pod.get("status") or {}
    actual = {
        entry["name"]: entry
        for field in ("containerStatuses", "initContainerStatuses")
        for entry in status.get(field) or ()
    }
    refused = _resize_is_infeasible(status)
    found: Amounts = {}
    for container in spec.get("containers") or ():
        _add(found, _effective(container, actual.get(container["name"]), group, infeasible=refused))
    sidecars: Amounts = {}
    start: Amounts = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            amounts = _effective(container, actual.get(container["name"]), group, infeasible=refused)
            _add(found, amounts)
            _add(sidecars, amounts)
            _raise(start, sidecars)
        else:
            amounts = _written(container, group)
            _add(amounts, sidecars)
            _raise(start, amounts)
    _raise(found, start)
    found |= {name: amount for name, amount in _written(spec, group).items() if _is_of_whole_pod(name)}
    overhead = _parsed(spec.get("overhead"))
    if group == "limits":
        overhead = {name: amount for name, amount in overhead.items() if found.get(name)}
    _add(found, overhead)
    return found


def _effective(container: JsonObject, status: JsonObject | None, group: str, *, infeasible: bool) -> Amounts:
    """What a container has or gets: while it is resized, the greater amount."""
    wanted = _written(container, group)
    if not status or status.get("resources") is None:
        return wanted
    found = {} if infeasible else wanted
    _raise(found, _written(status, group))
    if group == "requests":
        _raise(found, _parsed(status.get("allocatedResources")))
    return found


def _resize_is_infeasible(status: JsonObject) -> bool:
    pending = [entry for entry in status.get("conditions") or () if entry.get("type") == "PodResizePending"]
    return bool(pending) and pending[0].get("reason") == "Infeasible"


def _of_service(service: JsonObject) -> Amounts:
    spec = service.get("spec") or {}
    ports = spec.get("ports") or []
    balanced = spec.get("type") == "LoadBalancer"
    if balanced and spec.get("allocateLoadBalancerNodePorts") is False:
        ports = [port for port in ports if port.get("nodePort")]
    elif not balanced and spec.get("type") != "NodePort":
        ports = []
    return {SERVICES: _ONE, _NODE_PORTS: Quantity.of(len(ports)), _LOAD_BALANCERS: Quantity.of(int(balanced))}


def _of_claim(claim: JsonObject) -> Amounts:
    spec = claim.get("spec") or {}
    annotated = (claim["metadata"].get("annotations") or {}).get(_CLASS_ANNOTATION)
    name = spec.get("storageClassName") if annotated is None else annotated
    found = {CLAIMS: _ONE}
    storage = _written(spec, "requests").get("storage")
    if storage is not None:
        allocated = _parsed((claim.get("status") or {}).get("allocatedResources")).get("storage", _ZERO)
        found[_STORAGE] = _whole(max(storage, allocated))
    if name:
        found |= {name + _OF_CLASS + each: amount for each, amount in found.items()}
    return found


def _whole(amount: Quantity) -> Quantity:
    rounded = Quantity.of(amount.ceil(), amount.format)
    return amount if rounded == amount else rounded


def _written(part: JsonObject, group: str) -> Amounts:
    """The requests or limits in the `resources` of a pod, a container, its status, or a claim."""
    return _parsed((part.get("resources") or {}).get(group))


def _parsed(amounts: Mapping[str, str] | None) -> Amounts:
    return {name: Quantity.parse(text) for name, text in (amounts or {}).items()}


def _add(found: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        found[name] = found[name] + amount if name in found else amount


def _raise(found: Amounts, least: Amounts) -> None:
    for name, amount in least.items():
        if name not in found or amount > found[name]:
            found[name] = amount
