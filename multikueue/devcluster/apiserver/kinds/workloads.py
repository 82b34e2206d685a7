# SPDX-License-Identifier: Apache-2.0
"""Deployments, replica sets, stateful sets, daemon sets: defaults and table cells. Nothing here runs them."""

from __future__ import annotations

from datetime import datetime

from multikueue.devcluster.apiserver import documents, words
from multikueue.devcluster.apiserver.documents import JsonObject, JsonValue
from multikueue.devcluster.apiserver.errors import Cause
from multikueue.devcluster.apiserver.kinds import podspec
from multikueue.devcluster.apiserver.kinds.batch import selector_text, template_cells
from multikueue.devcluster.apiserver.kinds.behaviour import Behaviour, Occasion, age


class _Replicated(Behaviour):
    """A kind with a pod template and a selector that does not change."""

    has_status = True
    generation = True

    def prepare_create(self, value: JsonObject, occasion: Occasion) -> None:
        """A new one has the status of nothing done."""
        super().prepare_create(value, occasion)
        value["status"] = self.first_status()

    def first_status(self) -> JsonObject:
        """What the status of a new one says."""
        return {}

    def validate(self, value: JsonObject, old: JsonObject | None, occasion: Occasion) -> list[Cause]:
        """What is wrong with it."""
        if occasion.subresource == "status":
            return []
        spec = value["spec"]
        found = []
        selector = spec.get("selector")
        labels = documents.strings(documents.child(spec, "template", "metadata").get("labels"))
        if not selector:
            found.append(words.required("spec.selector"))
        else:
            wanted = documents.strings(documents.child(selector).get("matchLabels"))
            if not set(wanted.items()) <= set(labels.items()):
                detail = "`selector` does not match template `labels`"
                found.append(words.bad_value("spec.template.metadata.labels", labels, detail))
        found += podspec.validate_spec(documents.child(spec, "template", "spec"), "spec.template.spec")
        if isinstance(spec.get("replicas"), int) and spec["replicas"] < 0:
            found.append(words.bad_value("spec.replicas", spec["replicas"], "must be greater than or equal to 0"))
        if old is not None and selector != old["spec"].get("selector"):
            found.append(words.immutable("spec.selector", selector))
        return found


class DeploymentBehaviour(_Replicated):
    """Deployments."""

    def default(self, value: JsonObject) -> None:
        """Fill in what clients may leave out."""
        spec = value.setdefault("spec", {})
        podspec.default_template(spec.setdefault("template", {}))
        spec.setdefault("replicas", 1)
        strategy = spec.setdefault("strategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)

    def keep_metadata(self, metadata: JsonObject, old: JsonObject) -> None:
        """The status brings no labels."""
        if "labels" in old:
            metadata["labels"] = old["labels"]
        else:
            metadata.pop("labels", None)

    @property
    def ignored_by_status(self) -> JsonObject | None:
        """The labels, too, since the status brings none."""
        return {"f:spec": {}, "f:metadata": {"f:labels": {}}}

    def spec_changed(self, value: JsonObject, old: JsonObject) -> bool:
        """Annotations count, too, since a rollout copies them."""
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
        """Fill in what clients may leave out."""
        spec = value.setdefault("spec", {})
        podspec.default_template(spec.setdefault("template", {}))
        spec.setdefault("replicas", 1)

    def first_status(self) -> JsonObject:
        """What the status of a new one says."""
        return {"replicas": 0}

    def fields(self, value: JsonObject) -> dict[str, str]:
        """What field selectors may ask for."""
        return {"status.replicas": str(documents.child(value, "status").get("replicas", 0))}

    @property
    def selectable(self) -> tuple[str, ...]:
        """The names that `fields` knows."""
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

    def default(self, value: JsonObject) -> None:
        """Fill in what clients may leave out."""
        spec = value.setdefault("spec", {})
        podspec.default_template(spec.setdefault("template", {}))
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

    def first_status(self) -> JsonObject:
        """What the status of a new one says."""
        return {"replicas": 0, "availableReplicas": 0}

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Ready, Age, Containers, Images."""
        spec, status = documents.child(value, "spec"), documents.child(value, "status")
        return [
            value["metadata"]["name"],
            f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
            age(value, now),
            *template_cells(documents.child(spec, "template")),
        ]


class DaemonSetBehaviour(_Replicated):
    """Daemon sets."""

    def default(self, value: JsonObject) -> None:
        """Fill in what clients may leave out."""
        spec = value.setdefault("spec", {})
        annotations = value["metadata"].setdefault("annotations", {})
        annotations.setdefault("deprecated.daemonset.template.generation", "1")
        podspec.default_template(spec.setdefault("template", {}))
        strategy = spec.setdefault("updateStrategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)
        spec.setdefault("revisionHistoryLimit", 10)

    def first_status(self) -> JsonObject:
        """What the status of a new one says."""
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
