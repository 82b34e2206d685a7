# SPDX-License-Identifier: Apache-2.0
"""Defaults and refusals of LimitRanges."""

from __future__ import annotations

from typing import Any

from devcluster.apiserver.admission.limit_ranges import PODS, problems, set_defaults

Document = dict[str, Any]


def pod(*resources: Document) -> Document:
    containers = [{"name": f"c{at}", "resources": each} for at, each in enumerate(resources)]
    return {"metadata": {"name": "p"}, "spec": {"containers": containers}}


def test_defaults_are_set_and_noted() -> None:
    found = pod({}, {"limits": {"cpu": "2"}})
    set_defaults(found, [{"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}}])
    first, second = (container["resources"] for container in found["spec"]["containers"])
    assert first == {"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}}
    assert second == {"limits": {"cpu": "2"}, "requests": {"cpu": "500m"}}
    assert found["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu request for container c0; cpu limit for container c0; cpu request for container c1"
    )


def test_a_pod_without_containers_of_its_own_to_default_has_no_note() -> None:
    found = pod({"limits": {"cpu": "1"}, "requests": {"cpu": "1"}})
    set_defaults(found, [{"type": "Container", "default": {"cpu": "2"}}, {"type": "Pod", "max": {"cpu": "1"}}])
    assert "annotations" not in found["metadata"]


def test_every_problem_of_every_container_is_found() -> None:
    limit = {"type": "Container", "min": {"cpu": "1"}, "max": {"memory": "1Gi"}}
    assert problems(pod({"requests": {"cpu": "500m"}}, {"limits": {"memory": "2Gi"}}), PODS, [limit]) == [
        "minimum cpu usage per Container is 1, but request is 500m",
        "maximum memory usage per Container is 1Gi.  No limit is specified",
        "minimum cpu usage per Container is 1.  No request is specified",
        "maximum memory usage per Container is 1Gi, but limit is 2Gi",
    ]


def test_the_containers_of_a_pod_count_together() -> None:
    limit = {"type": "Pod", "max": {"cpu": "1"}}
    assert problems(pod({"limits": {"cpu": "600m"}}, {"limits": {"cpu": "600m"}}), PODS, [limit]) == [
        "maximum cpu usage per Pod is 1, but limit is 1200m"
    ]
