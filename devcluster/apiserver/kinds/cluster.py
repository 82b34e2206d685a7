# SPDX-License-Identifier: Apache-2.0
"""Namespaces, nodes and runtime classes."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds import quantities
from devcluster.apiserver.kinds.behaviour import KindBehaviour, RequestContext, age
from devcluster.apiserver.schema.values import quoted

_NAME_LABEL: Final = "kubernetes.io/metadata.name"
_FINALIZER: Final = "kubernetes"
_ROLE: Final = "node-role.kubernetes.io/"


class NamespaceBehaviour(KindBehaviour):
    """Namespaces."""

    has_status = True

    def default(self, value: JsonObject) -> None:
        """Set the label with the name."""
        name = value["metadata"].get("name")
        if name:
            labels = value["metadata"].setdefault("labels", {})
            if labels is None:
                labels = value["metadata"]["labels"] = {}
            labels[_NAME_LABEL] = name

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Set the finalizer that keeps it until it is empty."""
        self.default(value)
        value["status"] = {"phase": "Active"}
        finalizers = value.setdefault("spec", {}).setdefault("finalizers", [])
        if _FINALIZER not in finalizers:
            finalizers.append(_FINALIZER)

    def prepare_update(self, value: JsonObject, old: JsonObject, request_context: RequestContext) -> None:
        """Keep its finalizers; only `finalize` changes them."""
        super().prepare_update(value, old, request_context)
        if request_context.subresource != "finalize":
            value["spec"] = old.get("spec", {})

    def fields(self, value: JsonObject) -> dict[str, str]:
        """The fields that selectors can use."""
        return {"status.phase": documents.child(value, "status").get("phase", ""), "name": value["metadata"]["name"]}

    @property
    def selectable(self) -> tuple[str, ...]:
        """The names of `fields`."""
        return ("status.phase", "name")

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Status, Age."""
        return [value["metadata"]["name"], documents.child(value, "status").get("phase", ""), age(value, now)]


_EFFECTS: Final = ["NoSchedule", "PreferNoSchedule", "NoExecute"]


def _amount_problems(amounts: JsonObject, path: str) -> list[StatusCause]:
    return [
        field_errors.invalid(f"{path}.{name}", str(amount), "must be greater than or equal to 0")
        for name, amount in sorted(amounts.items())
        if str(amount).startswith("-")
    ]


def _pod_ranges(spec: JsonObject) -> list[JsonValue]:
    """The ranges of a node's pods; the older field wins if the first of the list is another."""
    first, ranges = spec.get("podCIDR"), spec.get("podCIDRs") or []
    return [first] if first and ranges[:1] != [first] else list(ranges)


class NodeBehaviour(KindBehaviour):
    """Nodes."""

    has_status = True

    def default(self, value: JsonObject) -> None:
        """The allocatable resources default to the capacity, the ranges of pods to the first of them."""
        status, spec = documents.child(value, "status"), documents.child(value, "spec")
        if status.get("capacity") and not status.get("allocatable"):
            status["allocatable"] = dict(status["capacity"])
        quantities.settle_amounts(status, "capacity", "allocatable")
        if spec.get("podCIDR") and not spec.get("podCIDRs"):
            spec["podCIDRs"] = [spec["podCIDR"]]

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Taint a new node as not ready."""
        spec = value.setdefault("spec", {})
        if isinstance(spec, dict) and not any(
            taint.get("key") == "node.kubernetes.io/not-ready" for taint in documents.items(spec, "taints")
        ):
            taints = spec.get("taints") or []
            spec["taints"] = [*taints, {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]

    def prepare_update(self, value: JsonObject, old: JsonObject, request_context: RequestContext) -> None:
        """Keep the status, or with a write of the status the rest."""
        if request_context.subresource == "status":
            value["spec"] = old.get("spec", {})
        else:
            value["status"] = old.get("status", {})

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        spec = documents.child(value, "spec")
        found = []
        seen: set[tuple[str, str]] = set()
        for index, taint in enumerate(documents.items(spec, "taints")):
            key, effect, where = taint.get("key", ""), taint.get("effect", ""), f"metadata.taints[{index}]"
            if effect not in _EFFECTS:
                found.append(field_errors.not_supported(f"{where}.effect", effect, _EFFECTS))
            if (key, effect) in seen:
                shown = {"Key": key, "Value": taint.get("value", ""), "Effect": effect}
                shown["TimeAdded"] = taint.get("timeAdded")
                text = f"Duplicate value: {quoted(shown)}: taints must be unique by key and effect pair"
                found.append(StatusCause("FieldValueDuplicate", text, where))
            seen.add((key, effect))
        if old is not None:
            ranges = _pod_ranges(documents.child(old, "spec"))
            if ranges and ranges != _pod_ranges(spec):
                text = 'node updates may not change podCIDR except from "" to valid'
                found.append(field_errors.forbidden("spec.podCIDRs", text))
            known = documents.child(old, "spec").get("providerID")
            if known and known != spec.get("providerID"):
                text = 'node updates may not change providerID except from "" to valid'
                found.append(field_errors.forbidden("spec.providerID", text))
        for field in ("capacity", "allocatable"):
            found += _amount_problems(documents.child(value, "status", field), f"status.{field}")
        return found

    def fields(self, value: JsonObject) -> dict[str, str]:
        """The fields that selectors can use."""
        return {"spec.unschedulable": "true" if documents.child(value, "spec").get("unschedulable") else "false"}

    @property
    def selectable(self) -> tuple[str, ...]:
        """The names of `fields`."""
        return ("spec.unschedulable",)

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Status, Roles, Age, Version, Internal-IP, External-IP, OS, Kernel, Runtime."""
        status = documents.child(value, "status")
        info = documents.child(status, "nodeInfo")
        ready = "Unknown"
        for condition in documents.items(status, "conditions"):
            if condition.get("type") == "Ready":
                ready = "Ready" if condition.get("status") == "True" else "NotReady"
        if documents.child(value, "spec").get("unschedulable"):
            ready += ",SchedulingDisabled"
        labels = documents.strings(value["metadata"].get("labels"))
        roles = sorted(label.removeprefix(_ROLE) for label in labels if label.startswith(_ROLE) and label != _ROLE)
        addresses = {entry.get("type"): entry.get("address") for entry in documents.items(status, "addresses")}
        return [
            value["metadata"]["name"],
            ready,
            ",".join(roles) or "<none>",
            age(value, now),
            info.get("kubeletVersion", ""),
            addresses.get("InternalIP") or "<none>",
            addresses.get("ExternalIP") or "<none>",
            info.get("osImage") or "<unknown>",
            _kernel(info),
            info.get("containerRuntimeVersion") or "<unknown>",
        ]


def _kernel(info: JsonObject) -> str:
    found, architecture = info.get("kernelVersion") or "<unknown>", info.get("architecture")
    return f"{found} ({architecture})" if architecture else found


class RuntimeClassBehaviour(KindBehaviour):
    """Runtime classes."""

    def default(self, value: JsonObject) -> None:
        """Write amounts in their canonical form."""
        quantities.settle_amounts(documents.child(value, "overhead"), "podFixed")
