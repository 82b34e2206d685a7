# SPDX-License-Identifier: Apache-2.0
"""Pod templates, as far as admission reads them: requests, node selection, tolerations and class names.

All other fields of a pod are kept. The full upstream schema of a template is next to this module as data, for the CRDs.
"""

from pydantic import Field

from multikueue.api.meta import JsonObject, Labels, Resources, WireModel, WireToleration
from multikueue.api.schema import Schema


class ResourceRequirements(WireModel):
    """The resource requests of a container or pod; device claims are kept."""

    requests: Resources = Field(default_factory=dict)
    limits: Resources = Field(default_factory=dict)
    claims: tuple[JsonObject, ...] = ()


class Container(WireModel):
    """One container; an init container with restartPolicy Always is a sidecar."""

    name: str = ""
    image: str = ""
    resources: ResourceRequirements = Field(default_factory=ResourceRequirements)
    restart_policy: str = ""


class NodeSelectorRequirement(WireModel):
    """One expression over a node's labels or fields."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class WireNodeSelectorTerm(WireModel):
    """Expressions that must all hold."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(WireModel):
    """Terms of which one must hold."""

    node_selector_terms: tuple[WireNodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(WireModel):
    """A preferred term."""

    weight: int = 1
    preference: WireNodeSelectorTerm = Field(default_factory=WireNodeSelectorTerm)


class NodeAffinity(WireModel):
    """The nodes that a pod requires, and those that it prefers."""

    required: NodeSelector | None = Field(None, alias="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredSchedulingTerm, ...] = Field((), alias="preferredDuringSchedulingIgnoredDuringExecution")


class Affinity(WireModel):
    """Affinity of a pod; affinity to other pods is kept."""

    node_affinity: NodeAffinity | None = None


class PodSchedulingGate(WireModel):
    """What keeps a pod from being scheduled."""

    name: str


class PodSpec(WireModel):
    """The shape of a pod."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None
    overhead: Resources = Field(default_factory=dict)
    node_selector: Labels = Field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[WireToleration, ...] = ()
    runtime_class_name: str = ""
    priority_class_name: str = ""
    restart_policy: str = ""
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    resource_claims: tuple[JsonObject, ...] = ()


class TemplateMeta(WireModel):
    """The metadata of a template, of which labels and annotations are read."""

    labels: Labels = Field(default_factory=dict)
    annotations: Labels = Field(default_factory=dict)


class PodTemplateSpec(WireModel):
    """The pods of a pod set."""

    SCHEMA = Schema(reference="PodTemplateSpec")

    metadata: TemplateMeta = Field(default_factory=TemplateMeta)
    spec: PodSpec = Field(default_factory=PodSpec)
