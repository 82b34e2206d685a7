# SPDX-License-Identifier: Apache-2.0
"""WorkloadPriorityClass: a priority in the queue that leaves the pods' own alone (`docs/spec/kueue-api.md §1.11`)."""

from __future__ import annotations

from typing import Annotated, ClassVar

from multikueue.api.meta import Int32, KubeObject
from multikueue.api.resource import WORKLOAD_PRIORITY_CLASSES, Resource
from multikueue.api.schema import Column, Schema


class WorkloadPriorityClass(KubeObject):
    """A named priority."""

    RESOURCE: ClassVar[Resource] = WORKLOAD_PRIORITY_CLASSES
    COLUMNS: ClassVar[tuple[Column, ...]] = (Column(name="Value", path=".value", type="integer"),)

    value: Int32
    description: Annotated[str, Schema(max_length=2048)] = ""
