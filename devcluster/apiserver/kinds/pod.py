# SPDX-License-Identifier: Apache-2.0
"""Pods: defaults, what an update or a resize may change, quality of service, table cells and graceful deletion.

What needs other objects (service account, priority class) is done by admission. A write of the subresource `resize`
changes the CPU and memory of containers and nothing else. A real kubelet then changes the containers; a virtual one has
none, so that the new amounts apply at once.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents, times
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds import ephemeral_containers, pod_spec
from devcluster.apiserver.kinds.behaviour import KindBehaviour, RequestContext, age
from multikueue.core.quantity import Quantity, QuantityError

_MUTABLE: Final = frozenset({"activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"})
_COUNTED: Final = ("cpu", "memory")
_GROUPS: Final = ("containers", "initContainers")
_RESIZABLE: Final = frozenset({"cpu", "memory"})
_AMOUNTS: Final = ("requests", "limits")


class PodBehaviour(KindBehaviour):
    """Pods."""

    has_status = True
    generation = True

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        spec = value.setdefault("spec", {})
        pod_spec.default_spec(spec)
        pod_spec.limits_as_requests(spec)
        spec.setdefault("enableServiceLinks", True)

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Set the status of a new pod: pending, and gated if it has scheduling gates."""
        value["metadata"]["generation"] = 1
        status: JsonObject = {"phase": "Pending", "qosClass": quality(value["spec"])}
        if value["spec"].get("schedulingGates"):
            status["conditions"] = [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "lastProbeTime": None,
                    "lastTransitionTime": request_context.now,
                    "reason": "SchedulingGated",
                    "message": "Scheduling is blocked due to non-empty scheduling gates",
                }
            ]
        value["status"] = status

    def prepare_update(self, value: JsonObject, old: JsonObject, request_context: RequestContext) -> None:
        """Keep what this write may not change, and update the generation."""
        if request_context.subresource == "resize":
            keep_all_but_resources(value, old)
        elif request_context.subresource == ephemeral_containers.SUBRESOURCE:
            ephemeral_containers.keep_all_but_these(value, old)
        super().prepare_update(value, old, request_context)
        if request_context.subresource == "status" and "status" in value:
            value["status"].setdefault("qosClass", documents.child(old, "status").get("qosClass"))

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        if request_context.subresource == "status":
            return []
        found = pod_spec.validate_spec(value["spec"], "spec")
        found += ephemeral_containers.problems(value["spec"])
        if old is None and value["spec"].get(ephemeral_containers.FIELD):
            found.append(field_errors.forbidden(f"spec.{ephemeral_containers.FIELD}", "cannot be set on create"))
        if old is not None and request_context.subresource == ephemeral_containers.SUBRESOURCE:
            return [*found, *ephemeral_containers.changes(value["spec"], old["spec"])]
        if old is not None and request_context.subresource == "resize":
            return found + resize_problems(value, old, qualities=(quality(value["spec"]), quality(old["spec"])))
        if old is not None and not found:
            found += _changed(value["spec"], old["spec"])
        return found

    def fields(self, value: JsonObject) -> dict[str, str]:
        """The fields that selectors can use."""
        spec, status = documents.child(value, "spec"), documents.child(value, "status")
        return {
            "spec.nodeName": spec.get("nodeName", ""),
            "spec.restartPolicy": spec.get("restartPolicy", ""),
            "spec.schedulerName": spec.get("schedulerName", ""),
            "spec.serviceAccountName": spec.get("serviceAccountName", ""),
            "spec.hostNetwork": "true" if spec.get("hostNetwork") else "false",
            "status.phase": status.get("phase", ""),
            "status.podIP": status.get("podIP", ""),
            "status.nominatedNodeName": status.get("nominatedNodeName", ""),
        }

    @property
    def selectable(self) -> tuple[str, ...]:
        """The names of `fields`."""
        return tuple(self.fields({}))

    def grace(self, value: JsonObject, requested: int | None) -> int | None:
        """The grace period of pods on a node; unscheduled and finished pods are removed at once."""
        spec = documents.child(value, "spec")
        seconds = requested if requested is not None else spec.get("terminationGracePeriodSeconds", 30)
        if not spec.get("nodeName") or documents.child(value, "status").get("phase") in ("Succeeded", "Failed"):
            return 0
        return seconds if isinstance(seconds, int) else 0

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Ready, Status, Restarts, Age, IP, Node, Nominated Node, Readiness Gates."""
        spec, status = documents.child(value, "spec"), documents.child(value, "status")
        statuses = documents.items(status, "containerStatuses")
        ready = sum(1 for entry in statuses if entry.get("ready") and "running" in (entry.get("state") or {}))
        restarts = sum(entry.get("restartCount", 0) for entry in statuses)
        gates = documents.items(spec, "readinessGates")
        return [
            value["metadata"]["name"],
            f"{ready}/{len(documents.items(spec, 'containers'))}",
            reason(value),
            _restarts(restarts, statuses, now),
            age(value, now),
            status.get("podIP") or "<none>",
            spec.get("nodeName") or "<none>",
            status.get("nominatedNodeName") or "<none>",
            f"0/{len(gates)}" if gates else "<none>",
        ]


def _restarts(count: int, statuses: list[JsonObject], now: datetime) -> str:
    ends = [documents.child(entry, "lastState", "terminated").get("finishedAt") or "" for entry in statuses]
    last = max(ends, default="")
    return f"{count} ({times.duration(last, now)} ago)" if count and last else str(count)


def reason(value: JsonObject) -> str:
    """The text of the STATUS column."""
    status = documents.child(value, "status")
    found: str = status.get("reason") or status.get("phase") or ""
    for condition in documents.items(status, "conditions"):
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            found = "SchedulingGated"
    for entry in reversed(documents.items(status, "containerStatuses")):
        state = entry.get("state") or {}
        waiting, ended = state.get("waiting"), state.get("terminated")
        if waiting and waiting.get("reason"):
            found = waiting["reason"]
        elif ended and ended.get("reason"):
            found = ended["reason"]
        elif ended is not None:
            signal = ended.get("signal")
            found = f"Signal:{signal}" if signal else f"ExitCode:{ended.get('exitCode', 0)}"
    if value["metadata"].get("deletionTimestamp"):
        lost = status.get("reason") == "NodeLost"
        if lost:
            return "Unknown"
        if status.get("phase") not in ("Succeeded", "Failed"):
            return "Terminating"
    return found


def quality(spec: JsonObject) -> str:
    """The quality-of-service class."""
    guaranteed, anything = True, False
    for container in (*documents.items(spec, "containers"), *documents.items(spec, "initContainers")):
        resources = documents.child(container, "resources")
        limits, requests = documents.child(resources, "limits"), documents.child(resources, "requests")
        for name in _COUNTED:
            limit, request = _amount(limits.get(name)), _amount(requests.get(name))
            anything = anything or bool(limit) or bool(request)
            if not limit or (request and request != limit):
                guaranteed = False
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _amount(value: JsonValue) -> Quantity | None:
    try:
        return None if value is None else Quantity.parse(value)
    except QuantityError:
        return None


def _changed(new: JsonObject, old: JsonObject) -> list[StatusCause]:
    """An update may change images, the deadline, gates and tolerations, and a gated pod's placement."""
    gates = {gate.get("name") for gate in documents.items(old, "schedulingGates")}
    for index, gate in enumerate(documents.items(new, "schedulingGates")):
        if gate.get("name") not in gates:
            text = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            return [field_errors.forbidden(f"spec.schedulingGates[{index}].name", text)]
    before, after = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    if before is not None and (after is None or after > before):
        text = "must be less than or equal to previous value"
        return [field_errors.invalid("spec.activeDeadlineSeconds", after, text)]
    left, right = _frozen(new), _frozen(old)
    if old.get("schedulingGates"):
        for side in (left, right):
            side.pop("nodeSelector", None)
            side.pop("affinity", None)
    if left == right:
        return []
    detail = (
        "pod updates may not change fields other than `spec.containers[*].image`,"
        "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
        "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
    )
    return [field_errors.forbidden("spec", detail)]


def _frozen(spec: JsonObject) -> JsonObject:
    found = {name: entry for name, entry in spec.items() if name not in _MUTABLE and name != "schedulingGates"}
    for group in ("containers", "initContainers"):
        if group in found:
            found[group] = [{k: v for k, v in entry.items() if k != "image"} for entry in documents.items(spec, group)]
    return found


def keep_all_but_resources(value: JsonObject, old: JsonObject) -> None:
    """Restore what a resize does not write: all but the resources of containers; other containers are a problem."""
    sent = documents.child(value, "spec")
    kept = ("name", "namespace", "uid", "resourceVersion", "managedFields")
    metadata = {name: entry for name, entry in value["metadata"].items() if name in kept}
    value.clear()
    value.update(documents.copy(old))
    value["metadata"] = {**value["metadata"], **metadata}
    for group in _GROUPS:
        wanted, entries = documents.items(sent, group), documents.items(value, "spec", group)
        if [each.get("name") for each in wanted] != [each.get("name") for each in entries]:
            value["spec"][group] = wanted
            continue
        for each, entry in zip(wanted, entries, strict=True):
            entry["resources"] = each.get("resources", {})


def resize_problems(value: JsonObject, old: JsonObject, *, qualities: tuple[str, str]) -> list[StatusCause]:
    """What is wrong with new resources; `qualities` are the quality-of-service classes, the new one first."""
    found: list[StatusCause] = []
    for entry in documents.items(old, "status", "containerStatuses"):
        if "running" in (entry.get("state") or {}) and entry.get("resources") is None:
            found.append(field_errors.forbidden("spec", "Pod running on node without support for resize"))
            break
    if qualities[0] != qualities[1]:
        text = "Pod QOS Class may not change as a result of resizing"
        found.append(field_errors.invalid("spec", qualities[1], text))
    for group in _GROUPS:
        before, after = documents.items(old, "spec", group), documents.items(value, "spec", group)
        if [each.get("name") for each in before] != [each.get("name") for each in after]:
            text = f"{group} may not be added or removed on resize"
            found.append(field_errors.forbidden(f"spec.{group}", text))
            continue
        for index, (entry, former) in enumerate(zip(after, before, strict=True)):
            path = f"spec.{group}[{index}].resources"
            found += _problems(documents.child(entry, "resources"), documents.child(former, "resources"), path)
    return found


def _problems(new: JsonObject, old: JsonObject, path: str) -> list[StatusCause]:
    found = []
    for amounts in _AMOUNTS:
        after, before = documents.child(new, amounts), documents.child(old, amounts)
        if any(after.get(name) != before.get(name) for name in after.keys() | before.keys() if name not in _RESIZABLE):
            found.append(field_errors.forbidden("spec", "only cpu and memory resources are mutable"))
        elif before.keys() - after.keys():
            found.append(field_errors.forbidden(f"{path}.{amounts}", f"resource {amounts} cannot be removed"))
    return found
