# SPDX-License-Identifier: Apache-2.0
"""The pods of a SparkApplication."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.core.errors import BadInput
from multikueue.jobs.framework.protocol import InjectionConflict, PodSetInfo
from tests.unit.jobs.declared.builders import SPOT, example, infos, kind_of, written


def application(*, driver: Any = None, **spec: Any) -> dict[str, Any]:
    job = example("sparkapplication")
    job["spec"] |= spec
    job["spec"]["driver"] |= driver or {}
    return job


def requests_of_driver(job: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = kind_of(job).pod_sets(job)[0]["template"]["spec"]["containers"][0]["resources"]["requests"]
    return found


@pytest.mark.parametrize(
    ("job", "requests"),
    [
        pytest.param(application(), {"cpu": "1", "memory": "1433Mi"}, id="40% of Python"),
        pytest.param(application(type="Scala"), {"cpu": "1", "memory": "1408Mi"}, id="at least 384Mi"),
        pytest.param(
            application(type="Java", driver={"memory": "8g"}), {"cpu": "1", "memory": "9011Mi"}, id="10% of Java"
        ),
        pytest.param(
            application(driver={"memory": "512m", "memoryOverhead": "100m"}),
            {"cpu": "1", "memory": "612Mi"},
            id="an overhead of its own",
        ),
        pytest.param(application(driver={"coreRequest": "250m"}), {"cpu": "250m", "memory": "1433Mi"}, id="cores"),
        pytest.param(
            application(driver={"gpu": {"name": "nvidia.com/gpu", "quantity": 2}}),
            {"cpu": "1", "memory": "1433Mi", "nvidia.com/gpu": "2"},
            id="devices",
        ),
    ],
)
def test_requests_are_those_that_spark_makes(job: dict[str, Any], requests: dict[str, str]) -> None:
    assert requests_of_driver(job) == requests


def test_what_admission_adds_is_written_to_driver_and_executors() -> None:
    job = application(driver={"nodeSelector": {"zone": "z"}})
    kind = kind_of(job)
    started = written(job, kind.start(job, infos(job, kind)))
    assert started["spec"]["driver"]["nodeSelector"] == {"zone": "z", **SPOT}
    assert started["spec"]["executor"]["nodeSelector"] == SPOT


def test_pods_of_spark_cannot_be_gated() -> None:
    info = PodSetInfo(name="driver", count=1, scheduling_gates=({"name": "g"},))
    job = application()
    with pytest.raises(InjectionConflict, match="cannot have scheduling gates"):
        kind_of(job).start(job, [info, PodSetInfo(name="executor", count=3)])


@pytest.mark.parametrize(
    ("driver", "problem"),
    [
        pytest.param({"memory": "1Gi"}, "spec.driver.memory: expected memory such as 512m or 2g", id="a quantity"),
        pytest.param({"memory": 5}, "spec.driver.memory: expected memory", id="a number"),
        pytest.param({"memory": "9" * 20 + "g"}, "spec.driver.memory: expected memory", id="too much"),
        pytest.param({"cores": "many"}, "many", id="no number of cores"),
        pytest.param({"labels": ["a"]}, "spec.driver.metadata.labels: expected an object", id="labels are a list"),
    ],
)
def test_values_that_are_refused(driver: Any, problem: str) -> None:
    job = application(driver=driver)
    with pytest.raises(BadInput, match=problem):
        kind_of(job).pod_sets(job)


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        pytest.param({"mode": "client"}, "$.spec.mode", id="a driver elsewhere"),
        pytest.param({"dynamicAllocation": {"enabled": True}}, "$.spec.dynamicAllocation.enabled", id="more executors"),
    ],
)
def test_an_application_that_would_use_more_than_its_quota_is_refused(spec: Any, path: str) -> None:
    job = application(**spec)
    (refusal,) = kind_of(job).job_refusals(job)
    assert refusal.startswith(f"{path}: ")
