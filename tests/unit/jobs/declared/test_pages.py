# SPDX-License-Identifier: Apache-2.0
"""docs/jobs: the walk-through is run as it is written, and the table has every kind."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from multikueue.api.configuration_file import load
from multikueue.cli.inspect.integration import main
from multikueue.jobs.declared.integration import DeclaredIntegration
from multikueue.jobs.declared.reading import read_declaration
from multikueue.jobs.declared.shipped import configured_integrations, declared_integrations
from multikueue.jobs.framework.protocol import Reclaimable
from multikueue.jobs.framework.registry import known_integrations
from tests.unit.jobs.declared.builders import IDENTITY, PAGES, blocks, infos, workload, written

CRD, DECLARATION, JOB, CONFIGURATION, ROLE = blocks("your-own-kind")


def render(**status: Any) -> dict[str, Any]:
    job: dict[str, Any] = yaml.safe_load(JOB)
    job["metadata"]["uid"] = "u"
    job["spec"] |= {"paused": True, "managedBy": "kueue.x-k8s.io/multikueue"}
    return job | {"status": status}


@pytest.fixture
def kind() -> DeclaredIntegration:
    return DeclaredIntegration(read_declaration(DECLARATION, origin="render-kind.yaml"))


def test_the_output_of_the_page_is_that_of_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    declaration, job = tmp_path / "render-kind.yaml", tmp_path / "opening.yaml"
    declaration.write_text(DECLARATION)
    job.write_text(JOB)
    assert main(["check", str(declaration), "-f", str(job)]) == 0
    printed = capsys.readouterr().out.partition("On a worker:")[0]
    shown = re.findall(r"prints\n\n```\n(.*?)```", (PAGES / "your-own-kind.md").read_text(), re.DOTALL)
    assert [line.rstrip() for line in printed.rstrip().splitlines()] == shown[0].rstrip().splitlines()


def test_a_kind_that_the_code_has_never_seen_runs_and_stops(kind: DeclaredIntegration) -> None:
    job = render()
    of = workload(job, kind)
    assert [(each["name"], each["count"]) for each in of["spec"]["podSets"]] == [("sky", 4), ("people", 6), ("join", 1)]
    added = infos(job, kind)
    started = written(job, kind.start(job, added))
    assert started["spec"]["paused"] is False
    assert started["spec"]["layers"][1]["pod"]["spec"]["nodeSelector"] == {"pool": "spot"}
    assert kind.matches(started, of, added)
    assert written(started, kind.stop(started, of["spec"]["podSets"])) == job


def test_its_status_is_read(kind: DeclaredIntegration) -> None:
    layers = [{"name": "sky", "ready": 4, "running": 4}, {"name": "people", "ready": 2, "running": 2, "done": 1}]
    job = render(phase="Rendering", layers=layers)
    assert kind.is_active(job)
    assert not kind.pods_ready(job)
    assert kind.reclaimable(job) == (Reclaimable(name="people", count=1),)
    end = kind.finished(render(phase="Broken", text="no sky"))
    assert end is not None
    assert (end.reason, end.message) == ("Failed", "no sky")


def test_its_remote_job_is_made_and_its_status_is_shown(kind: DeclaredIntegration) -> None:
    remote = kind.remote_manifest(render(), infos(render(), kind), identity=IDENTITY)
    assert remote["spec"].keys() == {"layers", "join", "paused"}
    assert remote["spec"]["paused"] is False
    shown = written(render(), kind.sync_status(render(), {"phase": "Rendered"}).write)
    assert kind.finished(shown) is not None


def test_a_job_without_layers_is_refused(kind: DeclaredIntegration) -> None:
    job = render()
    del job["spec"]["layers"]
    assert kind.job_refusals(job) == ("$.spec.layers: a Render needs at least one layer",)


def test_the_definition_and_the_role_are_of_the_declared_resource(kind: DeclaredIntegration) -> None:
    definition, role = yaml.safe_load(CRD), yaml.safe_load(ROLE)
    assert definition["metadata"]["name"] == kind.resource.qualified
    assert definition["spec"]["names"]["kind"] == kind.resource.kind
    assert [version["name"] for version in definition["spec"]["versions"]] == [kind.resource.version]
    assert {rule["apiGroups"][0] for rule in role["rules"]} == {kind.resource.group}
    assert role["rules"][0]["resources"] == [kind.resource.plural]


def test_the_configuration_enables_it() -> None:
    settings = load(CONFIGURATION).integrations
    found = configured_integrations(settings.declarations)
    assert set(settings.frameworks) - {"batch/job"} <= found.keys()


def test_every_field_of_a_declaration_is_in_the_table_of_the_page(kind: DeclaredIntegration) -> None:
    text = (PAGES / "your-own-kind.md").read_text()
    table = text.partition("| field | what it is |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`(\w+)", table))
    assert {field.alias for field in type(kind.spec).model_fields.values()} <= named


def test_the_table_has_every_kind_and_counts_no_python_for_one_that_is_only_declared() -> None:
    rows = re.findall(
        r"^\| \[\w+\]\((\w+)\.md\) \| `(\S+)` \| (\d+|–) \| (\d+|–) \|", (PAGES / "README.md").read_text(), re.M
    )
    known = known_integrations()
    assert [framework for _, framework, _, _ in rows] != []
    assert {framework for _, framework, _, _ in rows} == known.keys()
    assert {page for page, _, _, _ in rows} == {each.resource.kind.lower() for each in known.values()}
    for _, framework, yaml_lines, python_lines in rows:
        assert (yaml_lines == "–") == (framework not in declared_integrations())
        assert (python_lines == "–") == (type(known[framework]) is DeclaredIntegration)
