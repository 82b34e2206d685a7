# SPDX-License-Identifier: Apache-2.0
"""API objects of v1beta2, as mappings or wire models, to engine values."""

from __future__ import annotations

from multikueue.engine.decode.configuration import settings
from multikueue.engine.decode.devices import claim_template, device_class
from multikueue.engine.decode.nodes import node, pod_requests
from multikueue.engine.decode.objects import (
    admission_check,
    cluster_queue,
    cohort,
    flavor,
    limit_range,
    local_queue,
    namespace,
    priority_class,
    runtime_class,
    topology,
)
from multikueue.engine.decode.pods import Shapes
from multikueue.engine.decode.workload import held_quota, workload

__all__ = [
    "Shapes",
    "admission_check",
    "claim_template",
    "cluster_queue",
    "cohort",
    "device_class",
    "flavor",
    "held_quota",
    "limit_range",
    "local_queue",
    "namespace",
    "node",
    "pod_requests",
    "priority_class",
    "runtime_class",
    "settings",
    "topology",
    "workload",
]
