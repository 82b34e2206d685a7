# SPDX-License-Identifier: Apache-2.0
"""Deployments, replica sets, stateful sets, daemon sets: defaults and table cells."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from devcluster.apiserver import errors, field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds import app_rules, pod_spec, volumes
from devcluster.apiserver.kinds.batch import selector_text, template_cells
from devcluster.apiserver.kinds.behaviour import KindBehaviour, RequestContext, age
from devcluster.apiserver.schema.values import quoted

_TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")


class _Replicated(KindBehaviour):
    """A kind with a pod template and a selector that does not change."""

    has_status = True
    generation = True
    selector_kind = "deployment"
    """The kind in the message about an empty selector."""
    selector_is_fixed = True

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Set the status of a new one."""
        super().prepare_create(value, request_context)
        value["status"] = self.first_status()

    def first_status(self) -> JsonObject:
        """The status of a new one."""
        return {}

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        if request_context.subresource == "status":
            return []
        spec, before = value["spec"], old["spec"] if old is not None else None
        found = app_rules.problems(spec, kind=self.selector_kind) + self.problems(spec, before)
        if before is not None and self.selector_is_fixed and spec.get("selector") != before.get("selector"):
            found.append(field_errors.immutable("spec.selector", spec.get("selector")))
        return found

    def problems(self, spec: JsonObject, old: JsonObject | None) -> list[StatusCause]:
        """The problems that only this kind has; `old` is the spec before a change."""
        return []


class DeploymentBehaviour(_Replicated):
    """Deployments."""

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        spec = value.setdefault("spec", {})
        pod_spec.default_template(spec.setdefault("template", {}))
        spec.setdefault("replicas", 1)
        strategy = spec.setdefault("strategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)

    def problems(self, spec: JsonObject, old: JsonObject | None) -> list[StatusCause]:
        """The problems of strategy and deadline."""
        return app_rules.deployment_problems(spec)

    def keep_metadata(self, metadata: JsonObject, old: JsonObject) -> None:
        """A write of the status does not change labels."""
        if "labels" in old:
            metadata["labels"] = old["labels"]
        else:
            metadata.pop("labels", None)

    @property
    def ignored_by_status(self) -> JsonObject | None:
        """Labels as well, since a write of the status does not change them."""
        return {"f:spec": {}, "f:metadata": {"f:labels": {}}}

    def spec_changed(self, value: JsonObject, old: JsonObject) -> bool:
        """Annotations count as well, since a rollout copies them."""
        before = documents.metadata(old).get("annotations")
        return super().spec_changed(value, old) or documents.metadata(value).get("annotations") != before

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Ready, Up-to-date, Available, Age, Containers, Images, Selector."""
        spec, status = documents.child(value, "spec"), documents.child(value, "status")
        return [
            value["metadata"]["name"],
            f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
            status.get("updatedReplicas", 0),
            status.get("availableReplicas", 0),
            age(value, now),
            *template_cells(documents.child(spec, "template")),
            selector_text(spec.get("selector")),
        ]


class ReplicaSetBehaviour(_Replicated):
    """Replica sets."""

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        spec = value.setdefault("spec", {})
        pod_spec.default_template(spec.setdefault("template", {}))
        spec.setdefault("replicas", 1)

    def first_status(self) -> JsonObject:
        """The status of a new one."""
        return {"replicas": 0}

    def fields(self, value: JsonObject) -> dict[str, str]:
        """The fields that selectors can use."""
        return {"status.replicas": str(documents.child(value, "status").get("replicas", 0))}

    @property
    def selectable(self) -> tuple[str, ...]:
        """The names of `fields`."""
        return ("status.replicas",)

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Desired, Current, Ready, Age, Containers, Images, Selector."""
        spec, status = documents.child(value, "spec"), documents.child(value, "status")
        return [
            value["metadata"]["name"],
            spec.get("replicas", 0),
            status.get("replicas", 0),
            status.get("readyReplicas", 0),
            age(value, now),
            *template_cells(documents.child(spec, "template")),
            selector_text(spec.get("selector")),
        ]


class StatefulSetBehaviour(_Replicated):
    """Stateful sets."""

    selector_kind = "statefulset"
    selector_is_fixed = False  # a change of the selector is refused with that of other fields

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        spec = value.setdefault("spec", {})
        pod_spec.default_template(spec.setdefault("template", {}))
        spec.setdefault("replicas", 1)
        spec.setdefault("podManagementPolicy", "OrderedReady")
        strategy = spec.setdefault("updateStrategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
        spec.setdefault("revisionHistoryLimit", 10)
        keep = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
        keep.setdefault("whenDeleted", "Retain")
        keep.setdefault("whenScaled", "Retain")
        for claim in documents.items(spec, "volumeClaimTemplates"):
            volumes.default_claim_template(claim)

    def first_status(self) -> JsonObject:
        """The status of a new one."""
        return {"replicas": 0, "availableReplicas": 0}

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Set the status of a new one, and what its spec always has."""
        super().prepare_create(value, request_context)
        _settle(value["spec"])

    def prepare_update(self, value: JsonObject, old: JsonObject, request_context: RequestContext) -> None:
        """Keep what this write may not change; a status has both of its required counts."""
        if request_context.subresource != "status":
            _settle(value["spec"])
        super().prepare_update(value, old, request_context)
        if request_context.subresource == "status" and isinstance(value.get("status"), dict):
            value["status"] = {**self.first_status(), **value["status"]}

    def problems(self, spec: JsonObject, old: JsonObject | None) -> list[StatusCause]:
        """The problems of policies and ordinals, and changes that are forbidden."""
        return app_rules.stateful_set_problems(spec, old)

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Ready, Age, Containers, Images."""
        spec, status = documents.child(value, "spec"), documents.child(value, "status")
        return [
            value["metadata"]["name"],
            f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
            age(value, now),
            *template_cells(documents.child(spec, "template")),
        ]


def _settle(spec: JsonObject) -> None:
    """Set what the spec always has, and drop the field of a feature gate that is off in a real server."""
    spec.setdefault("serviceName", "")
    documents.child(spec, "updateStrategy", "rollingUpdate").pop("maxUnavailable", None)


class DaemonSetBehaviour(_Replicated):
    """Daemon sets."""

    selector_kind = "daemonset"

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        spec = value.setdefault("spec", {})
        _set_generation(value, _generation_of(value))
        pod_spec.default_template(spec.setdefault("template", {}))
        strategy = spec.setdefault("updateStrategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)
        elif isinstance(strategy.get("rollingUpdate"), dict):
            for name in ("maxUnavailable", "maxSurge"):
                strategy["rollingUpdate"].setdefault(name, 0)
        spec.setdefault("revisionHistoryLimit", 10)

    def prepare_create(self, value: JsonObject, request_context: RequestContext) -> None:
        """Set the status of a new one, and the generation of its template, which is at least 1."""
        super().prepare_create(value, request_context)
        _set_generation(value, max(1, _generation_of(value)))

    def prepare_update(self, value: JsonObject, old: JsonObject, request_context: RequestContext) -> None:
        """Keep what this write may not change; the generation of the template grows with each change of it."""
        super().prepare_update(value, old, request_context)
        changed = value["spec"].get("template") != old["spec"].get("template")
        _set_generation(value, _generation_of(old) + changed)

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object; a changed selector is the first."""
        found = super().validate(value, old, request_context)
        return sorted(found, key=lambda cause: cause.field != "spec.selector") if old is not None else found

    def problems(self, spec: JsonObject, old: JsonObject | None) -> list[StatusCause]:
        """The problems of the update strategy."""
        return app_rules.daemon_set_problems(spec)

    def first_status(self) -> JsonObject:
        """The status of a new one."""
        names = ("currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady")
        return dict.fromkeys(names, 0)

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Desired, Current, Ready, Up-to-date, Available, Node Selector, Age, Containers, Images, Selector."""
        spec, status = documents.child(value, "spec"), documents.child(value, "status")
        names = ("desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled")
        nodes = documents.strings(documents.child(spec, "template", "spec").get("nodeSelector"))
        return [
            value["metadata"]["name"],
            *(status.get(name, 0) for name in names),
            status.get("numberAvailable", 0),
            ",".join(f"{key}={entry}" for key, entry in sorted(nodes.items())) or "<none>",
            age(value, now),
            *template_cells(documents.child(spec, "template")),
            selector_text(spec.get("selector")),
        ]


def _generation_of(value: JsonObject) -> int:
    """The generation of a DaemonSet's template, which only an annotation shows; 1 without it."""
    text = documents.strings(documents.metadata(value).get("annotations")).get(_TEMPLATE_GENERATION, "1")
    if not _INTEGER.fullmatch(text):
        why = f"strconv.ParseInt: parsing {quoted(text)}: invalid syntax"
        raise errors.bad_request(f'DaemonSet in version "v1" cannot be handled as a DaemonSet: {why}')
    return int(text)


def _set_generation(value: JsonObject, generation: int) -> None:
    annotations = value["metadata"].get("annotations") or {}
    value["metadata"]["annotations"] = {**annotations, _TEMPLATE_GENERATION: str(generation)}
