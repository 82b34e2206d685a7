# SPDX-License-Identifier: Apache-2.0
"""What LimitRanges set in new pods, and which pods and claims they refuse. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from devcluster.apiserver.admission.review import Review
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from multikueue.core.quantity import Quantity

_Sums = dict[str, Quantity]
PODS: Final = "pods"
CLAIMS: Final = "persistentvolumeclaims"
_NOTE: Final = "kubernetes.io/limit-ranger"


def concern(review: Review) -> bool:
    """Whether a range may refuse such a write."""
    if review.kind.collection == CLAIMS:
        return review.operation in ("CREATE", "UPDATE") and not review.subresource
    created = review.operation == "CREATE" and not review.subresource
    return review.kind.collection == PODS and (created or review.subresource == "resize")


def limits_in(ranges: Iterable[JsonObject]) -> list[JsonObject]:
    """The limits of all ranges of a namespace."""
    return [limit for each in ranges for limit in documents.items(each, "spec", "limits")]


def set_defaults(pod: JsonObject, limits: Iterable[JsonObject]) -> None:
    """Set the requests and limits that containers do not have, in place, and note them in an annotation."""
    noted: list[str] = []
    for limit in limits:
        if limit.get("type") != "Container":
            continue
        for what, containers in (("container", "containers"), ("init container", "initContainers")):
            for container in documents.items(pod, "spec", containers):
                resources = container.setdefault("resources", {})
                for target, source in (("requests", "defaultRequest"), ("limits", "default")):
                    own, given = documents.child(resources, target), documents.child(limit, source)
                    names = sorted(given.keys() - own.keys())
                    if names:
                        resources[target] = {**given, **own}
                        noted.append(f"{', '.join(names)} {target[:-1]} for {what} {container['name']}")
    if noted:
        annotations = pod["metadata"].get("annotations") or {}
        pod["metadata"]["annotations"] = {**annotations, _NOTE: f"LimitRanger plugin set: {'; '.join(noted)}"}


def problems(value: JsonObject, collection: str, limits: Iterable[JsonObject]) -> list[str]:
    """Why a pod or a claim is refused, each in the words of a real server."""
    found: list[str] = []
    for limit in limits:
        match collection, limit.get("type"):
            case "pods", "Container":
                for container in _containers(value["spec"]):
                    resources = documents.child(container, "resources")
                    requests, most = documents.child(resources, "requests"), documents.child(resources, "limits")
                    found += _compared(limit, _parsed(requests), _parsed(most))
            case "pods", "Pod":
                found += _compared(limit, _of_pod(value["spec"], "requests"), _of_pod(value["spec"], "limits"))
            case "persistentvolumeclaims", "PersistentVolumeClaim":
                requests = _parsed(documents.child(value, "spec", "resources", "requests"))
                found += _compared(limit, requests, {}, limited=False)
    return found


def _containers(spec: JsonObject) -> Iterator[JsonObject]:
    yield from documents.items(spec, "initContainers")
    yield from documents.items(spec, "containers")


def _parsed(amounts: JsonObject) -> _Sums:
    return {name: Quantity.parse(amount) for name, amount in amounts.items()}


def _of_pod(spec: JsonObject, group: str) -> _Sums:
    """The amounts of a pod: its containers together, or one init container that has more."""
    total: _Sums = {}
    for container in documents.items(spec, "containers"):
        for name, amount in _parsed(documents.child(container, "resources", group)).items():
            total[name] = total[name] + amount if name in total else amount
    for container in documents.items(spec, "initContainers"):
        for name, amount in _parsed(documents.child(container, "resources", group)).items():
            if name not in total or amount > total[name]:
                total[name] = amount
    return total


def _compared(limit: JsonObject, requests: _Sums, limits: _Sums, *, limited: bool = True) -> Iterator[str]:
    """The problems of amounts; `limited` if a maximum is about limits, as that of claims is not."""
    kind = limit["type"]
    for name, least in _parsed(documents.child(limit, "min")).items():
        where = f"minimum {name} usage per {kind} is {least}"
        if name not in requests:
            yield f"{where}.  No request is specified"
        elif requests[name] < least:
            yield f"{where}, but request is {requests[name]}"
        elif name in limits and limits[name] < least:
            yield f"{where}, but limit is {limits[name]}"
    for name, most in _parsed(documents.child(limit, "max")).items():
        where = f"maximum {name} usage per {kind} is {most}"
        if limited and name not in limits:
            yield f"{where}.  No limit is specified"
        elif limited and limits[name] > most:
            yield f"{where}, but limit is {limits[name]}"
        elif name in requests and requests[name] > most:
            yield f"{where}, but request is {requests[name]}"
    for name, ratio in _parsed(documents.child(limit, "maxLimitRequestRatio")).items():
        yield from _ratio(name, ratio, kind=kind, requests=requests, limits=limits)


def _ratio(name: str, greatest: Quantity, *, kind: str, requests: _Sums, limits: _Sums) -> Iterator[str]:
    where = f"{name} max limit to request ratio per {kind} is {greatest}, but"
    zero = Quantity.of(0)
    if requests.get(name, zero) == zero:
        yield f"{where} no request is specified or request is 0"
    elif limits.get(name, zero) == zero:
        yield f"{where} no limit is specified or limit is 0"
    else:
        ratio = limits[name].milli_ceil() / requests[name].milli_ceil()
        if ratio > greatest.milli_ceil() / 1000:
            yield f"{where} provided ratio is {ratio:.6f}"
