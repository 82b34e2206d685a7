# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from typer.testing import CliRunner, Result

from multikueue.cli.inspect.manifest_options import configured
from multikueue.cli.main import build

EXAMPLES = Path(__file__).parents[3] / "deploy" / "examples"
T0 = "2026-01-01T09:00:00Z"
NOW = ("--now", T0)


def mkctl(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(build(arguments), arguments)
    assert result.exit_code == code, result.output
    return result


def simulate(*arguments: str) -> dict[str, Any]:
    parsed: dict[str, Any] = orjson.loads(mkctl("simulate", *arguments, *NOW, "-o", "json").stdout)
    return parsed


def example(name: str, *arguments: str) -> dict[str, Any]:
    return simulate("-f", str(EXAMPLES / name), *arguments)


def outcomes(result: dict[str, Any]) -> list[tuple[str, str]]:
    return [(d["workload"], d["outcome"]) for cycle in result["cycles"] for d in cycle["decisions"]]


@pytest.mark.parametrize(
    ("name", "want"),
    [
        pytest.param(
            "borrowing",
            [("blue/small", "Reserved"), ("red/big", "Reserved"), ("blue/late", "Pending")],
            id="what is borrowed is missing to its owner",
        ),
        pytest.param(
            "lending-limit",
            [("blue/own", "Reserved"), ("red/fits", "Reserved"), ("red/too-big", "Pending")],
            id="no more is lent than the limit",
        ),
        pytest.param(
            "reclaim",
            [
                ("blue/owner", "Preempting"),
                ("blue/owner", "Reserved"),
                ("red/modest", "Skipped"),
                ("red/modest", "Pending"),
            ],
            id="an owner takes its quota back",
        ),
        pytest.param(
            "priority-preemption",
            [("red/incident", "Preempting"), ("red/incident", "Reserved"), ("red/nightly", "Pending")],
            id="the least important goes",
        ),
        pytest.param(
            "spot-then-on-demand",
            [
                ("red/cheap", "Reserved"),
                ("red/overflow", "Reserved"),
                ("red/steady", "Reserved"),
                ("red/waiting", "Pending"),
            ],
            id="flavors are taken in order",
        ),
        pytest.param(
            "devices",
            [("red/job-train-e5b0e", "Reserved"), ("red/job-late-0f6f2", "Pending")],
            id="devices of all pods count, and a job without a template is in no queue",
        ),
        pytest.param("stop-policy-hold", [], id="a held queue decides nothing"),
    ],
)
def test_an_example_decides_as_its_page_shows(name: str, want: list[tuple[str, str]]) -> None:
    assert outcomes(example(name)) == want


def test_fair_sharing_ends_two_to_one_with_equal_shares() -> None:
    queues = example("fair-sharing-2-1")["clusterQueues"]
    assert [queues[name]["reserving"] for name in ("red", "blue")] == [6, 3]
    assert queues["red"]["weightedShare"] == queues["blue"]["weightedShare"]


def test_a_drained_queue_gives_its_quota_back_and_a_held_one_does_not() -> None:
    drained = example("stop-policy-hold-and-drain")
    assert drained["stopped"] == [
        {"workload": "red/running", "reason": "ClusterQueueStopped", "message": "The ClusterQueue is stopped"}
    ]
    assert drained["clusterQueues"]["red"]["usage"] == {"default": {"cpu": "0"}}
    assert example("stop-policy-hold")["clusterQueues"]["red"]["usage"] == {"default": {"cpu": "2"}}


def test_every_example_gives_a_table() -> None:
    for folder in sorted(path for path in EXAMPLES.iterdir() if path.is_dir()):
        assert "CLUSTERQUEUE" in mkctl("simulate", "-f", str(folder), *NOW).stdout, folder


def test_no_line_and_no_header_is_broken_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    headers = "CLUSTERQUEUE ACTIVE USED/NOMINAL   BORROWED RESERVING PENDING INADMISSIBLE SHARE"
    lines = mkctl("simulate", "-f", str(EXAMPLES / "two-teams"), *NOW).stdout.splitlines()
    assert " ".join(headers.split()) in [" ".join(line.split()) for line in lines]
    for folder in sorted(path for path in EXAMPLES.iterdir() if path.is_dir()):
        shown = mkctl("simulate", "-f", str(folder), *NOW).stdout.splitlines()
        assert [line for line in shown if len(line.rstrip()) > 80] == [], folder


def test_the_document_has_the_documented_keys() -> None:
    result = example("reclaim")
    (first, *_) = result["cycles"][0]["decisions"]
    assert first | {"message": ""} == {
        "workload": "blue/owner",
        "clusterQueue": "blue",
        "outcome": "Preempting",
        "reason": "WaitingForPreemptedWorkloads",
        "message": "",
        "borrows": False,
        "borrowingLevel": 0,
        "podSets": [{"name": "main", "count": 1, "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "3"}}],
        "lastTriedFlavorIndex": [{"cpu": -1}],
        "victims": [{"workload": "red/modest", "reason": "InCohortReclamation", "rule": first["victims"][0]["rule"]}],
    }
    assert result["clusterQueues"]["red"]["inadmissible"] == ["red/modest"]
    assert result["cohorts"]["company"]["subtreeQuota"] == {"default": {"cpu": "6"}}
    assert yaml.safe_load(mkctl("simulate", "-f", str(EXAMPLES / "reclaim"), *NOW, "-o", "yaml").stdout) == result


def test_one_cycle_without_eviction_can_be_judged() -> None:
    result = example("reclaim", "--cycles", "1", "--evict", "never")
    assert len(result["cycles"]) == 1
    assert result["clusterQueues"]["red"]["reserving"] == 2


def test_a_change_of_quota_shows_which_workloads_change(tmp_path: Path) -> None:
    queues = (EXAMPLES / "lending-limit" / "queues.yaml").read_text()
    (tmp_path / "queues.yaml").write_text(queues.replace("nominalQuota: 6, lendingLimit: 2", "nominalQuota: 20"))
    diff = example("lending-limit", "--diff", str(tmp_path))["diff"]
    change = {"workload": "red/too-big", "before": "Pending", "after": "Reserved in red on default x1"}
    assert diff == {"changes": [change], "unchanged": 2}
    table = mkctl("simulate", "-f", str(EXAMPLES / "lending-limit"), *NOW, "--diff", str(tmp_path)).stdout
    assert "WITH THE OTHERS" in table


def write(folder: Path, *documents: dict[str, Any]) -> str:
    path = folder / "manifests.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def workload(queue: str = "jobs") -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w"},
        "spec": {"queueName": queue, "podSets": [pod_set]},
    }


def cluster_queue(flavor: str = "gone") -> dict[str, Any]:
    flavors = [{"name": flavor, "resources": [{"name": "cpu", "nominalQuota": "4"}]}]
    groups = [{"coveredResources": ["cpu"], "flavors": flavors}]
    spec = {"namespaceSelector": {}, "resourceGroups": groups}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": "red"}, "spec": spec}


LOCAL_QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "LocalQueue",
    "metadata": {"name": "jobs"},
    "spec": {"clusterQueue": "red"},
}
FLAVOR = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "gone"}}


@pytest.mark.parametrize(
    ("documents", "want"),
    [
        pytest.param([workload()], "LocalQueue jobs doesn't exist", id="no LocalQueue"),
        pytest.param([workload(), LOCAL_QUEUE], "ClusterQueue red doesn't exist", id="no ClusterQueue"),
    ],
)
def test_a_broken_reference_gives_the_managers_message(
    tmp_path: Path, documents: list[dict[str, Any]], want: str
) -> None:
    (entry,) = simulate("-f", write(tmp_path, *documents))["notQueued"]
    assert entry == {"workload": "default/w", "reason": "Misconfigured", "message": want}


def test_a_missing_flavor_makes_its_queue_inactive_and_is_named(tmp_path: Path) -> None:
    queue = simulate("-f", write(tmp_path, workload(), LOCAL_QUEUE, cluster_queue()))["clusterQueues"]["red"]
    assert (queue["active"], queue["reason"]) == (False, "FlavorNotFound")
    assert "references missing ResourceFlavor(s): gone" in queue["message"]


def test_a_job_is_queued_as_the_workload_that_the_manager_would_make(tmp_path: Path) -> None:
    template = workload()["spec"]["podSets"][0]["template"]
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "labels": {"kueue.x-k8s.io/queue-name": "jobs"}},
        "spec": {"parallelism": 3, "template": template},
    }
    result = simulate("-f", write(tmp_path, job, LOCAL_QUEUE, cluster_queue(), FLAVOR))
    ((name, outcome),) = outcomes(result)
    assert (name.startswith("default/job-train-"), outcome) == (True, "Reserved")
    assert result["clusterQueues"]["red"]["usage"] == {"gone": {"cpu": "3"}}


def test_a_namespace_that_is_not_among_those_given_does_not_exist(tmp_path: Path) -> None:
    other = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}
    result = simulate("-f", write(tmp_path, other, workload(), LOCAL_QUEUE, cluster_queue(), FLAVOR))
    (decision,) = result["cycles"][0]["decisions"]
    assert decision["outcome"] == "Inadmissible"
    assert 'namespace "default" does not exist' in decision["message"]


def test_a_workload_in_an_inactive_queue_has_a_reason(tmp_path: Path) -> None:
    result = simulate("-f", write(tmp_path, workload(), LOCAL_QUEUE, cluster_queue()))
    want = {"workload": "default/w", "reason": "Suspended", "message": "ClusterQueue red is inactive"}
    assert result["notQueued"] == [want]
    assert result["clusterQueues"]["red"]["pending"] == ["default/w"]


def named(name: str, **metadata: str) -> dict[str, Any]:
    return workload() | {"metadata": {"name": name, **metadata}}


def test_without_times_the_order_is_that_of_the_manifests_and_old_ones_go_before(tmp_path: Path) -> None:
    old = named("old", creationTimestamp="2026-01-01T00:00:00Z")
    result = simulate("-f", write(tmp_path, named("w2"), named("w10"), old, LOCAL_QUEUE, cluster_queue(), FLAVOR))
    assert [name for name, _ in outcomes(result)] == ["default/old", "default/w2", "default/w10"]


def test_a_generated_name_is_completed(tmp_path: Path) -> None:
    generated = workload() | {"metadata": {"generateName": "w-"}}
    result = simulate("-f", write(tmp_path, FLAVOR, generated, LOCAL_QUEUE, cluster_queue()))
    assert outcomes(result) == [("default/w-00002", "Reserved")]


def test_equals_of_what_found_no_place_are_bypassed(tmp_path: Path) -> None:
    large = workload()
    large["spec"]["podSets"][0]["count"] = 9
    documents = (large | {"metadata": {"name": name}} for name in ("a", "b", "c"))
    path = write(tmp_path, *documents, LOCAL_QUEUE, cluster_queue(), FLAVOR)
    (cycle,) = simulate("-f", path)["cycles"]
    assert [entry["workload"] for entry in cycle["decisions"]] == ["default/a"]
    assert [entry["workload"] for entry in cycle["bypassed"]] == ["default/b", "default/c"]
    assert "2 equal ones" in mkctl("simulate", "-f", path, *NOW).stdout


def test_an_object_of_a_kind_that_only_sounds_alike_is_passed_over(tmp_path: Path) -> None:
    other = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {}}
    kustomization = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": []}
    assert simulate("-f", write(tmp_path, other, kustomization))["cycles"] == []


@pytest.mark.parametrize(
    ("change", "want"),
    [
        pytest.param({"metadata": {}}, "an object needs metadata.name", id="no name"),
        pytest.param({"metadata": "w"}, "an object needs metadata.name", id="metadata that is text"),
        pytest.param({"spec": []}, 'Workload default/w: spec: Invalid value: "array"', id="a list for a spec"),
        pytest.param(
            {
                "spec": {
                    "podSets": [{"template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "1x"}}}]}}}]
                }
            },
            "containers[0].resources.requests",
            id="no quantity",
        ),
        pytest.param({"spec": {"podSets": [{"count": "many"}]}}, 'count: Invalid value: "string"', id="text"),
        pytest.param(
            {"status": {"admissionChecks": [{"name": "c", "state": "Maybe", "lastTransitionTime": T0}]}},
            'state: Unsupported value: "Maybe"',
            id="a state",
        ),
    ],
)
def test_a_workload_of_the_wrong_shape_is_one_line(tmp_path: Path, change: dict[str, Any], want: str) -> None:
    result = mkctl("simulate", "-f", write(tmp_path, workload() | change), code=1)
    assert want in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_text_in_square_brackets_is_shown_as_it_is(tmp_path: Path) -> None:
    resources = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}
    broken = workload()
    broken["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"] = resources
    path = write(tmp_path, broken, LOCAL_QUEUE, cluster_queue(), FLAVOR)
    (decision,) = simulate("-f", path)["cycles"][0]["decisions"]
    assert decision["outcome"] == "Inadmissible"
    table = " ".join(mkctl("simulate", "-f", path, *NOW).stdout.split())
    assert decision["message"] in table


def test_a_changed_queue_alone_is_enough_to_compare_with(tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    bigger = cluster_queue()
    bigger["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = 20
    other.write_text(yaml.safe_dump(bigger))
    large = workload()
    large["spec"]["podSets"][0]["count"] = 9
    diff = simulate("-f", write(tmp_path, large, LOCAL_QUEUE, cluster_queue(), FLAVOR), "--diff", str(other))["diff"]
    assert diff["changes"] == [{"workload": "default/w", "before": "Pending", "after": "Reserved in red on gone x9"}]


def test_no_configuration_is_the_same_as_an_empty_one(tmp_path: Path) -> None:
    empty = tmp_path / "config.yaml"
    empty.write_text("{apiVersion: config.kueue.x-k8s.io/v1beta2, kind: Configuration}")
    assert configured(None, []).settings == configured(empty, []).settings


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        pytest.param(["-f", "/no/such"], "/no/such: no such file", id="no file"),
        pytest.param(["-f", str(EXAMPLES / "reclaim"), "--now", "noon"], "RFC 3339", id="no time"),
        pytest.param(
            ["-f", str(EXAMPLES / "reclaim"), "--config", "/no/such"], "/no/such: cannot read", id="no config"
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_status_2(arguments: list[str], want: str) -> None:
    result = mkctl("simulate", *arguments, code=2)
    assert want in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_object_of_the_wrong_shape_is_named_with_its_file(tmp_path: Path) -> None:
    path = write(tmp_path, cluster_queue() | {"spec": {"resourceGroups": [7]}})
    result = mkctl("simulate", "-f", path, code=1)
    assert f'{path}:1: ClusterQueue red: spec.resourceGroups[0]: Invalid value: "integer"' in result.stderr


def test_simulate_imports_no_client() -> None:
    arguments = ["simulate", "-f", str(EXAMPLES / "reclaim"), "-o", "json"]
    script = (
        f"import sys; sys.argv = ['mkctl', *{arguments!r}]\n"
        "from multikueue.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "slow = ('aiohttp', 'multikueue.kube', 'rich', 'typer')\n"
        "print([name for name in slow if name in sys.modules],"
        " file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stderr.strip() == "[]"


def test_explain_shows_the_figures_and_the_victims() -> None:
    page = mkctl("explain", "workload/blue/owner", "-f", str(EXAMPLES / "reclaim"), *NOW).stdout
    assert "workload/blue/owner: Pending, number 1 in blue" in page
    assert "red/modest" in page
    arguments = ("workload/blue/owner", "-f", str(EXAMPLES / "reclaim"), *NOW, "-o", "json")
    parsed = orjson.loads(mkctl("explain", *arguments).stdout)
    assert parsed["podSets"][0]["flavors"][0]["resources"][0]["short"] == "2"
    assert [victim["workload"] for victim in parsed["victims"]] == ["red/modest"]


@pytest.mark.parametrize(
    ("target", "want"),
    [
        pytest.param("blue/owner", "use workload/NAMESPACE/NAME", id="no kind"),
        pytest.param("workload/blue/unknown", "is not in the manifests; they have workload/blue/owner", id="unknown"),
    ],
)
def test_explain_of_an_unknown_workload_lists_the_known_ones(target: str, want: str) -> None:
    assert want in mkctl("explain", target, "-f", str(EXAMPLES / "reclaim"), code=2).stderr


def test_the_command_of_the_readme_shows_active_queues_and_where_its_job_gets_quota() -> None:
    result = example("two-teams", "-f", str(EXAMPLES / "two-teams-job.yaml"))
    assert {name: queue["active"] for name, queue in result["clusterQueues"].items()} == {
        "team-a": True,
        "team-b": True,
    }
    ((workload, outcome),) = outcomes(result)
    assert (workload.startswith("team-a/job-hello-"), outcome) == (True, "Reserved")
    explained = mkctl(
        "explain",
        f"workload/{workload}",
        "-f",
        str(EXAMPLES / "two-teams"),
        "-f",
        str(EXAMPLES / "two-teams-job.yaml"),
        *NOW,
    )
    assert "Pod set main x2: fits." in explained.stdout


@pytest.mark.parametrize(
    ("conditions", "active"),
    [
        pytest.param([], True, id="no condition"),
        pytest.param([{"type": "Other", "status": "False"}], True, id="another condition"),
        pytest.param([{"type": "Active", "status": "True"}], True, id="active"),
        pytest.param([{"type": "Active", "status": "False"}], False, id="not active"),
        pytest.param([{"type": "Active", "status": "Unknown"}], False, id="not known"),
    ],
)
def test_a_check_is_active_in_a_simulation_unless_its_status_is_false(
    conditions: list[dict[str, str]], active: bool, tmp_path: Path
) -> None:
    check = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": "workers"},
        "spec": {"controllerName": "kueue.x-k8s.io/multikueue"},
        "status": {
            "conditions": [
                {"reason": "R", "message": "m", "lastTransitionTime": T0, **condition} for condition in conditions
            ]
        },
    }
    (tmp_path / "check.yaml").write_text(yaml.safe_dump(check))
    queues = EXAMPLES / "two-teams" / "20-cluster-queues.yaml"
    result = simulate("-f", str(tmp_path), "-f", str(queues))
    assert result["clusterQueues"]["team-a"]["active"] is active


def test_no_example_is_of_a_version_that_is_not_stored() -> None:
    documents = [each for path in EXAMPLES.rglob("*.yaml") for each in yaml.safe_load_all(path.read_text())]
    assert {each["apiVersion"] for each in documents if "kueue.x-k8s.io" in each["apiVersion"]} == {
        "kueue.x-k8s.io/v1beta2",
        "config.kueue.x-k8s.io/v1beta2",
    }
