# SPDX-License-Identifier: Apache-2.0
"""What keeps a group of pods, or an elastic job, from a cluster with an engine that admits them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from multikueue.api.constants import POD_GROUP_FAST_ADMISSION_ANNOTATION, POD_GROUP_SERVING_ANNOTATION
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.dispatch.worker.assignment_state import Obstacle
from worker_agent.local.obstacles import NOT_QUEUEABLE, Obstacles

ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}
GROWS = {POD_GROUP_FAST_ADMISSION_ANNOTATION: "true", POD_GROUP_SERVING_ANNOTATION: "true"}


def obstacle(
    annotations: dict[str, str], *, served: bool = True, has_job: bool = False, elastic: bool = False
) -> Obstacle | None:
    """What keeps one pod with these annotations from a cluster that may serve its queue."""
    pod = {"metadata": {"name": "web-0", "namespace": "team", "annotations": annotations}, "spec": {}}
    queues: Any = SimpleNamespace(missing_queue=lambda clone: None, serves=lambda clone: served)
    allowed: Any = SimpleNamespace(obstacle=lambda *args, **more: None)
    checked = Obstacles(
        boundary=allowed,
        queues=queues,
        dependencies=allowed,
        namespace_exists=lambda name: True,
        clock=ManualClock(),
    )
    checked.of_manifest = lambda *args, **more: None  # type: ignore[method-assign]
    desired = SimpleNamespace(
        jobs=SimpleNamespace(obstacle=""),
        manifest={"metadata": {"name": "web", "namespace": "team", "annotations": ELASTIC if elastic else {}}},
        members=(pod,),
        job=Key("team", "web"),
        clone=SimpleNamespace(workload=Key("team", "web"), queue="q"),
        named="web",
    )
    return checked.of(cast(Any, desired), has_job=has_job)


def test_pods_that_are_created_one_after_another_are_refused_where_an_engine_admits_them() -> None:
    found = obstacle(GROWS)
    assert found is not None
    assert found.reason == NOT_QUEUEABLE
    assert found.message == (
        "LocalQueue team/q cannot admit pods that are created one after another, as those of a StatefulSet"
    )


def test_a_job_that_changes_its_size_is_refused_where_an_engine_admits_it() -> None:
    found = obstacle({}, elastic=True)
    assert found is not None
    assert found.reason == NOT_QUEUEABLE
    assert found.message == (
        "LocalQueue team/q cannot admit an elastic job of another cluster, which may change its size"
    )
    assert obstacle({}, elastic=True, served=False) is None


@pytest.mark.parametrize(
    ("annotations", "more"),
    [
        pytest.param(GROWS, {"served": False}, id="without an engine"),
        pytest.param(GROWS, {"has_job": True}, id="once they run"),
        pytest.param({}, {}, id="a group that is complete"),
    ],
)
def test_others_are_not(annotations: dict[str, str], more: dict[str, bool]) -> None:
    assert obstacle(annotations, **more) is None
