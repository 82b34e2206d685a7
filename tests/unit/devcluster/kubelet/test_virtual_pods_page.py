# SPDX-License-Identifier: Apache-2.0
"""The page on virtual pods names every annotation, its example works, and `mkctl up --help` leads to it."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from typer.testing import CliRunner

from devcluster.kubelet import behaviour
from devcluster.kubelet.behaviour import behaviour_of
from multikueue.api import constants
from multikueue.cli import main

PATH = "docs/reference/virtual-pods.md"
PAGE = (Path(__file__).parents[4] / PATH).read_text()


def test_every_annotation_of_behaviour_has_a_row() -> None:
    known = {
        constants.RUN_FOR_ANNOTATION,
        constants.EXIT_CODE_ANNOTATION,
        constants.FAIL_ONCE_ANNOTATION,
        constants.READY_AFTER_ANNOTATION,
        constants.NEVER_READY_ANNOTATION,
        behaviour.PULL_FAILS_ANNOTATION,
        behaviour.STOP_AFTER_ANNOTATION,
    }
    assert known == set(re.findall(r"`(multikueue[.]io/[a-z-]+)", behaviour.__doc__ or ""))
    assert known == set(re.findall(r"^[|] `(multikueue[.]io/[a-z-]+)", PAGE, re.MULTILINE))


def test_the_example_on_the_page_does_what_it_says() -> None:
    example = PAGE.partition("```yaml\n")[2].partition("```")[0]
    template = yaml.safe_load(example)["spec"]["template"]
    made = behaviour_of(template)
    assert (made.run_for, made.fail_once, made.restart_policy) == (30.0, True, "Never")


def test_the_help_of_up_leads_to_the_page() -> None:
    shown = CliRunner().invoke(main.build(["up", "--help"]), ["up", "--help"]).output
    assert PATH in re.sub(r"\s+", " ", shown)
    assert "kubectl top" in re.sub(r"\s+", " ", shown)


def test_the_page_explains_why_kubectl_top_has_no_figures() -> None:
    assert "error: Metrics API not available" in PAGE
