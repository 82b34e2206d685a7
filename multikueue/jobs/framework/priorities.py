# SPDX-License-Identifier: Apache-2.0
"""The priority of a job's Workload: in which order priority classes count (`docs/spec/kueue-api.md §4.2`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from multikueue.api.constants import (
    POD_PRIORITY_CLASS_GROUP,
    POD_PRIORITY_CLASS_KIND,
    WORKLOAD_PRIORITY_CLASS_GROUP,
    WORKLOAD_PRIORITY_CLASS_KIND,
)
from multikueue.core.errors import BadInput
from multikueue.jobs.framework.protocol import PriorityHint
from multikueue.jobs.framework.workloads import Priority


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityClasses:
    """Values of priority classes by name; `default` is the PriorityClass marked globalDefault, with its value."""

    workload: Callable[[str], int | None]
    pod: Callable[[str], int | None]
    default: Callable[[], tuple[str, int] | None]


class UnknownPriorityClass(BadInput):
    """The job names a WorkloadPriorityClass that does not exist."""


def resolve(hint: PriorityHint, classes: PriorityClasses) -> Priority:
    """The first class that is named, else the cluster's default, else 0. Raises `UnknownPriorityClass`."""
    if hint.workload_class:
        value = classes.workload(hint.workload_class)
        if value is None:
            raise UnknownPriorityClass(
                f"WorkloadPriorityClass {hint.workload_class} doesn't exist; create it or correct the job's label"
            )
        return Priority(
            value=value,
            group=WORKLOAD_PRIORITY_CLASS_GROUP,
            kind=WORKLOAD_PRIORITY_CLASS_KIND,
            name=hint.workload_class,
        )
    for name in (hint.job_class, hint.pod_class):
        value = classes.pod(name) if name else None
        if value is not None:
            return _of_pods(name, value)
    default = classes.default()
    return Priority() if default is None else _of_pods(*default)


def _of_pods(name: str, value: int) -> Priority:
    return Priority(value=value, group=POD_PRIORITY_CLASS_GROUP, kind=POD_PRIORITY_CLASS_KIND, name=name)
