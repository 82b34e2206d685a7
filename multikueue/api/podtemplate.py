# SPDX-License-Identifier: Apache-2.0
"""Pod templates, as far as admission looks into them.

Owns requests, node selection, tolerations and the names of classes. Everything else of a pod is carried along
untouched. The full upstream schema of a template lies beside this module as data, for the CRDs.
"""

from pydantic import Field

from multikueue.api.meta import JsonObject, Labels, Resources, Toleration, WireModel
from multikueue.api.schema import Schema


class ResourceRequirements(WireModel):
    """What a container, or a whole pod, asks for; claims of devices are kept as they came."""

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


class NodeSelectorTerm(WireModel):
    """Expressions that must all hold."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(WireModel):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(WireModel):
    """A term that is better fulfilled than not."""

    weight: int = 1
    preference: NodeSelectorTerm = Field(default_factory=NodeSelectorTerm)


class NodeAffinity(WireModel):
    """Which nodes a pod needs, and which it likes."""

    required: NodeSelector | None = Field(None, alias="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredSchedulingTerm, ...] = Field((), alias="preferredDuringSchedulingIgnoredDuringExecution")


class Affinity(WireModel):
    """Affinity of a pod; what concerns other pods is kept as it came."""

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
    tolerations: tuple[Toleration, ...] = ()
    runtime_class_name: str = ""
    priority_class_name: str = ""
    restart_policy: str = ""
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    resource_claims: tuple[JsonObject, ...] = ()


class TemplateMeta(WireModel):
    """The metadata of a template; labels and annotations are all that is looked at."""

    labels: Labels = Field(default_factory=dict)
    annotations: Labels = Field(default_factory=dict)


class PodTemplateSpec(WireModel):
    """What the pods of a set look like."""

    SCHEMA = Schema(reference="PodTemplateSpec")

    metadata: TemplateMeta = Field(default_factory=TemplateMeta)
    spec: PodSpec = Field(default_factory=PodSpec)
