# SPDX-License-Identifier: Apache-2.0
"""Priority classes and Configurations among manifests, and what `mkctl explain` shows for each state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from typer.testing import CliRunner, Result

from multikueue.cli.main import build

EXAMPLES = Path(__file__).parents[3] / "deploy" / "examples"
NOW = ("--now", "2026-01-01T09:00:00Z")
VERSION = "kueue.x-k8s.io/v1beta2"
SPEC = {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}]}
FLAVOR: dict[str, Any] = {"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": "default"}}
LOCAL_QUEUE = {
    "apiVersion": VERSION,
    "kind": "LocalQueue",
    "metadata": {"name": "jobs"},
    "spec": {"clusterQueue": "red"},
}
CLUSTER_QUEUE = {
    "apiVersion": VERSION,
    "kind": "ClusterQueue",
    "metadata": {"name": "red"},
    "spec": {
        "namespaceSelector": {},
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "default", "resources": [{"name": "cpu", "nominalQuota": "4"}]}],
            }
        ],
    },
}
CONFIGURATION = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
URGENT = {"apiVersion": VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": "urgent"}, "value": 1000}
SOON = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "soon"}, "value": 10}


def mkctl(*arguments: str, code: int = 0, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(build(arguments), arguments, input=stdin)
    assert result.exit_code == code, result.output
    return result


def write(folder: Path, *documents: dict[str, Any]) -> str:
    path = folder / "manifests.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def order(path: str) -> list[str]:
    parsed = orjson.loads(mkctl("simulate", "-f", path, *NOW, "-o", "json").stdout)
    return [decision["workload"] for cycle in parsed["cycles"] for decision in cycle["decisions"]]


def workload(
    name: str, *, count: int = 1, spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None
) -> dict[str, Any]:
    pod_set = {"name": "main", "count": count, "template": {"spec": SPEC}}
    return {
        "apiVersion": VERSION,
        "kind": "Workload",
        "metadata": {"name": name, "creationTimestamp": "2026-01-01T08:00:00Z", "uid": name},
        "spec": {"queueName": "jobs", "podSets": [pod_set], **(spec or {})},
        "status": status or {},
    }


def job(name: str, *, created: str, label: str | None = None, pod_class: str | None = None) -> dict[str, Any]:
    labels = {"kueue.x-k8s.io/queue-name": "jobs"} | ({"kueue.x-k8s.io/priority-class": label} if label else {})
    template = {"spec": SPEC | ({"priorityClassName": pod_class} if pod_class else {})}
    metadata = {"name": name, "labels": labels, "creationTimestamp": f"2026-01-01T{created}Z"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}


def condition(kind: str) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True",
        "reason": kind,
        "message": "",
        "lastTransitionTime": "2026-01-01T08:30:00Z",
    }


def holding(*conditions: str) -> dict[str, Any]:
    assigned = {"name": "main", "count": 1, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}}
    admission = {"clusterQueue": "red", "podSetAssignments": [assigned]}
    return {"admission": admission, "conditions": [condition(kind) for kind in conditions]}


def test_jobs_are_ordered_by_the_value_of_their_class(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        *(FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, URGENT, SOON),
        job("plain", created="07:00:00"),
        job("soon", created="07:30:00", pod_class="soon"),
        job("urgent", created="08:00:00", label="urgent"),
    )
    assert [name.split("-")[1] for name in order(path)] == ["urgent", "soon", "plain"]


def test_a_job_of_a_missing_class_is_reported_as_by_the_manager(tmp_path: Path) -> None:
    path = write(tmp_path, job("plain", created="07:00:00", label="urgent"))
    parsed = orjson.loads(mkctl("simulate", "-f", path, *NOW, "-o", "json").stdout)
    (entry,) = parsed["notQueued"]
    assert entry["reason"] == "Misconfigured"
    assert entry["message"].startswith("WorkloadPriorityClass urgent doesn't exist")
    page = mkctl("explain", f"workload/{entry['workload']}", "-f", path, *NOW).stdout
    assert "NotQueued" in page
    assert entry["message"] in page


def test_a_job_without_a_queue_is_none_of_ours(tmp_path: Path) -> None:
    stray = job("stray", created="07:00:00") | {"metadata": {"name": "stray"}}
    assert order(write(tmp_path, FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, stray)) == []


def test_standard_input_is_read() -> None:
    text = yaml.safe_dump_all([FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, workload("piped")])
    assert "default/piped" in mkctl("simulate", "-f", "-", *NOW, stdin=text).stdout


def test_two_configurations_among_the_manifests_are_one_too_many(tmp_path: Path) -> None:
    path = write(tmp_path, CONFIGURATION, CONFIGURATION, FLAVOR)
    message = mkctl("simulate", "-f", path, code=2).stderr
    assert "there is more than one Configuration; choose one with --config" in message


def test_a_configuration_that_is_named_goes_before_the_one_in_the_folder(tmp_path: Path) -> None:
    plain = tmp_path / "plain.yaml"
    plain.write_text(yaml.safe_dump(CONFIGURATION))
    folder = str(EXAMPLES / "fair-sharing-2-1")
    shares = []
    for arguments in ([], ["--config", str(plain)]):
        parsed = orjson.loads(mkctl("simulate", "-f", folder, *arguments, *NOW, "-o", "json").stdout)
        shares.append(parsed["clusterQueues"]["red"]["weightedShare"])
    assert shares[0] > 0
    assert shares[1] == 0


def test_there_must_be_something_to_compare_with(tmp_path: Path) -> None:
    path = write(tmp_path, workload("only"))
    stderr = mkctl("simulate", "-f", str(EXAMPLES / "reclaim"), "--diff", path, code=2).stderr
    assert "the other manifests contain no queue, flavor or class" in stderr


@pytest.mark.parametrize(
    ("value", "cycles", "want"),
    [
        pytest.param(workload("w"), 0, "Pending", id="a waiting workload is pending"),
        pytest.param(workload("w", count=9), 1, "Inadmissible", id="one that does not fit is inadmissible"),
        pytest.param(workload("w"), 1, "Admitted", id="what got quota and has no checks is admitted"),
        pytest.param(
            workload("w", status=holding("QuotaReserved", "Admitted")), 0, "Admitted", id="a status admits by itself"
        ),
        pytest.param(workload("w", status={"conditions": [condition("Finished")]}), 0, "Finished", id="what has ended"),
        pytest.param(workload("w", spec={"queueName": "gone"}), 0, "NotQueued", id="what names a queue that is gone"),
        pytest.param(workload("w", spec={"active": False}), 0, "NotQueued", id="what was deactivated"),
    ],
)
def test_explain_shows_the_state_of_a_workload(tmp_path: Path, value: dict[str, Any], cycles: int, want: str) -> None:
    path = write(tmp_path, FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, value)
    arguments = ("explain", "workload/default/w", "-f", path, *NOW, "--cycles", str(cycles))
    assert orjson.loads(mkctl(*arguments, "-o", "json").stdout)["state"] == want
    assert f"workload/default/w: {want}" in mkctl(*arguments).stdout


def test_the_document_of_an_explanation_keeps_the_former_name_of_its_state(tmp_path: Path) -> None:
    path = write(tmp_path, FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, workload("w", count=9))
    found = orjson.loads(mkctl("explain", "workload/default/w", "-f", path, *NOW, "--cycles", "1", "-o", "json").stdout)
    assert (found["state"], found["standing"]) == ("Inadmissible", "Parked")


def test_explain_shows_how_much_is_missing_for_a_large_workload(tmp_path: Path) -> None:
    path = write(tmp_path, FLAVOR, CLUSTER_QUEUE, LOCAL_QUEUE, workload("w", count=9))
    parsed = orjson.loads(mkctl("explain", "workload/default/w", "-f", path, *NOW, "-o", "json").stdout)
    (flavor,) = parsed["podSets"][0]["flavors"]
    (row,) = flavor["resources"]
    assert (row["requested"], row["nominal"], row["used"]) == ("9", "4", "0")
    assert flavor["chosen"] is False
    assert parsed["victims"] == []


def test_a_queue_whose_flavor_names_a_topology_is_active_with_that_topology(tmp_path: Path) -> None:
    flavor = {**FLAVOR, "spec": {**FLAVOR.get("spec", {}), "topologyName": "racks", "nodeLabels": {"pool": "racked"}}}
    topology = {
        "apiVersion": FLAVOR["apiVersion"],
        "kind": "Topology",
        "metadata": {"name": "racks"},
        "spec": {"levels": [{"nodeLabel": "example.com/rack"}]},
    }

    def queue(*objects: dict[str, Any]) -> dict[str, Any]:
        path = write(tmp_path, flavor, CLUSTER_QUEUE, LOCAL_QUEUE, *objects)
        found: dict[str, Any] = orjson.loads(mkctl("simulate", "-f", path, *NOW, "-o", "json").stdout)
        assert (found["leftOut"], found["refused"]) == ([], [])
        return dict(found["clusterQueues"]["red"])

    assert queue()["reason"] == "TopologyNotFound"
    assert queue(topology)["active"] is True
