# SPDX-License-Identifier: Apache-2.0
"""WorkloadPriorityClass: a priority in the queue, independent of pod priority (`docs/spec/kueue-api.md §1.11`)."""

from typing import Annotated

from multikueue.api.meta import Int32, KubeObject
from multikueue.api.resource import WORKLOAD_PRIORITY_CLASSES
from multikueue.api.schema import Column, Schema


class WorkloadPriorityClass(KubeObject):
    """A named priority."""

    RESOURCE = WORKLOAD_PRIORITY_CLASSES
    COLUMNS = (Column(name="Value", path=".value", type="integer"),)

    value: Int32
    description: Annotated[str, Schema(max_length=2048)] = ""
