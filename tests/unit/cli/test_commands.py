# SPDX-License-Identifier: Apache-2.0
"""mkctl's commands: exit codes, tables and JSON over what a federation told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner, Result

from multikueue.cli import main
from multikueue.devcluster import state
from multikueue.devcluster.state import ClusterState, ComponentState, Phase, State


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "multikueue"


@pytest.fixture
def federation(home: Path) -> Iterator[Path]:
    """A federation whose supervisor seems to be this process."""
    folder = home / "default"
    (folder / "hub").mkdir(parents=True)
    (folder / "hub" / "kubeconfig").write_text("content of the kubeconfig")
    State(
        name="default",
        provider="binaries",
        phase=Phase.UP,
        supervisor=os.getpid(),
        clusters=[
            ClusterState(
                name="hub", role="hub", server="https://127.0.0.1:1", kubeconfig=str(folder / "hub" / "kubeconfig")
            )
        ],
        components=[
            ComponentState(owner="hub", name="apiserver", pid=os.getpid(), running=True, log=str(folder / "log"))
        ],
    ).write(folder)
    with state.supervising(folder):
        yield folder


def mkctl(*arguments: str) -> Result:
    return CliRunner().invoke(main.build(arguments), list(arguments))


def test_help_lists_every_command_without_importing_one() -> None:
    result = mkctl("--help")
    assert result.exit_code == 0
    for name in main.COMMANDS:
        assert name in result.output


@pytest.mark.parametrize("name", sorted(main.COMMANDS))
def test_every_command_explains_itself(name: str) -> None:
    result = mkctl(name, "--help")
    assert result.exit_code == 0, result.output


def test_an_unknown_command_is_a_usage_error() -> None:
    assert mkctl("fly").exit_code == 2


def test_status_of_a_healthy_federation_exits_0(federation: Path) -> None:
    result = mkctl("status", "-o", "json")
    (found,) = orjson.loads(result.stdout)
    assert (result.exit_code, found["phase"], found["healthy"]) == (0, "up", True)


def test_status_as_a_table_names_clusters_and_components(federation: Path) -> None:
    result = mkctl("status")
    assert "federation default is up" in result.stdout
    assert "hub/kubeconfig" in result.stdout
    assert "apiserver" in result.stdout


def test_status_without_a_supervisor_says_down_and_exits_1(home: Path) -> None:
    (home / "default").mkdir(parents=True)
    State(name="default", provider="binaries", phase=Phase.UP, supervisor=1).write(home / "default")
    result = mkctl("status", "-o", "json")
    assert (result.exit_code, orjson.loads(result.stdout)[0]["phase"]) == (1, "down")


def test_status_of_nothing_says_how_to_make_one(home: Path) -> None:
    result = mkctl("status")
    assert (result.exit_code, "mkctl up" in result.stdout) == (0, True)


def test_an_unknown_federation_is_bad_input(home: Path) -> None:
    result = mkctl("status", "--name", "other")
    assert (result.exit_code, "there is no federation 'other'" in result.stderr) == (2, True)


def test_kubeconfig_prints_the_path_of_the_hub(federation: Path) -> None:
    assert mkctl("kubeconfig").stdout == f"{federation / 'hub' / 'kubeconfig'}\n"


def test_kubeconfig_prints_the_content_when_asked(federation: Path) -> None:
    assert mkctl("kubeconfig", "hub", "--content").stdout == "content of the kubeconfig\n"


def test_kubeconfig_of_an_unknown_cluster_is_bad_input(federation: Path) -> None:
    result = mkctl("kubeconfig", "worker-7")
    assert (result.exit_code, "only hub" in result.stderr) == (2, True)


@pytest.mark.parametrize("name", ["../x", "UPPER", "", "-a", "a" * 50])
def test_a_name_that_could_leave_its_folder_is_refused(home: Path, name: str) -> None:
    assert mkctl("up", "--name", name).exit_code == 2


def test_up_with_an_unknown_provider_lists_the_ones_there_are(home: Path) -> None:
    result = mkctl("up", "--provider", "cloud")
    assert (result.exit_code, "only embedded, binaries" in result.stderr) == (2, True)
    assert not (home / "default").exists()


def test_up_of_a_federation_that_is_up_shows_it(federation: Path) -> None:
    result = mkctl("up")
    assert (result.exit_code, "federation default is up" in result.stdout) == (0, True)


def test_down_of_nothing_is_no_error(home: Path) -> None:
    assert mkctl("down").exit_code == 0


def test_down_ends_the_supervisor_and_removes_the_folder(home: Path) -> None:
    folder = home / "default"
    folder.mkdir(parents=True)
    script = f"""
import signal, sys
from pathlib import Path
from multikueue.devcluster import state
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with state.supervising(Path({str(folder)!r})):
    print("held", flush=True)
    signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "held\n"
        State(name="default", provider="binaries", phase=Phase.UP, supervisor=supervisor.pid).write(folder)
        assert mkctl("down").exit_code == 0
        assert not folder.exists()


def test_the_command_line_starts_fast() -> None:
    # Not a timing: what makes a start slow is what it imports.
    script = "import sys; from multikueue.cli import main, status, kubeconfig; print(*sys.modules)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as child:
        loaded = set(child.communicate()[0].split())
    assert "typer" in loaded
    assert not {"kubernetes_asyncio", "aiohttp", "pydantic", "cryptography"} & loaded
