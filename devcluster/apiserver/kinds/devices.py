# SPDX-License-Identifier: Apache-2.0
"""Devices that pods claim: classes, claims and their templates, slices of drivers."""

from __future__ import annotations

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.kinds import quantities
from devcluster.apiserver.kinds.behaviour import KindBehaviour


class DeviceClassBehaviour(KindBehaviour):
    """Device classes."""

    generation = True


class DeviceClaimBehaviour(KindBehaviour):
    """Resource claims; they have no generation."""

    has_status = True

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        _default_claim(documents.child(value, "spec"))


class DeviceTemplateBehaviour(KindBehaviour):
    """Templates of resource claims."""

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        _default_claim(documents.child(value, "spec", "spec"))


def _default_claim(spec: JsonObject) -> None:
    """Set the defaults of a claim's spec."""
    for request in documents.items(spec, "devices", "requests"):
        exactly = request.get("exactly")
        for wanted in (*([exactly] if isinstance(exactly, dict) else ()), *documents.items(request, "firstAvailable")):
            wanted.setdefault("allocationMode", "ExactCount")
            if wanted["allocationMode"] == "ExactCount":
                wanted["count"] = wanted.get("count") or 1
            for toleration in documents.items(wanted, "tolerations"):
                toleration.setdefault("operator", "Equal")
            quantities.settle_amounts(documents.child(wanted, "capacity"), "requests")


class DeviceSliceBehaviour(KindBehaviour):
    """Slices of the devices of a driver."""

    generation = True

    def default(self, value: JsonObject) -> None:
        """Write amounts in their canonical form."""
        for device in documents.items(value, "spec", "devices"):
            _settle_counters(documents.child(device, "capacity"))
            for consumed in documents.items(device, "consumesCounters"):
                _settle_counters(documents.child(consumed, "counters"))
        for shared in documents.items(value, "spec", "sharedCounters"):
            _settle_counters(documents.child(shared, "counters"))


def _settle_counters(counters: JsonObject) -> None:
    """Make the values of named counters canonical, in place."""
    for counter in counters.values():
        if isinstance(counter, dict):
            quantities.settle_fields(counter, "value")
