# SPDX-License-Identifier: Apache-2.0
"""Cohort: a node of the quota tree above ClusterQueues (`docs/spec/kueue-api.md §1.3`)."""

from pydantic import Field

from multikueue.api.meta import Conditions, FairSharing, FairSharingStatus, KubeObject, ObjectName, WireModel
from multikueue.api.quota import ResourceGroups
from multikueue.api.resource import COHORTS


class CohortSpec(WireModel):
    """Its parent and the quota it holds itself."""

    parent_name: ObjectName | None = None
    resource_groups: ResourceGroups = ()
    fair_sharing: FairSharing | None = None


class CohortStatus(WireModel):
    """Its share, and whether it belongs to its tree; `conditions` is not upstream's."""

    conditions: Conditions = ()
    fair_sharing: FairSharingStatus | None = None


class Cohort(KubeObject):
    """ClusterQueues and cohorts that lend to each other."""

    RESOURCE = COHORTS

    spec: CohortSpec = Field(default_factory=CohortSpec)
    status: CohortStatus = Field(default_factory=CohortStatus)
