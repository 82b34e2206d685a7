# SPDX-License-Identifier: Apache-2.0
"""ProvisioningRequestConfig: how capacity is requested from an autoscaler (`docs/spec/kueue-api.md §1.9`)."""

from typing import Annotated

from pydantic import Field

from multikueue.api.meta import Int32, KubeObject, ObjectName, WireModel
from multikueue.api.resource import PROVISIONING_REQUEST_CONFIGS
from multikueue.api.schema import LABEL_KEY, Schema


class RetryStrategy(WireModel):
    """How often, and after which pauses, a failed request is retried; never with a limit of 0."""

    backoff_limit_count: Annotated[Int32, Schema(defaulted=True)] = 3
    backoff_base_seconds: Annotated[Int32, Schema(defaulted=True)] = 60
    backoff_max_seconds: Annotated[Int32, Schema(defaulted=True)] = 1800


class NodeSelectorUpdate(WireModel):
    """A node label whose value is a detail of the provisioning class."""

    key: Annotated[str, Schema(min_length=1, max_length=317, pattern=LABEL_KEY)]
    value_from_provisioning_class_detail: Annotated[str, Schema(min_length=1, max_length=32768)]


class PodSetUpdates(WireModel):
    """What a granted request adds to the pods."""

    node_selector: Annotated[tuple[NodeSelectorUpdate, ...], Schema(max_items=8, map_keys=("key",))] = ()


class ProvisioningRequestConfigSpec(WireModel):
    """Class, parameters and retries."""

    provisioning_class_name: Annotated[ObjectName, Schema(min_length=1)]
    parameters: Annotated[dict[str, Annotated[str, Schema(max_length=255)]], Schema(max_properties=100)] = Field(
        default_factory=dict
    )
    managed_resources: Annotated[tuple[str, ...], Schema(max_items=100, list_type="set")] = ()
    retry_strategy: Annotated[RetryStrategy, Schema(defaulted=True)] = Field(
        default_factory=lambda: RetryStrategy(backoff_limit_count=3, backoff_base_seconds=60, backoff_max_seconds=1800)
    )
    pod_set_updates: PodSetUpdates | None = None
    pod_set_merge_policy: Annotated[
        str | None, Schema(enum=("IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"))
    ] = None


class ProvisioningRequestConfig(KubeObject):
    """How capacity is requested."""

    RESOURCE = PROVISIONING_REQUEST_CONFIGS

    spec: Annotated[ProvisioningRequestConfigSpec, Schema(required=False)]
