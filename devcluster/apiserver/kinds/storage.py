# SPDX-License-Identifier: Apache-2.0
"""Kinds of storage: claims, volumes, their classes and attachments, drivers and capacities."""

from __future__ import annotations

from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds import quantities, selector_rules, volume_changes, volumes
from devcluster.apiserver.kinds.behaviour import KindBehaviour, RequestContext

_TOKENS: Final = (
    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible "
    "logging of tokens in volume attributes"
)


def _protect(value: JsonObject, finalizer: str) -> None:
    """Add the finalizer that keeps an object while it is used."""
    given = value["metadata"].get("finalizers") or []
    if finalizer not in given:
        value["metadata"]["finalizers"] = [*given, finalizer]


class ClaimBehaviour(KindBehaviour):
    """Persistent volume claims; they have no generation."""

    has_status = True

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        spec, status = value.setdefault("spec", {}), value.setdefault("status", {})
        volumes.default_claim(spec)
        status.setdefault("phase", "Pending")
        quantities.settle_amounts(status, "capacity", "allocatedResources")

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Set the status of a new one, and the finalizer that keeps it while a pod uses it."""
        value["status"] = {"phase": "Pending"}
        volumes.join_sources(value["spec"])
        _protect(value, "kubernetes.io/pvc-protection")

    def prepare_update(self, value: JsonObject, old: JsonObject, request_context: RequestContext) -> None:
        """Keep what this write may not change."""
        super().prepare_update(value, old, request_context)
        volumes.join_sources(value["spec"])

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """What is wrong with the selector of a new one, and what may not change."""
        if old is None:
            return selector_rules.problems(documents.child(value, "spec").get("selector"), "spec.selector")
        return [] if request_context.subresource else volume_changes.claim_problems(value, old)


class VolumeBehaviour(KindBehaviour):
    """Persistent volumes; they have no generation."""

    has_status = True

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        spec, status = value.setdefault("spec", {}), value.setdefault("status", {})
        spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
        spec.setdefault("volumeMode", "Filesystem")
        volumes.default_source(spec)
        quantities.settle_amounts(spec, "capacity")
        status.setdefault("phase", "Pending")

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Set the status of a new one, and the finalizer that keeps it while it is bound."""
        value["status"] = {"phase": "Pending", "lastPhaseTransitionTime": request_context.now}
        _protect(value, "kubernetes.io/pv-protection")

    def prepare_update(self, value: JsonObject, old: JsonObject, request_context: RequestContext) -> None:
        """Keep what this write may not change; another phase has a new time."""
        super().prepare_update(value, old, request_context)
        status, before = documents.child(value, "status"), documents.child(old, "status")
        since = before.get("lastPhaseTransitionTime")
        if status.get("phase") != before.get("phase") and status.get("lastPhaseTransitionTime") in (None, since):
            status["lastPhaseTransitionTime"] = request_context.now

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """What may not change."""
        return [] if old is None or request_context.subresource else volume_changes.volume_problems(value, old)


class StorageClassBehaviour(KindBehaviour):
    """Storage classes."""

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        value.setdefault("reclaimPolicy", "Delete")
        value.setdefault("volumeBindingMode", "Immediate")


class AttributesClassBehaviour(KindBehaviour):
    """Volume attributes classes."""

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Set the finalizer that keeps it while a volume uses it."""
        _protect(value, "kubernetes.io/vac-protection")


class AttachmentBehaviour(KindBehaviour):
    """Volume attachments; they have no generation."""

    has_status = True

    def default(self, value: JsonObject) -> None:
        """Set the defaults of a volume that it has in itself."""
        inline = documents.child(value, "spec", "source").get("inlineVolumeSpec")
        if isinstance(inline, dict):
            volumes.default_source(inline)


class CapacityBehaviour(KindBehaviour):
    """Storage capacities of drivers."""

    def default(self, value: JsonObject) -> None:
        """Write amounts in their canonical form."""
        quantities.settle_fields(value, "capacity", "maximumVolumeSize")


class DriverNodeBehaviour(KindBehaviour):
    """The drivers that nodes have."""

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """Only the number of volumes of a driver may change, while it is there."""
        known = {driver.get("name"): _fixed(driver) for driver in documents.items(old or {}, "spec", "drivers")}
        return [
            field_errors.immutable("spec.drivers", driver)
            for driver in documents.items(value, "spec", "drivers")
            if known.get(driver.get("name"), _fixed(driver)) != _fixed(driver)
        ]


def _fixed(driver: JsonObject) -> tuple[JsonValue, JsonValue]:
    return driver.get("nodeID"), driver.get("topologyKeys") or []


_DRIVER: Final[JsonObject] = {
    "attachRequired": True,
    "podInfoOnMount": False,
    "storageCapacity": False,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "requiresRepublish": False,
    "seLinuxMount": False,
}


class DriverBehaviour(KindBehaviour):
    """CSI drivers; a new one has no generation, a changed one has."""

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        spec = value.setdefault("spec", {})
        for name, default in _DRIVER.items():
            spec.setdefault(name, default)
        if not spec.get("volumeLifecycleModes"):
            spec["volumeLifecycleModes"] = ["Persistent"]

    def prepare_update(self, value: JsonObject, old: JsonObject, request_context: RequestContext) -> None:
        """Count the changes of its spec."""
        if self.spec_changed(value, old):
            value["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def warnings(self, value: JsonObject, old: JsonObject | None) -> list[str]:
        """In a new one, tokens in volume attributes are not recommended."""
        spec = documents.child(value, "spec")
        is_unset = spec.get("tokenRequests") and spec.get("serviceAccountTokenInSecrets") is None
        return [_TOKENS] if old is None and is_unset else []
