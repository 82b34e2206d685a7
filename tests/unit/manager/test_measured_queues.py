# SPDX-License-Identifier: Apache-2.0
"""Of which cohorts there are metrics."""

from __future__ import annotations

import orjson
import pytest

from manager.cache.views import View
from manager.measured_queues import MeasuredQueues
from multikueue.api.configuration import Configuration
from multikueue.api.resource import CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, Resource
from multikueue.core.clock import SystemClock
from multikueue.kube.runtime.quarantine import Quarantine


def view(resource: Resource, **specs: dict[str, str]) -> View:
    """A view of these objects, by name."""
    made = View(resource, clock=SystemClock(), quarantine=Quarantine(clock=SystemClock()))
    for name, spec in specs.items():
        metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
        made.on_write(orjson.dumps({"metadata": metadata, "spec": spec}))
    return made


def above(queue: str, cohorts: dict[str, dict[str, str]], *, gate: bool = True) -> tuple[str, ...]:
    configuration = Configuration.model_validate({"featureGates": {"MetricsForCohorts": gate}})
    views = {
        LOCAL_QUEUES: view(LOCAL_QUEUES),
        CLUSTER_QUEUES: view(CLUSTER_QUEUES, alone={}, cq={"cohortName": "team"}),
        COHORTS: view(COHORTS, **cohorts),
    }
    return MeasuredQueues(configuration, views.__getitem__).cohorts_above(queue)


@pytest.mark.parametrize(
    ("queue", "cohorts", "expected"),
    [
        pytest.param("alone", {}, (), id="in none"),
        pytest.param("gone", {}, (), id="of a queue that is gone"),
        pytest.param("cq", {}, ("team",), id="one without an object"),
        pytest.param("cq", {"team": {"parentName": "root"}}, ("team", "root"), id="up to the root"),
        pytest.param(
            "cq", {"team": {"parentName": "b"}, "b": {"parentName": "team"}}, ("team", "b"), id="of a cycle each once"
        ),
    ],
)
async def test_the_cohorts_of_a_queue_are_those_above_it(
    queue: str, cohorts: dict[str, dict[str, str]], expected: tuple[str, ...]
) -> None:
    assert above(queue, cohorts) == expected


async def test_without_the_gate_there_are_none() -> None:
    assert above("cq", {}, gate=False) == ()
