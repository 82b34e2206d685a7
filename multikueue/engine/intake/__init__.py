# SPDX-License-Identifier: Apache-2.0
"""API objects in, engine values out; objects are those of v1beta2, as mappings or as wire models."""

from __future__ import annotations

from multikueue.engine.intake.configuration import settings
from multikueue.engine.intake.pods import Shapes
from multikueue.engine.intake.workload import workload
from multikueue.engine.intake.world import (
    admission_check,
    cluster_queue,
    cohort,
    flavor,
    limit_range,
    local_queue,
    namespace,
    priority_class,
    runtime_class,
)

__all__ = [
    "Shapes",
    "admission_check",
    "cluster_queue",
    "cohort",
    "flavor",
    "limit_range",
    "local_queue",
    "namespace",
    "priority_class",
    "runtime_class",
    "settings",
    "workload",
]
