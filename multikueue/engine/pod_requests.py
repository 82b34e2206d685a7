# SPDX-License-Identifier: Apache-2.0
"""The request of one pod, computed as by Kubernetes (`docs/spec/engine.md §2.2` points 1 and 2).

Owns adjustment by runtime class and limit range defaults, the sum over containers, sidecars, init containers and
overhead, pod-level resources, and the two checks of §3.2 of requests against limits and limit ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from multikueue.core.quantity import Quantity
from multikueue.engine.values import LimitRange, RuntimeClass
from multikueue.engine.workloads import ContainerRequests, PodShape, Quantities


class Adjusted(NamedTuple):
    """A pod with the defaults that admission to its namespace would set."""

    containers: tuple[ContainerRequests, ...]
    overhead: Quantities
    pod_requests: Quantities | None
    pod_limits: Quantities | None


class Summary(NamedTuple):
    """Several limit ranges of one namespace combined, for one type."""

    default: dict[str, Quantity]
    default_request: dict[str, Quantity]
    max: dict[str, Quantity]
    min: dict[str, Quantity]


def summarize(ranges: Iterable[LimitRange], kind: str) -> Summary:
    """The first default, the least maximum, the greatest minimum."""
    summary = Summary({}, {}, {}, {})
    for item in (item for one in ranges for item in one.items if item.type == kind):
        for name, value in item.default.items():
            summary.default.setdefault(name, value)
        for name, value in item.default_request.items():
            summary.default_request.setdefault(name, value)
        for name, value in item.max.items():
            summary.max[name] = min(value, summary.max.get(name, value))
        for name, value in item.min.items():
            summary.min[name] = max(value, summary.min.get(name, value))
    return summary


def adjust(shape: PodShape, classes: Mapping[str, RuntimeClass], ranges: tuple[LimitRange, ...]) -> Adjusted:
    """Apply runtime class, limit range defaults, and limits as requests, in this order."""
    overhead = shape.overhead
    if shape.runtime_class and not shape.has_overhead and shape.runtime_class in classes:
        overhead = classes[shape.runtime_class].overhead
    containers = shape.containers
    pod_requests, pod_limits = shape.pod_requests, shape.pod_limits
    if ranges:
        defaults = summarize(ranges, "Container")
        containers = tuple(_defaulted(container, defaults) for container in containers)
        if pod_requests is not None or pod_limits is not None:
            pod = summarize(ranges, "Pod")
            pod_limits = {**pod.default, **(pod_limits or {})}
            pod_requests = {**pod.default_request, **(pod_requests or {})}
    containers = tuple(
        container
        if not container.limits
        else _with(container, {**container.limits, **container.requests}, container.limits)
        for container in containers
    )
    if pod_limits:
        pod_requests = {**pod_limits, **(pod_requests or {})}
    return Adjusted(containers, overhead, pod_requests, pod_limits)


def as_created(shape: PodShape, classes: Mapping[str, RuntimeClass], ranges: tuple[LimitRange, ...]) -> PodShape:
    """The shape of the pods that the API server makes of a template; the same object if it adds nothing."""
    has_class = shape.runtime_class and not shape.has_overhead and shape.runtime_class in classes
    if not ranges and not has_class:
        return shape
    pod = adjust(shape, classes, ranges)
    return replace(
        shape,
        containers=pod.containers,
        overhead=pod.overhead,
        pod_requests=pod.pod_requests,
        pod_limits=pod.pod_limits,
    )


def pod_request(pod: Adjusted) -> dict[str, Quantity]:
    """The request that the Kubernetes scheduler would use."""
    main: dict[str, Quantity] = {}
    for container in pod.containers:
        if not container.init:
            _add(main, container.requests)
    sidecars: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in pod.containers:
        if not container.init:
            continue
        if container.sidecar:
            _add(main, container.requests)
            _add(sidecars, container.requests)
            _max(peak, sidecars)
        else:
            # An init container runs beside the sidecars that were started before it.
            during = dict(sidecars)
            _add(during, container.requests)
            _max(peak, during)
    _max(main, peak)
    if pod.pod_requests:
        # Valid pods request no less than their containers. A template of another kind is not validated, and a server
        # without pod-level resources drops them.
        _max(main, pod.pod_requests)
    _add(main, pod.overhead)
    return main


def over_limits(pod: Adjusted, path: str) -> list[str]:
    """Messages for containers, or the pod itself, that request more than their own limit."""
    found: list[str] = []
    for where, container in _with_paths(pod.containers, path):
        _note(found, where, _above(container.requests, container.limits), "requests must not exceed its limits")
    if pod.pod_requests and pod.pod_limits:
        _note(found, path, _above(pod.pod_requests, pod.pod_limits), "requests must not exceed its limits")
    return found


def out_of_range(pod: Adjusted, ranges: tuple[LimitRange, ...], path: str) -> list[str]:
    """Messages for containers, or the pod itself, that violate a limit range."""
    if not ranges:
        return []
    found: list[str] = []
    limits = summarize(ranges, "Container")
    for where, container in _with_paths(pod.containers, path):
        most, least = dict(container.requests), dict(container.requests)
        for name, value in container.limits.items():
            most[name] = max(value, most.get(name, value))
            least[name] = min(value, least.get(name, value))
        _note(found, where, _above(most, limits.max), "requests must not be above the limitRange max")
        _note(found, where, _above(limits.min, least), "requests must not be below the limitRange min")
    limits = summarize(ranges, "Pod")
    total = pod_request(pod)
    _note(found, path, _above(total, limits.max), "requests must not be above the limitRange max")
    _note(found, path, _above(limits.min, total), "requests must not be below the limitRange min")
    return found


def _with_paths(containers: Iterable[ContainerRequests], path: str) -> Iterator[tuple[str, ContainerRequests]]:
    counts = {True: 0, False: 0}
    for container in containers:
        kind = "initContainers" if container.init else "containers"
        yield f"{path}.{kind}[{counts[container.init]}]", container
        counts[container.init] += 1


def _above(left: Quantities, right: Quantities) -> list[str]:
    return sorted(name for name, value in left.items() if name in right and value > right[name])


def _note(found: list[str], where: str, names: list[str], problem: str) -> None:
    if names:
        quoted = ",".join(f'"{name}"' for name in names)
        found.append(f"{where}: Invalid value: [{quoted}]: {problem}")


def _defaulted(container: ContainerRequests, defaults: Summary) -> ContainerRequests:
    return _with(
        container, {**defaults.default_request, **container.requests}, {**defaults.default, **container.limits}
    )


def _with(container: ContainerRequests, requests: Quantities, limits: Quantities) -> ContainerRequests:
    return ContainerRequests(
        name=container.name, requests=requests, limits=limits, init=container.init, sidecar=container.sidecar
    )


def _add(total: dict[str, Quantity], more: Quantities) -> None:
    for name, value in more.items():
        total[name] = total[name] + value if name in total else value


def _max(total: dict[str, Quantity], other: Quantities) -> None:
    for name, value in other.items():
        if name not in total or value > total[name]:
            total[name] = value
