# SPDX-License-Identifier: Apache-2.0
"""The command line of the agent, and its log lines."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest

from multikueue.core.errors import BadInput
from tests.unit.jobs.declared.builders import blocks
from worker_agent import options
from worker_agent.logs import JsonLines

BASE = ["--cluster", "w1", "--hub-kubeconfig", "hub"]


def test_defaults_are_those_of_the_reference() -> None:
    found = options.parse(BASE)
    assert (found.cluster, found.hub_kubeconfig, found.kubeconfig, found.origin) == ("w1", "hub", None, "multikueue")
    assert (found.intervals.renew_seconds, found.intervals.lease_seconds, found.intervals.report_seconds) == (
        10,
        40,
        10,
    )
    assert found.intervals.status_window_seconds == 1


def test_a_rhythm_can_be_scaled_down() -> None:
    given = [*BASE, "--renew-seconds", "0.2", "--lease-seconds", "2", "--report-seconds", "1"]
    assert options.parse(given).intervals.renew_seconds == 0.2


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (["--renew-seconds", "40"], "below --lease-seconds 40"),
        (["--renew-seconds", "0"], "above 0"),
        (["--status-window-seconds", "11"], "must not be longer"),
    ],
)
def test_a_rhythm_that_cannot_work_is_refused(wrong: list[str], match: str) -> None:
    with pytest.raises(BadInput, match=match):
        options.parse([*BASE, *wrong])


def test_the_kinds_are_those_of_the_managers_list_that_workers_can_run() -> None:
    assert [each.framework for each in options.parse(BASE).integrations] == ["batch/job"]
    given = [*BASE, "--frameworks", "jobset.x-k8s.io/jobset, pod,batch/job"]
    found = [each.framework for each in options.parse(given).integrations]
    assert found == ["jobset.x-k8s.io/jobset", "pod", "batch/job"]


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(BadInput, match=r'--frameworks: expected some of batch/job, .*, found "batch/jobs", "x"'):
        options.parse([*BASE, "--frameworks", "batch/jobs,x"])


def test_a_kind_of_ones_own_is_read_from_its_declaration(tmp_path: Path) -> None:
    (declaration,) = (text for text in blocks("your-own-kind") if text.startswith("apiVersion: multikueue.io/v1alpha1"))
    file = tmp_path / "kinds.yaml"
    file.write_text(declaration)
    (found,) = options.parse(
        [*BASE, "--frameworks", "studio.example.com/render", "--job-kinds", str(file)]
    ).integrations
    assert (found.framework, found.resource.group) == ("studio.example.com/render", "studio.example.com")


def test_a_mistake_in_a_declaration_is_named_with_its_path(tmp_path: Path) -> None:
    file = tmp_path / "kinds.yaml"
    file.write_text("kind: JobKind\nmetadata: {name: a.b/c}\n")
    with pytest.raises(BadInput, match=r"declarations\[0\]\.spec: missing"):
        options.parse([*BASE, "--frameworks", "a.b/c", "--job-kinds", str(file)])
    with pytest.raises(BadInput, match="cannot read it: No such file"):
        options.parse([*BASE, "--job-kinds", str(tmp_path / "none")])


def test_external_kinds_are_served_beside_the_frameworks_with_the_plural_that_is_given() -> None:
    given = [*BASE, "--external-frameworks", "Run.v1.ci.example.com, Fish.v2beta1.sea.example.com=fish"]
    job, run, fish = options.parse(given).integrations
    assert job.framework == "batch/job"
    assert (run.resource.group, run.resource.version, run.resource.plural) == ("ci.example.com", "v1", "runs")
    assert (fish.resource.kind, fish.resource.version, fish.resource.plural) == ("Fish", "v2beta1", "fish")


@pytest.mark.parametrize(
    ("names", "match"),
    [
        ("Run,run.v1.b.c", "expected Kind.version.group, got 'Run'; expected a kind in upper camel case"),
        ("Job.v1.batch", "is a built-in integration"),
        ("Run.v1.b.c,Run.v1.b.c", "is named twice"),
        ("Deployment.v1.apps", "objects of the group apps are no jobs"),
    ],
)
def test_a_mistake_in_an_external_kind_is_named(names: str, match: str) -> None:
    with pytest.raises(BadInput, match=rf"--external-frameworks: .*{re.escape(match)}"):
        options.parse([*BASE, "--external-frameworks", names])


def test_an_external_kind_with_a_declaration_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "kinds.yaml"
    file.write_text(next(text for text in blocks("your-own-kind") if text.startswith("apiVersion: multikueue.io")))
    given = ["--job-kinds", str(file), "--external-frameworks", "Render.v1.studio.example.com"]
    with pytest.raises(BadInput, match=r"Render of \S+ is a job of studio\.example\.com/render already"):
        options.parse([*BASE, *given])


def test_a_log_line_is_one_json_object() -> None:
    record = logging.LogRecord("x.y", logging.WARNING, __file__, 1, "job %s: %s", ("a", 'quote " and\nnewline'), None)
    line = JsonLines("w1").format(record)
    assert "\n" not in line
    entry = json.loads(line)
    assert entry["ts"].endswith("Z")
    assert (entry["level"], entry["cluster"], entry["msg"]) == ("warning", "w1", 'job a: quote " and\nnewline')
