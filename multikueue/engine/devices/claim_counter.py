# SPDX-License-Identifier: Apache-2.0
"""Counts the devices of pods as resources of the quota (`docs/spec/engine.md §2.3`).

A claim that cannot be counted would bypass the quota, so its workload is not admitted. Only templates are counted: a
claim that exists may be shared by any number of pods, and its devices are allocated once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from multikueue.core.keys import Key
from multikueue.core.quantity import Quantity
from multikueue.engine import messages
from multikueue.engine.devices.claims import (
    CLASS_RESOURCES,
    ClaimTemplate,
    DeviceClass,
    DeviceMapping,
    DeviceRequest,
    PodClaim,
)
from multikueue.engine.settings import Settings

_ZERO: Final = Quantity(0)
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


class ClaimCounter:
    """Counts with one set of mappings, device classes and claim templates."""

    def __init__(self, settings: Settings) -> None:
        self._gates = settings.gates
        self._mappings: dict[str, DeviceMapping] = {}
        for mapping in settings.device_mappings:
            for name in mapping.classes:
                self._mappings.setdefault(name, mapping)
        self._classes: dict[str, DeviceClass] = {}
        self._of_resource: dict[str, str] = {}
        self.templates: dict[Key, ClaimTemplate] = {}

    def set_class(self, name: str, value: DeviceClass | None) -> bool:
        """Store a device class; None removes it. Returns whether another class backs a resource now."""
        if value is None:
            self._classes.pop(name, None)
        else:
            self._classes[name] = value
        # The newest class of a resource backs it, and of equally new ones the first by name.
        ordered = sorted(self._classes.values(), key=lambda each: each.name, reverse=True)
        ordered.sort(key=lambda each: each.created or _NEVER)
        before = self._of_resource
        self._of_resource = {each.extended_resource: each.name for each in ordered if each.extended_resource}
        return self._of_resource != before

    @property
    def resources(self) -> Collection[str]:
        """The resources that classes of devices serve, as pods request them."""
        return self._of_resource.keys()

    def set_template(self, key: Key, value: ClaimTemplate | None) -> bool:
        """Store a claim template; None removes it. Returns whether it differs from the one before."""
        if self.templates.get(key) == value:
            return False
        if value is None:
            del self.templates[key]
        else:
            self.templates[key] = value
        return True

    @property
    def mapped(self) -> frozenset[str]:
        """The resources that devices count as."""
        return frozenset(mapping.resource for mapping in self._mappings.values())

    @property
    def counts(self) -> bool:
        """Whether claims count at all."""
        return self._gates.devices and bool(self._mappings)

    def with_devices(
        self, requests: Mapping[str, Quantity], claims: Iterable[PodClaim], *, namespace: str
    ) -> Mapping[str, Quantity]:
        """The requests of a pod with its devices; what cannot be counted is left out, as `problem` says."""
        if not self.counts:
            return requests
        counted = self._without_extended_resources(requests) if self._gates.extended_devices else dict(requests)
        for claim in claims:
            template = self.templates.get(Key(namespace, claim.template)) if claim.template else None
            for name, count in template.devices().items() if template is not None else ():
                mapping = self._mappings.get(name)
                if mapping is not None and not mapping.sources:
                    _add(counted, mapping.resource, Quantity.of(count))
        return counted

    def problem(self, pod_set: str, claims: tuple[PodClaim, ...], *, namespace: str) -> str:
        """Why the claims of a pod set cannot be counted; empty if they can, or if nothing counts them."""
        if not claims:
            return ""
        if not self._gates.devices:
            return messages.devices_off(pod_set) if self._gates.rejects_devices else ""
        if not self._mappings:
            return messages.devices_unmapped(pod_set)
        for claim in claims:
            found = self._problem_of_claim(claim, namespace)
            if found:
                return messages.claim_problem(pod_set, claim.name, found)
        return ""

    def has_uncounted(self, claims: Iterable[PodClaim], *, namespace: str) -> bool:
        """Whether templates of these claims that exist request what cannot be counted."""
        templates = (self.templates.get(Key(namespace, claim.template)) for claim in claims if claim.template)
        return any(
            self._problem_of(request) for template in templates if template is not None for request in template.requests
        )

    def _problem_of_claim(self, claim: PodClaim, namespace: str) -> str:
        if not claim.of_pod:
            return messages.CLAIM_OF_CONTAINER_ONLY
        if not claim.template:
            return messages.claim_shared(claim.claim) if claim.claim else messages.CLAIM_OF_NOTHING
        template = self.templates.get(Key(namespace, claim.template))
        if template is None:
            return messages.claim_template_missing(claim.template)
        for request in template.requests:
            found = self._problem_of(request)
            if found:
                return messages.device_request_problem(claim.template, request.name, found)
        return ""

    def _problem_of(self, request: DeviceRequest) -> str:
        if request.problem or request.free:
            return request.problem
        mapping = self._mappings.get(request.device_class)
        if mapping is None:
            return messages.device_class_unmapped(request.device_class)
        return messages.device_sources_unsupported(mapping.resource) if mapping.sources else ""

    def _without_extended_resources(self, requests: Mapping[str, Quantity]) -> dict[str, Quantity]:
        """Resources that a mapped class backs, as the resource of its mapping; all others as they are."""
        counted: dict[str, Quantity] = {}
        for name, quantity in requests.items():
            named = name.removeprefix(CLASS_RESOURCES)
            mapping = self._mappings.get(named if named != name else self._of_resource.get(name, ""))
            _add(counted, name if mapping is None or mapping.sources else mapping.resource, quantity)
        return counted


def _add(total: dict[str, Quantity], name: str, quantity: Quantity) -> None:
    total[name] = total.get(name, _ZERO) + quantity
