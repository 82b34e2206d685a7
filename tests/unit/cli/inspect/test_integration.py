# SPDX-License-Identifier: Apache-2.0
"""`mkctl integration check`: what it prints, and its exit status."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from multikueue.cli.inspect.integration import main
from tests.unit.jobs.declared.builders import PAGES, PAGES_OF_KINDS, WIDGET, blocks, example

JOB = """
apiVersion: example.com/v1
kind: Widget
metadata: {name: w, namespace: ns, labels: {kueue.x-k8s.io/queue-name: q}}
spec:
  size: 3
  template: {spec: {containers: [{name: c, resources: {requests: {cpu: 500m}}}]}}
"""


@pytest.fixture
def declaration(tmp_path: Path) -> Path:
    file = tmp_path / "widget.yaml"
    file.write_text(WIDGET)
    return file


@pytest.fixture
def job(tmp_path: Path) -> Path:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    return file


def test_pod_sets_state_and_remote_job_fit_80_columns(
    declaration: Path, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(declaration), "-f", str(job)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0] == "Widget ns/w (example.com/widget)"
    shown = [" ".join(line.split()) for line in lines]
    assert "main 3 cpu: 500m" in shown
    assert "queue q" in shown
    assert "finished -" in shown
    remote = yaml.safe_load("\n".join(lines[lines.index("On a worker:") + 1 :]))
    assert remote["spec"]["suspend"] is False
    assert remote["metadata"]["labels"]["kueue.x-k8s.io/multikueue-origin"] == "multikueue"


RUNTIME = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch-distributed}
spec:
  template:
    spec:
      replicatedJobs:
        - name: launcher
          template: {spec: {template: {spec: {containers: [{name: l, resources: {requests: {cpu: 250m}}}]}}}}
        - name: node
          template:
            metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
            spec: {template: {spec: {containers: [{name: node}]}}}
"""


def test_a_runtime_in_another_file_describes_the_pods(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {"job.yaml": blocks("trainjob")[0], "runtime.yaml": RUNTIME}
    arguments = ["check", "trainer.kubeflow.org/trainjob", "-o", "yaml"]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        arguments += ["-f", str(tmp_path / name)]
    assert main(arguments) == 0
    found = yaml.safe_load(capsys.readouterr().out)
    assert [(each["name"], each["count"]) for each in found["podSets"]] == [("launcher", 1), ("node", 4)]
    assert found["podSets"][0]["requests"] == {"cpu": "250m"}
    assert "runtime" not in found["remote"]


def test_the_output_can_be_read_by_programs(declaration: Path, job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(declaration), "-f", str(job), "-o", "yaml"]) == 0
    found = yaml.safe_load(capsys.readouterr().out)
    assert found["podSets"][0]["requests"] == {"cpu": "500m"}
    assert found["state"]["suspended"] is False


def test_every_mistake_of_a_declaration_is_printed_with_its_path(
    declaration: Path, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    declaration.write_text(WIDGET.replace("$.spec.size", "$..size").replace("kind: Widget", "kind: widget"))
    assert main(["check", str(declaration), "-f", str(job)]) == 1
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 2
    assert "widget.yaml: spec.resource.kind: " in error[0]
    assert "widget.yaml: spec.podSets[0].count.path: " in error[1]


def test_every_mistake_of_a_job_is_printed(declaration: Path, job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job.write_text(JOB.replace("size: 3", "size: -3"))
    assert main(["check", str(declaration), "-f", str(job)]) == 1
    error = capsys.readouterr().err
    assert "Widget ns/w: $.spec.size: expected a whole number" in error


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(JOB.replace("cpu: 500m", "cpu: much"), "much", id="a quantity"),
        pytest.param(
            JOB.replace("name: q", "name: q, kueue.x-k8s.io/max-exec-time-seconds: x"), "seconds", id="a label"
        ),
    ],
)
def test_a_job_that_cannot_be_queued_is_a_mistake(
    declaration: Path, job: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    job.write_text(text)
    assert main(["check", str(declaration), "-f", str(job)]) == 1
    assert problem in capsys.readouterr().err


def test_a_declaration_alone_is_checked(declaration: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(declaration)]) == 0
    assert capsys.readouterr().err == ""


def test_files_that_cannot_be_read_are_bad_input(
    declaration: Path, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "absent.yaml", "-f", str(job)]) == 2
    assert "shipped frameworks are" in capsys.readouterr().err
    assert main(["check", str(declaration), "-f", "absent.yaml"]) == 2
    job.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n")
    assert main(["check", str(declaration), "-f", str(job)]) == 2
    assert "expected a example.com/v1 Widget with a name, found none" in capsys.readouterr().err


@pytest.mark.parametrize("page", PAGES_OF_KINDS)
def test_the_example_of_every_page_passes(page: str, job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (text,) = blocks(page)
    job.write_text(text)
    kind = example(page)["kind"]
    (line,) = [line for line in (PAGES / f"{page}.md").read_text().splitlines() if line.startswith("| Framework | ")]
    assert main(["check", line.split("`")[1], "-f", str(job)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{kind} team-a/{page}-sample")
    # Names in the remote job are not broken.
    assert max(map(len, lines[: lines.index("On a worker:")])) <= 80


def test_the_remote_job_of_an_external_framework_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    *_, pipeline, _ = blocks("external-frameworks")
    file = tmp_path / "nightly.yaml"
    file.write_text(pipeline)
    assert main(["check", "Pipeline.v1.ci.example.com", "-f", str(file)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Pipeline team-a/nightly (ci.example.com/pipeline)"
    remote = yaml.safe_load("\n".join(lines[lines.index("On a worker:") + 1 :]))
    assert remote["spec"] == {"steps": ["build", "test"]}
