# SPDX-License-Identifier: Apache-2.0
"""Quota: the resource groups that ClusterQueues and Cohorts both have, and how their use is reported."""

from typing import Annotated

from multikueue.api.meta import Amount, ObjectName, WireModel
from multikueue.api.schema import CelRule, Schema

_MAX_GROUPS = 16
_MAX_ENTRIES = 64


class ResourceQuota(WireModel):
    """How much of one resource of one flavor there is, may be borrowed and may be lent."""

    name: str
    nominal_quota: Amount
    borrowing_limit: Amount | None = None
    lending_limit: Amount | None = None


class FlavorQuotas(WireModel):
    """The quota of one flavor, for each covered resource in the same order."""

    name: ObjectName
    resources: Annotated[tuple[ResourceQuota, ...], Schema(min_items=1, max_items=_MAX_ENTRIES, map_keys=("name",))]


class ResourceGroup(WireModel):
    """Resources that always come from the same flavor, and the flavors in order of preference."""

    SCHEMA = Schema(
        rules=(
            CelRule(
                "self.flavors.all(x, size(x.resources) == size(self.coveredResources))",
                "flavors must have the same number of resources as the coveredResources",
            ),
        )
    )

    covered_resources: Annotated[tuple[str, ...], Schema(min_items=1, max_items=_MAX_ENTRIES, list_type="atomic")]
    flavors: Annotated[tuple[FlavorQuotas, ...], Schema(min_items=1, max_items=_MAX_ENTRIES, map_keys=("name",))]


ResourceGroups = Annotated[tuple[ResourceGroup, ...], Schema(max_items=_MAX_GROUPS, list_type="atomic")]


class ResourceUsage(WireModel):
    """How much of a resource is in use, and how much of that is borrowed."""

    name: str
    total: Amount | None = None
    borrowed: Amount | None = None


class FlavorUsage(WireModel):
    """The use of one flavor by a ClusterQueue."""

    name: ObjectName
    resources: Annotated[tuple[ResourceUsage, ...], Schema(max_items=_MAX_ENTRIES, map_keys=("name",))]


FlavorUsages = Annotated[tuple[FlavorUsage, ...], Schema(max_items=_MAX_ENTRIES, map_keys=("name",))]


class LocalQueueResourceUsage(WireModel):
    """How much of a resource the workloads of a LocalQueue use."""

    name: str
    total: Amount | None = None


class LocalQueueFlavorUsage(WireModel):
    """The use of one flavor by a LocalQueue."""

    name: ObjectName
    resources: Annotated[tuple[LocalQueueResourceUsage, ...], Schema(max_items=_MAX_ENTRIES, map_keys=("name",))]


LocalQueueFlavorUsages = Annotated[
    tuple[LocalQueueFlavorUsage, ...], Schema(max_items=_MAX_ENTRIES, map_keys=("name",))
]
