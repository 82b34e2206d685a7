# SPDX-License-Identifier: Apache-2.0
"""What KubeRay adds to the pods of RayJob, RayCluster and RayService (`docs/spec/kueue-api.md §4.1`).

The autoscaler's container in the head, and the pod that submits a RayJob, or its container in the head. A submitter
without a template gets KubeRay's default with what admission adds, and loses it when the job is stopped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from multikueue.api.objects import JsonObject
from multikueue.jobs.declared.integration import DeclaredIntegration
from multikueue.jobs.declared.paths import Keys, value_at, without_value
from multikueue.jobs.declared.pod_set_places import PodSetPlace, require_distinct
from multikueue.jobs.framework.pod_templates import same

HEAD: Final = "head"
SUBMITTER: Final = "submitter"
_CLUSTER: Final[Mapping[str, Keys]] = {
    "RayCluster": ("spec",),
    "RayService": ("spec", "rayClusterConfig"),
    "RayJob": ("spec", "rayClusterSpec"),
}
_SUBMITTER_TEMPLATE: Final[Keys] = ("spec", "submitterPodTemplate")
_SUBMITTER_RESOURCES: Final = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
_AUTOSCALER_RESOURCES: Final = {
    "requests": {"cpu": "500m", "memory": "512Mi"},
    "limits": {"cpu": "500m", "memory": "512Mi"},
}


class RayIntegration(DeclaredIntegration):
    """A kind of KubeRay."""

    def places(self, job: JsonObject) -> tuple[PodSetPlace, ...]:
        """The head, the worker groups, and the submitter of a RayJob, with or without a template."""
        found = super().places(job)
        declared = next((each for each in self.spec.pod_sets if each.name == SUBMITTER), None)
        if declared is None or any(place.keys == _SUBMITTER_TEMPLATE for place in found):
            return found
        if declared.when is not None and not declared.when.holds(job):
            return found
        submitter = PodSetPlace(
            name=SUBMITTER,
            count=1,
            keys=_SUBMITTER_TEMPLATE,
            template=_default_submitter(found[0].template),
            declared=declared,
            scope=job,
        )
        return require_distinct((*found, submitter))

    def counted_template(self, job: JsonObject, place: PodSetPlace) -> JsonObject:
        """The head with the containers that KubeRay adds."""
        cluster = value_at(job, _CLUSTER[self.resource.kind])
        if place.name != HEAD or not isinstance(cluster, dict):
            return place.template
        added: list[JsonObject] = []
        if cluster.get("enableInTreeAutoscaling"):
            resources = value_at(cluster, ("autoscalerOptions", "resources")) or _AUTOSCALER_RESOURCES
            added.append({"name": "autoscaler", "resources": resources})
        if value_at(job, ("spec", "submissionMode")) == "SidecarMode":
            added.append({"name": "ray-job-submitter", "resources": _SUBMITTER_RESOURCES})
        if not added:
            return place.template
        spec: dict[str, Any] = place.template.get("spec") or {}
        return {**place.template, "spec": {**spec, "containers": [*(spec.get("containers") or ()), *added]}}

    def with_original(self, job: JsonObject, pod_sets: Sequence[JsonObject]) -> JsonObject:
        """Without the default of a submitter."""
        restored = super().with_original(job, pod_sets)
        submitter = value_at(restored, _SUBMITTER_TEMPLATE)
        if submitter is None or not same(submitter, _default_submitter(self.places(restored)[0].template)):
            return restored
        without: JsonObject = without_value(restored, _SUBMITTER_TEMPLATE)
        return without


def _default_submitter(head: JsonObject) -> JsonObject:
    """KubeRay's own, with the image of the head."""
    containers = value_at(head, ("spec", "containers")) or [{}]
    image = containers[0].get("image") if isinstance(containers[0], dict) else None
    return {
        "spec": {
            "containers": [
                {
                    "name": "ray-job-submitter",
                    **({"image": image} if image else {}),
                    "resources": _SUBMITTER_RESOURCES,
                }
            ],
            "restartPolicy": "Never",
        }
    }
