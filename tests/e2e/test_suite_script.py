# SPDX-License-Identifier: Apache-2.0
"""`hack/suite.sh` runs what was written for Kueue on kind, hands its exit code on, and leaves nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
SUITE = ROOT / "hack" / "suite.sh"
CLIENT = ROOT / "tests" / "e2e" / "kind_suite.sh"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    state, artifacts = str(tmp_path / "state"), str(tmp_path / "artifacts")
    return {**os.environ, "XDG_STATE_HOME": state, "SCRATCH": str(scratch), "ARTIFACTS": artifacts}


def start(environment: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(SUITE), *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(suite: subprocess.Popen[str]) -> tuple[int, str, str]:
    with suite:
        output, errors = suite.communicate(timeout=200)
    return suite.returncode, output, errors


def left_over(tmp_path: Path) -> list[str]:
    folder = tmp_path / "state" / "multikueue"
    return sorted(each.name for each in folder.iterdir()) if folder.exists() else []


@pytest.mark.parametrize(
    "provider",
    [pytest.param("embedded", id="embedded"), pytest.param("binaries", marks=pytest.mark.binaries, id="binaries")],
)
def test_a_suite_for_three_kind_clusters_passes_as_it_is(
    environment: dict[str, str], tmp_path: Path, provider: str, request: pytest.FixtureRequest
) -> None:
    if provider == "binaries":
        request.getfixturevalue("kube_binaries")
    code, _, errors = finish(start(environment, "--federation", "three", "--provider", provider, "--", str(CLIENT)))
    assert (code, "== done" in errors) == (0, True), errors
    assert left_over(tmp_path) == []


def test_suites_side_by_side_each_hand_on_their_own_exit_code(environment: dict[str, str], tmp_path: Path) -> None:
    script = (
        'echo "$KIND_CLUSTER_NAME $(kubectl config current-context)";'
        " kubectl get nodes -o name; exit $(kubectl get nodes -l pool=gpu -o name | wc -l)"
    )
    command = ("--workers", "0", "--nodes", "3", "--node-label", "pool=gpu", "--", "bash", "-c", script)
    suites = [start(environment, "--federation", name, *command) for name in ("one", "two")]
    for name, (code, output, errors) in zip(("one", "two"), [finish(suite) for suite in suites], strict=True):
        assert code == 3, errors
        assert output.splitlines()[0] == f"{name} kind-{name}"
        assert "node/node-3" in output
        kept = tmp_path / "artifacts" / name
        assert f"the logs of clusters and managers are in {kept}" in errors
        assert list(kept.rglob("kueue-controller-manager-*.log"))
    assert left_over(tmp_path) == []


def test_a_federation_that_is_there_already_is_left_alone(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "state" / "multikueue" / "mine").mkdir(parents=True)
    code, _, errors = finish(start(environment, "--federation", "mine", "--", "true"))
    assert (code, "federation mine exists" in errors) == (125, True)
    assert left_over(tmp_path) == ["mine"]


def test_a_bad_option_ends_it_with_what_mkctl_says(environment: dict[str, str], tmp_path: Path) -> None:
    code, _, errors = finish(start(environment, "--node-taint", "x", "--", "true"))
    assert (code, "expected a taint such as" in errors) == (125, True)
    assert left_over(tmp_path) == []


def test_without_a_command_it_says_how_it_is_used(environment: dict[str, str]) -> None:
    code, _, errors = finish(start(environment, "--federation", "x"))
    assert (code, "hack/suite.sh [--federation NAME]" in errors) == (2, True)
