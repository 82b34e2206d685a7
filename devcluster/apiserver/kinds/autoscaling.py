# SPDX-License-Identifier: Apache-2.0
"""HorizontalPodAutoscalers and PodDisruptionBudgets: defaults and status."""

from __future__ import annotations

from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds import quantities, selector_rules
from devcluster.apiserver.kinds.behaviour import KindBehaviour, RequestContext

_UTILIZATION: Final = 80
_SECONDS: Final = 15
_PODS: Final = 4
_PERCENT: Final = 100
_SOURCES: Final = ("resource", "containerResource", "pods", "object", "external")
_COUNTS: Final = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")


class AutoscalerBehaviour(KindBehaviour):
    """HorizontalPodAutoscalers; they have no generation."""

    has_status = True

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        spec = value.setdefault("spec", {})
        spec.setdefault("minReplicas", 1)
        if not spec.get("metrics"):
            target: JsonObject = {"type": "Utilization", "averageUtilization": _UTILIZATION}
            spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
        for metric in documents.items(spec, "metrics"):
            for name in _SOURCES:
                quantities.settle_fields(documents.child(metric, name, "target"), "value", "averageValue")
        for metric in documents.items(value, "status", "currentMetrics"):
            for name in _SOURCES:
                quantities.settle_fields(documents.child(metric, name, "current"), "value", "averageValue")
        behaviour = spec.get("behavior")
        if isinstance(behaviour, dict):
            up, down = behaviour.setdefault("scaleUp", {}), behaviour.setdefault("scaleDown", {})
            up.setdefault("stabilizationWindowSeconds", 0)
            _default_rules(up, [_policy("Pods", _PODS), _policy("Percent", _PERCENT)])
            _default_rules(down, [_policy("Percent", _PERCENT)])

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Set the status of a new one."""
        value["status"] = {"currentMetrics": None}

    def prepare_update(self, value: JsonObject, old: JsonObject, request_context: RequestContext) -> None:
        """Keep what this write may not change; a status always has its metrics."""
        super().prepare_update(value, old, request_context)
        value.setdefault("status", {}).setdefault("currentMetrics", None)

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the reference to what is scaled."""
        if request_context.subresource:
            return []
        return _target_problems(documents.child(value, "spec", "scaleTargetRef"), "spec.scaleTargetRef")


def _target_problems(target: JsonObject, path: str) -> list[StatusCause]:
    found = [field_errors.required(f"{path}.{name}") for name in ("kind", "name") if not target.get(name)]
    version = str(target.get("apiVersion") or "")
    group = version.partition("/")[0] if "/" in version else ""
    if version.count("/") > 1:
        text = f"unexpected GroupVersion string: {version}"
        found.append(field_errors.invalid(f"{path}.apiVersion", version, text))
    elif not group and target.get("kind") != "ReplicationController":
        text = "apiVersion must specify API group"
        found.append(field_errors.invalid(f"{path}.apiVersion", version, text))
    return found


def _default_rules(rules: JsonObject, policies: list[JsonObject]) -> None:
    """Set the defaults of one direction of scaling."""
    rules.setdefault("selectPolicy", "Max")
    rules.setdefault("policies", policies)
    quantities.settle_fields(rules, "tolerance")


def _policy(kind: str, amount: int) -> JsonObject:
    return {"type": kind, "value": amount, "periodSeconds": _SECONDS}


class BudgetBehaviour(KindBehaviour):
    """PodDisruptionBudgets."""

    has_status = True
    generation = True

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Set the status of a new one."""
        super().prepare_create(value, request_context)
        value["status"] = dict.fromkeys(_COUNTS, 0)

    def prepare_update(self, value: JsonObject, old: JsonObject, request_context: RequestContext) -> None:
        """Keep what this write may not change; a status has all of its counts."""
        super().prepare_update(value, old, request_context)
        value["status"] = {**dict.fromkeys(_COUNTS, 0), **documents.child(value, "status")}

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the selector, or of a status: no count is negative."""
        if request_context.subresource != "status":
            return selector_rules.problems(documents.child(value, "spec").get("selector"), "spec.selector")
        status = documents.child(value, "status")
        return [
            field_errors.invalid(f"status.{name}", status[name], "must be greater than or equal to 0")
            for name in _COUNTS
            if status[name] < 0
        ]
