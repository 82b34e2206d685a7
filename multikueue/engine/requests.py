# SPDX-License-Identifier: Apache-2.0
"""The requests of a workload (`docs/spec/engine.md §2.2` and §2.4).

Owns the way from pod templates to counted amounts: adjustment by runtime class and limit ranges, the pod's request,
exclusions, transformations, devices (§2.3), counting, and what a reservation uses. Equal pod sets share one result.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from multikueue.core.keys import Key
from multikueue.core.quantity import Quantity
from multikueue.engine import messages
from multikueue.engine.devices.claim_counter import ClaimCounter
from multikueue.engine.devices.claims import ClaimTemplate, DeviceClass
from multikueue.engine.pod_requests import Adjusted, adjust, as_created, out_of_range, over_limits, pod_request
from multikueue.engine.resources import FlavorResource, Requests, amount, clamp
from multikueue.engine.settings import QuotaCheck, Settings
from multikueue.engine.values import LimitRange, RuntimeClass
from multikueue.engine.workloads import PodSet, PodShape, Workload

_CACHE_LIMIT: Final = 20_000
_ZERO: Final = Quantity(0)


@dataclass(frozen=True, slots=True)
class PodSetRequests:
    """Totals over the pods of one pod set, and how many pods those are."""

    name: str
    count: int
    total: Requests


class RequestCounter:
    """Counts requests with one set of settings, runtime classes, limit ranges, device classes and claim templates."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._runtime_classes: dict[str, RuntimeClass] = {}
        self._limit_ranges: dict[str, dict[str, LimitRange]] = {}
        self._devices = ClaimCounter(settings)
        self._shapes: dict[tuple[str, str], tuple[PodShape, Requests]] = {}
        self._counted: dict[tuple[str, str, str, int], PodSetRequests] = {}

    def set_runtime_class(self, name: str, value: RuntimeClass | None) -> None:
        """Store a runtime class; None removes it."""
        if value is None:
            self._runtime_classes.pop(name, None)
        else:
            self._runtime_classes[name] = value
        self._forget()

    def set_limit_range(self, namespace: str, name: str, value: LimitRange | None) -> None:
        """Store a limit range; None removes it."""
        ranges = self._limit_ranges.setdefault(namespace, {})
        if value is None:
            ranges.pop(name, None)
        else:
            ranges[name] = value
        if not ranges:
            del self._limit_ranges[namespace]
        self._forget()

    def set_device_class(self, name: str, value: DeviceClass | None) -> bool:
        """Store a device class; None removes it. Returns whether requests may be others now."""
        changed = self._devices.set_class(name, value)
        if changed:
            self._forget()
        return changed

    @property
    def device_resources(self) -> Collection[str]:
        """The resources that classes of devices serve, as pods request them."""
        return self._devices.resources

    @property
    def claim_templates(self) -> Mapping[Key, ClaimTemplate]:
        """The templates of device claims that there are."""
        return self._devices.templates

    def set_claim_template(self, key: Key, value: ClaimTemplate | None) -> bool:
        """Store a claim template; None removes it. Returns whether it differs from the one before."""
        return self._devices.set_template(key, value)

    def limit_ranges(self, namespace: str) -> tuple[LimitRange, ...]:
        """The limit ranges of a namespace, by name."""
        ranges = self._limit_ranges.get(namespace, {})
        return tuple(ranges[name] for name in sorted(ranges))

    def adjusted(self, workload: Workload, pod_set: PodSet) -> Adjusted:
        """The pod of a pod set with runtime class and limit ranges applied."""
        return adjust(pod_set.shape, self._runtime_classes, self.limit_ranges(workload.key.namespace))

    def as_created(self, workload: Workload) -> Workload:
        """The workload with the pods that the API server would make of its templates now: those have to be placed."""
        if not self._runtime_classes and not self._limit_ranges:
            return workload
        ranges = self.limit_ranges(workload.key.namespace)
        shapes = [as_created(pod_set.shape, self._runtime_classes, ranges) for pod_set in workload.pod_sets]
        if all(shape is pod_set.shape for shape, pod_set in zip(shapes, workload.pod_sets, strict=True)):
            return workload
        pod_sets = (replace(each, shape=shape) for each, shape in zip(workload.pod_sets, shapes, strict=True))
        return replace(workload, pod_sets=tuple(pod_sets))

    def pending(self, workload: Workload) -> tuple[PodSetRequests, ...]:
        """The totals of a pending workload, without `pods`."""
        return tuple(self._pod_set(workload, pod_set) for pod_set in workload.pod_sets)

    def problem(self, workload: Workload) -> str:
        """Why a workload's requests are invalid, as shown to users; empty if they are valid."""
        ranges = self.limit_ranges(workload.key.namespace)
        problems: list[str] = []
        outside: list[str] = []
        for position, pod_set in enumerate(workload.pod_sets):
            shape = pod_set.shape
            if not ranges and not shape.pod_limits and not any(container.limits for container in shape.containers):
                continue
            adjusted = self.adjusted(workload, pod_set)
            path = f"spec.podSets[{position}].template.spec"
            problems.extend(over_limits(adjusted, path))
            outside.extend(out_of_range(adjusted, ranges, path))
        if problems:
            return messages.resources_invalid(problems)
        return messages.out_of_range(outside) if outside else ""

    def claims_problem(self, workload: Workload) -> str:
        """Why the devices that a workload claims cannot be counted, as shown to users; empty if they can."""
        for pod_set in workload.pod_sets:
            if pod_set.shape.claims:
                found = self._devices.problem(pod_set.name, pod_set.shape.claims, namespace=workload.key.namespace)
                if found:
                    return found
        return ""

    @property
    def counts_claims(self) -> bool:
        """Whether claims of devices count at all."""
        return self._devices.counts

    def holds_claims(self, workload: Workload) -> bool:
        """Whether what an admission holds is enough for the devices that its pods claim now (§2.3).

        Templates that are missing claim nothing. Resources that its queue has no quota of are not held where they are
        ignored.
        """
        specs = {pod_set.name: pod_set for pod_set in workload.pod_sets}
        for assigned in workload.admission.pod_sets if workload.admission is not None else ():
            spec = specs.get(assigned.name)
            if spec is None or not spec.shape.claims:
                continue
            if self._devices.has_uncounted(spec.shape.claims, namespace=workload.key.namespace):
                return False
            pods = spec.count if assigned.count is None else assigned.count
            total = _times(self._single(workload, spec), pods)
            for name in self._devices.mapped:
                ignored = self._ignores_undeclared and name not in assigned.flavors
                if not ignored and total.get(name, 0) > assigned.usage.get(name, 0):
                    return False
        return True

    @property
    def _ignores_undeclared(self) -> bool:
        return self._settings.quota_check is QuotaCheck.IGNORE_UNDECLARED

    def _pod_set(self, workload: Workload, pod_set: PodSet) -> PodSetRequests:
        count = effective_count(workload, pod_set, enabled=self._settings.gates.reclaimable_pods)
        namespace = workload.key.namespace if workload.key.namespace in self._limit_ranges else ""
        fingerprint = pod_set.shape.fingerprint
        if not fingerprint or pod_set.shape.claims:  # the templates of a namespace may change at any time
            return PodSetRequests(pod_set.name, count, _times(self._single(workload, pod_set), count))
        key = (namespace, fingerprint, pod_set.name, count)
        counted = self._counted.get(key)
        if counted is None:
            if len(self._counted) >= _CACHE_LIMIT:
                self._forget()
            shape_key = (namespace, fingerprint)
            single = self._shapes.get(shape_key)
            if single is None:
                single = self._shapes[shape_key] = (pod_set.shape, self._single(workload, pod_set))
            counted = self._counted[key] = PodSetRequests(pod_set.name, count, _times(single[1], count))
        return counted

    def _single(self, workload: Workload, pod_set: PodSet) -> Requests:
        requests: Mapping[str, Quantity] = pod_request(self.adjusted(workload, pod_set))
        prefixes = self._settings.exclude_resource_prefixes
        if prefixes:
            requests = {name: value for name, value in requests.items() if not name.startswith(prefixes)}
        if self._settings.transformations:
            requests = self._transformed(requests)
        claims = pod_set.shape.claims
        requests = self._devices.with_devices(requests, claims, namespace=workload.key.namespace)
        return {name: max(0, amount(name, value)) for name, value in requests.items()}

    def _transformed(self, requests: Mapping[str, Quantity]) -> dict[str, Quantity]:
        generated: dict[str, Quantity] = {}
        dropped = set()
        for rule in self._settings.transformations:
            base = requests.get(rule.input)
            if base is None:
                continue
            if rule.multiply_by in requests:
                base = base.times(requests[rule.multiply_by])
            for name, factor in rule.outputs.items():
                generated[name] = generated.get(name, _ZERO) + base.times(factor)
            if not rule.retain:
                dropped.add(rule.input)
        result = {name: value for name, value in requests.items() if name not in dropped}
        for name, value in generated.items():
            positive = value if value > _ZERO else _ZERO
            result[name] = result[name] + positive if name in result else positive
        return result

    def _forget(self) -> None:
        self._shapes.clear()
        self._counted.clear()


def effective_count(workload: Workload, pod_set: PodSet, *, enabled: bool = True) -> int:
    """How many pods of a pod set still need quota."""
    if not enabled or not workload.reclaimable:
        return pod_set.count
    return pod_set.count - min(workload.reclaimable.get(pod_set.name, 0), pod_set.count)


def scaled(requests: PodSetRequests, count: int) -> PodSetRequests:
    """The same pods with another count."""
    if count == requests.count or not requests.count:
        return PodSetRequests(requests.name, count, requests.total)
    total = {name: clamp(value // requests.count * count) for name, value in requests.total.items()}
    return PodSetRequests(requests.name, count, total)


def beyond(
    requests: Sequence[PodSetRequests], held: Workload, *, reclaimable: bool = True
) -> tuple[PodSetRequests, ...]:
    """The requests in addition to what `held` uses, pod set by pod set; 0 if they are less."""
    used = {counted.name: counted for counted in _reserved(held, reclaimable=reclaimable)}
    wanted = []
    for counted in requests:
        before = used.get(counted.name)
        if before is not None:
            total = {name: max(0, value - before.total.get(name, 0)) for name, value in counted.total.items()}
            counted = PodSetRequests(counted.name, max(0, counted.count - before.count), total)
        wanted.append(counted)
    return tuple(wanted)


def reserved_usage(workload: Workload, *, reclaimable: bool = True) -> dict[FlavorResource, int]:
    """The usage of a workload with an admission; resources without a flavor use no quota."""
    usage: dict[FlavorResource, int] = {}
    if workload.admission is None:
        return usage
    used = _reserved(workload, reclaimable=reclaimable)
    for assigned, counted in zip(workload.admission.pod_sets, used, strict=True):
        # A flavor without an amount still makes the workload a candidate for preemption.
        for resource, flavor in assigned.flavors.items():
            key = FlavorResource(flavor, resource)
            usage[key] = clamp(usage.get(key, 0) + counted.total.get(resource, 0))
    return usage


def _reserved(workload: Workload, *, reclaimable: bool) -> Iterator[PodSetRequests]:
    """The usage of each pod set of an admission, without pods that no longer need quota."""
    specs = {pod_set.name: pod_set for pod_set in workload.pod_sets}
    for assigned in workload.admission.pod_sets if workload.admission is not None else ():
        spec = specs.get(assigned.name)
        needed = effective_count(workload, spec, enabled=reclaimable) if spec is not None else None
        count = assigned.count if assigned.count is not None else (spec.count if spec is not None else 0)
        if needed is not None and count and needed < count:
            total = {resource: value // count * needed for resource, value in assigned.usage.items()}
            yield PodSetRequests(assigned.name, needed, total)
        else:
            yield PodSetRequests(assigned.name, count, assigned.usage)


def _times(requests: Requests, count: int) -> Requests:
    return {name: clamp(value * count) for name, value in requests.items()}
