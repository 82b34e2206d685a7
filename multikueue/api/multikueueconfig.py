# SPDX-License-Identifier: Apache-2.0
"""MultiKueueConfig: the worker clusters of one admission check (`docs/spec/kueue-api.md §1.8`)."""

from typing import Annotated

from pydantic import Field

from multikueue.api.constants import QuotaManagement
from multikueue.api.meta import ClusterName, KubeObject, WireModel
from multikueue.api.resource import MULTIKUEUE_CONFIGS
from multikueue.api.schema import UNIQUE, Schema


class MultiKueueConfigSpec(WireModel):
    """Clusters in order of preference."""

    clusters: Annotated[
        tuple[ClusterName, ...],
        Schema(min_items=1, max_items=20, list_type="atomic", rules=(UNIQUE,), required=True),
    ] = ()
    quota_management: Annotated[str | None, Schema(enum=QuotaManagement)] = None


class MultiKueueConfig(KubeObject):
    """The worker clusters of one admission check."""

    RESOURCE = MULTIKUEUE_CONFIGS

    spec: MultiKueueConfigSpec = Field(default_factory=MultiKueueConfigSpec)
