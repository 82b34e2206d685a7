# SPDX-License-Identifier: Apache-2.0
"""What a Kueue on a hub makes on a worker for an object whose pods it holds there: Workloads first, then the object.

As Kueue 0.17 does (`python -m tests.comparison worker-serving`): the Workloads have the names that they have on the hub
and no owner, that of a StatefulSet is marked as one of a group, and the object has its uid there.
"""

from __future__ import annotations

import copy
from typing import Final

from multikueue.api.constants import (
    IS_GROUP_WORKLOAD_ANNOTATION,
    ORIGIN_LABEL,
    ORIGIN_UID_ANNOTATION,
    PREBUILT_WORKLOAD_LABEL,
)
from multikueue.jobs.framework.capabilities import ReplicatedKind
from multikueue.jobs.framework.workloads import Priority, name_for, workload_for
from multikueue.jobs.kinds.held_group import HeldGroup
from tests.support.app_sets import Object

ORIGIN: Final = {ORIGIN_LABEL: "hub"}
_UID: Final = "9b3c7f4e-0000-4000-8000-000000000000"


def workloads_of(job: Object, integration: HeldGroup) -> list[Object]:
    """Those that are made on the worker for a job as a user submits it, one for each replica that has its own."""
    on_hub = copy.deepcopy(job)
    on_hub["metadata"]["uid"] = _UID
    if isinstance(integration, ReplicatedKind):
        jobs = [integration.replica(on_hub, index) for index in range(integration.replicas(on_hub))]
    else:
        jobs = [on_hub]
    return [_clone(each, integration) for each in jobs]


def sent(job: Object, integration: HeldGroup) -> Object:
    """The object on the worker."""
    made = copy.deepcopy(job)
    metadata = made["metadata"]
    metadata["labels"] |= ORIGIN
    metadata["annotations"] = {**metadata.get("annotations", {}), ORIGIN_UID_ANNOTATION: _UID}
    if not isinstance(integration, ReplicatedKind):
        on_hub = {**job, "metadata": {**job["metadata"], "uid": _UID}}
        metadata["labels"][PREBUILT_WORKLOAD_LABEL] = name_for(on_hub, integration)
    return made


def _clone(job: Object, integration: HeldGroup) -> Object:
    made = workload_for(job, integration, priority=Priority())
    metadata = made["metadata"]
    metadata["labels"] = dict(ORIGIN)
    if not isinstance(integration, ReplicatedKind):
        metadata["annotations"] |= {IS_GROUP_WORKLOAD_ANNOTATION: "true"}
    del metadata["ownerReferences"], metadata["finalizers"], metadata["namespace"]
    return made
