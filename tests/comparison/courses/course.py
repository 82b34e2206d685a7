# SPDX-License-Identifier: Apache-2.0
"""What a course is: steps on a hub with one configuration, and which kinds are shown after each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from devcluster.kubelet.node import NodeSpec
from multikueue.api.meta import JsonObject
from multikueue.api.resource import JOBS, Resource
from tests.comparison.hub import ComparedHub
from tests.comparison.looks import Look

RESERVED_SECONDS: Final = 1.5
"""By then a Job that fits holds quota."""


@dataclass(frozen=True, slots=True)
class Course:
    """What happens, on a manager with these sections of its configuration."""

    steps: Callable[[ComparedHub], AsyncIterator[Look]]
    configuration: Mapping[str, Any] = field(default_factory=dict)
    kueue_gates: Mapping[str, bool] = field(default_factory=dict)
    """What Kueue 0.17.0 has behind feature gates that are on by default in later versions, and named otherwise."""
    every_kind: bool = False
    """Jobs of every kind run on the hub, which has controllers, nodes and operators."""
    nodes: Sequence[NodeSpec] = ()
    """The nodes of such a hub, if it matters where pods are, which is shown then."""
    definitions: Sequence[JsonObject] = ()
    """Of kinds that a hub without controllers has besides Kueue's."""
    shown: Sequence[Resource] = (JOBS,)
    """The kinds of jobs on such a hub, and of what is made for them."""
