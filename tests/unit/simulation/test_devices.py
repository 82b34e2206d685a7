# SPDX-License-Identifier: Apache-2.0
"""Device classes and claim templates among manifests: `mkctl simulate` and `mkctl explain` count them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import orjson
import pytest
import yaml
from typer.testing import CliRunner, Result

from multikueue.cli.main import build

NOW: Final = ("--now", "2026-01-01T09:00:00Z")
VERSION: Final = "kueue.x-k8s.io/v1beta2"
Object = dict[str, Any]
GROUP: Final = {
    "coveredResources": ["cpu", "gpus"],
    "flavors": [
        {
            "name": "default",
            "resources": [{"name": "cpu", "nominalQuota": "9"}, {"name": "gpus", "nominalQuota": "4"}],
        }
    ],
}
QUEUES: Final = (
    {"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": "default"}},
    {
        "apiVersion": VERSION,
        "kind": "ClusterQueue",
        "metadata": {"name": "red"},
        "spec": {"namespaceSelector": {}, "resourceGroups": [GROUP]},
    },
    {"apiVersion": VERSION, "kind": "LocalQueue", "metadata": {"name": "jobs"}, "spec": {"clusterQueue": "red"}},
)
CONFIGURATION: Final = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "resources": {"deviceClassMappings": [{"name": "gpus", "deviceClassNames": ["gpu.example.com"]}]},
}


def mkctl(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(build(arguments), arguments)
    assert result.exit_code == code, result.output
    return result


def write(folder: Path, *documents: Object) -> str:
    path = folder / "manifests.yaml"
    path.write_text(yaml.safe_dump_all([*QUEUES, *documents]))
    return str(path)


def simulated(path: str) -> Object:
    parsed: Object = orjson.loads(mkctl("simulate", "-f", path, *NOW, "-o", "json").stdout)
    return parsed


def job(name: str, template: str = "", *, pods: int = 1, requests: Object | None = None) -> Object:
    claims = [{"name": "gpu", "resourceClaimTemplateName": template}] if template else []
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1", **(requests or {})}}}
    labels = {"kueue.x-k8s.io/queue-name": "jobs"}
    metadata = {"name": name, "labels": labels, "creationTimestamp": "2026-01-01T08:00:00Z"}
    spec = {"parallelism": pods, "template": {"spec": {"containers": [container], "resourceClaims": claims}}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def template(name: str, count: int, *, api: str = "resource.k8s.io/v1") -> Object:
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.example.com", "count": count}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    return {"apiVersion": api, "kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": spec}


def device_class(**spec: str) -> Object:
    metadata = {"name": "gpu.example.com", "creationTimestamp": "2026-01-01T08:00:00Z"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": metadata, "spec": spec}


def outcomes(found: Object) -> dict[str, tuple[str, str]]:
    return {
        each["workload"].split("-")[1]: (each["outcome"], each["message"])
        for cycle in found["cycles"]
        for each in cycle["decisions"]
    }


def used(found: Object) -> Object:
    usage: Object = found["clusterQueues"]["red"]["usage"]["default"]
    return usage


def test_a_job_takes_the_devices_of_its_template_from_the_quota(tmp_path: Path) -> None:
    path = write(tmp_path, CONFIGURATION, device_class(), template("t", 2), job("two", "t", pods=2), job("more", "t"))
    found = simulated(path)
    assert used(found) == {"cpu": "2", "gpus": "4"}
    assert sorted(outcome for outcome, _ in outcomes(found).values()) == ["Pending", "Reserved"]


@pytest.mark.parametrize("order", [1, -1], ids=["as written", "the other way round"])
def test_a_class_that_backs_a_resource_counts_wherever_it_stands(tmp_path: Path, order: int) -> None:
    documents = [CONFIGURATION, device_class(extendedResourceName="example.com/gpu"), template("t", 1)]
    documents.append(job("both", "t", requests={"example.com/gpu": "2"}))
    assert used(simulated(write(tmp_path, *documents[::order]))) == {"cpu": "1", "gpus": "3"}


def test_a_job_whose_template_is_missing_is_told_so(tmp_path: Path) -> None:
    path = write(tmp_path, CONFIGURATION, job("lost", "t"))
    (found,) = simulated(path)["notQueued"]
    assert found["reason"] == "Misconfigured"
    assert found["message"] == 'podSet main: resourceClaim "gpu": ResourceClaimTemplate "t" not found'
    page = " ".join(mkctl("explain", f"workload/{found['workload']}", "-f", path, *NOW).stdout.split())
    assert 'ResourceClaimTemplate "t" not found' in page


def test_without_mappings_a_job_with_claims_is_not_admitted(tmp_path: Path) -> None:
    path = write(tmp_path, template("t", 2), job("claims", "t"))
    (found,) = simulated(path)["notQueued"]
    assert "resources.deviceClassMappings of the manager's Configuration is empty" in found["message"]


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param([], id="a spec that is a list"),
        pytest.param({"spec": {"devices": {"requests": "all"}}}, id="requests that are text"),
        pytest.param(
            {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"count": "many"}}]}}}, id="a count in words"
        ),
    ],
)
def test_a_template_of_another_shape_is_refused_with_its_name(tmp_path: Path, spec: Any) -> None:
    path = write(tmp_path, CONFIGURATION, template("odd", 1) | {"spec": spec}, job("claims", "odd"))
    result = mkctl("simulate", "-f", path, *NOW, code=1)
    assert "odd" in result.stderr
    assert "Traceback" not in result.output
