# SPDX-License-Identifier: Apache-2.0
"""mkctl's commands: exit codes, tables and JSON over what a federation told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner, Result

from devcluster.federation import state
from devcluster.federation.state import ClusterState, ComponentState, FederationPhase, FederationState
from multikueue.cli import main
from multikueue.cli.local import status
from multikueue.cli.local.federation_health import FederationHealth, QueueHealth, WorkerContact
from multikueue.cli.local.shape_options import ShapeOptions


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
    FederationState(
        name="default",
        provider="binaries",
        phase=FederationPhase.UP,
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
    listed = {line.split()[0] for line in result.output.splitlines() if line.startswith("  ")}
    assert {name for name, command in main.COMMANDS.items() if not command.hidden} <= listed
    assert not {name for name, command in main.COMMANDS.items() if command.hidden} & listed


def test_story_is_timeline_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.COMMANDS["story"].load()(["--help"])
    shown = capsys.readouterr()
    assert (ended.value.code, "usage: mkctl timeline" in shown.out) == (0, True)
    assert "this command is now called `mkctl timeline`" in shown.err


@pytest.mark.parametrize("name", sorted(main.COMMANDS))
def test_every_command_explains_itself(name: str) -> None:
    result = mkctl(name, "--help")
    assert result.exit_code == 0, result.output


def test_an_unknown_command_is_a_usage_error() -> None:
    assert mkctl("fly").exit_code == 2


@pytest.fixture
def hub_health(monkeypatch: pytest.MonkeyPatch) -> Callable[[FederationHealth], None]:
    return lambda health: monkeypatch.setattr(status, "_health", lambda found: health)


def test_status_of_a_healthy_federation_exits_0(
    federation: Path, hub_health: Callable[[FederationHealth], None]
) -> None:
    hub_health(FederationHealth())
    result = mkctl("status", "-o", "json")
    (found,) = orjson.loads(result.stdout)
    assert (result.exit_code, found["phase"], found["healthy"]) == (0, "up", True)


def test_status_as_a_table_names_clusters_and_components(federation: Path) -> None:
    result = mkctl("status")
    assert "federation default is up" in result.stdout
    assert "hub/kubeconfig" in result.stdout
    assert "apiserver" in result.stdout


def test_status_shows_workers_queues_and_work_of_the_hub(
    federation: Path, hub_health: Callable[[FederationHealth], None]
) -> None:
    worker = WorkerContact(
        name="w", active=True, reason="Active", message="", contact_age=3.2, contact_limit=40, workloads=2
    )
    queue = QueueHealth(name="team-a-cq", active=True, message="", pending=7, admitted=2)
    hub_health(FederationHealth(workers=[worker], queues=[queue], workloads={"waiting for quota": 7, "admitted": 2}))
    result = mkctl("status")
    assert result.exit_code == 0
    for shown in ("LAST CONTACT", "3 s ago", "team-a-cq", "RESTARTS", "Workloads: 7 waiting for quota, 2 admitted"):
        assert shown in result.stdout


def test_status_exits_1_and_names_the_worker_that_is_not_in_contact(
    federation: Path, hub_health: Callable[[FederationHealth], None]
) -> None:
    worker = WorkerContact(
        name="w", active=True, reason="Active", message="", contact_age=75.0, contact_limit=40, workloads=0
    )
    hub_health(FederationHealth(workers=[worker]))
    result = mkctl("status")
    assert (result.exit_code, "its agent was last in contact 75 s ago" in result.stdout) == (1, True)
    assert "to see the connection of w:\n  mkctl cluster describe w\n" in result.stdout


def test_status_exits_1_when_a_process_runs_and_does_not_answer(
    federation: Path, hub_health: Callable[[FederationHealth], None]
) -> None:
    url = "http://127.0.0.1:1/readyz"
    found = FederationState.read(federation)
    assert found is not None
    (part,) = found.components
    replace(found, components=[replace(part, health=url)]).write(federation)
    hub_health(FederationHealth(unresponsive=[url]))
    result = mkctl("status")
    assert (result.exit_code, "does not answer" in result.stdout) == (1, True)
    assert f"apiserver of hub does not answer; to have it started again:\n  kill {part.pid}\n" in result.stdout


def test_status_exits_1_when_a_process_is_stopped_by_a_signal(
    federation: Path, hub_health: Callable[[FederationHealth], None]
) -> None:
    hub_health(FederationHealth())
    with subprocess.Popen(["sleep", "600"]) as sleeper:
        try:
            os.kill(sleeper.pid, signal.SIGSTOP)
            os.waitpid(sleeper.pid, os.WUNTRACED)
            found = FederationState.read(federation)
            assert found is not None
            (part,) = found.components
            replace(found, components=[replace(part, pid=sleeper.pid)]).write(federation)
            result = mkctl("status")
        finally:
            sleeper.kill()
    assert (result.exit_code, "frozen" in result.stdout) == (1, True)
    assert f"apiserver of hub was stopped by a signal; to continue it:\n  kill -CONT {sleeper.pid}\n" in result.stdout


def test_status_exits_1_when_the_hub_cannot_be_reached(federation: Path) -> None:
    result = mkctl("status")  # its kubeconfig is none
    assert (result.exit_code, "the hub cannot be reached" in result.stdout) == (1, True)


def test_status_without_a_supervisor_is_down_and_exits_1(home: Path) -> None:
    (home / "default").mkdir(parents=True)
    FederationState(name="default", provider="binaries", phase=FederationPhase.UP, supervisor=1).write(home / "default")
    result = mkctl("status", "-o", "json")
    assert (result.exit_code, orjson.loads(result.stdout)[0]["phase"]) == (1, "down")
    assert "to start it again with its data:\n  mkctl up --name default\n" in mkctl("status").stdout


def test_status_without_a_federation_has_the_command_to_create_one(home: Path) -> None:
    result = mkctl("status")
    assert (result.exit_code, "mkctl up" in result.stdout) == (0, True)


def test_an_unknown_federation_is_bad_input(home: Path) -> None:
    result = mkctl("status", "--name", "other")
    assert (result.exit_code, "federation 'other' does not exist" in result.stderr) == (2, True)


def test_kubeconfig_prints_the_path_of_the_hub(federation: Path) -> None:
    assert mkctl("kubeconfig").stdout == f"{federation / 'hub' / 'kubeconfig'}\n"


def test_kubeconfig_prints_the_content_with_its_option(federation: Path) -> None:
    assert mkctl("kubeconfig", "hub", "--content").stdout == "content of the kubeconfig\n"


def test_kubeconfig_of_an_unknown_cluster_is_bad_input(federation: Path) -> None:
    result = mkctl("kubeconfig", "worker-7")
    assert (result.exit_code, "only hub" in result.stderr) == (2, True)


@pytest.mark.parametrize("name", ["../x", "UPPER", "", "-a", "a" * 50])
def test_a_name_that_could_leave_its_folder_is_refused(home: Path, name: str) -> None:
    assert mkctl("up", "--name", name).exit_code == 2


def test_up_with_an_unknown_provider_lists_the_ones_there_are(home: Path) -> None:
    result = mkctl("up", "--provider", "cloud")
    assert (result.exit_code, "valid are embedded, binaries" in result.stderr) == (2, True)
    assert not (home / "default").exists()


def test_up_of_a_federation_that_is_up_shows_it(federation: Path) -> None:
    result = mkctl("up")
    assert (result.exit_code, "federation default is up" in result.stdout) == (0, True)


def test_up_of_a_federation_that_is_up_with_other_options_is_refused(federation: Path) -> None:
    ShapeOptions(workers=1).spec("default", None).write(federation)
    result = mkctl("up", "--workers", "2")
    assert (result.exit_code, "--workers: stored 1, requested 2" in result.stderr) == (2, True)
    assert mkctl("up", "--workers", "1").exit_code == 0


@pytest.mark.parametrize(
    "options", [("--node-label", "x"), ("--node-resource", "a/b=c"), ("--node-taint", "a"), ("--nodes", "absent.yaml")]
)
def test_up_with_a_bad_shape_starts_nothing(home: Path, options: tuple[str, str]) -> None:
    result = mkctl("up", *options)
    assert (result.exit_code, options[1] in result.stderr) == (2, True)
    assert not (home / "default").exists()


@pytest.mark.parametrize("name", ["../x", "UPPER", "", "a" * 50])
def test_up_as_kind_refuses_a_name_that_no_kind_cluster_has(home: Path, name: str) -> None:
    result = mkctl("up", "--as-kind", name, "--name", "fine")
    assert result.exit_code == 2
    assert not home.exists()


def test_up_as_kind_does_not_replace_a_kubeconfig_of_others(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("of another")
    result = mkctl("up", "--as-kind", "k", "--kubeconfig", str(file))
    assert (result.exit_code, "the file already exists" in result.stderr) == (2, True)
    assert file.read_text() == "of another"
    assert not (home / "k").exists()


def test_kubeconfig_without_a_cluster_is_that_of_all_where_there_is_one(home: Path) -> None:
    folder = home / "k"
    folder.mkdir(parents=True)
    hub = ClusterState(name="hub", role="hub", server="https://127.0.0.1:1", kubeconfig="/hub", context="kind-k")
    FederationState(
        name="k", provider="embedded", phase=FederationPhase.UP, supervisor=1, kubeconfig="/all", clusters=[hub]
    ).write(folder)
    assert mkctl("kubeconfig", "--federation", "k").stdout == "/all\n"
    assert mkctl("kubeconfig", "hub", "--federation", "k").stdout == "/hub\n"


def test_down_of_nothing_is_no_error(home: Path) -> None:
    assert mkctl("down").exit_code == 0


def test_down_ends_the_supervisor_and_removes_the_folder(home: Path) -> None:
    folder = home / "default"
    folder.mkdir(parents=True)
    script = f"""
import signal, sys
from pathlib import Path
from multikueue.cli.local.federation_health import FederationHealth, QueueHealth, WorkerContact
from devcluster.federation import state
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with state.supervising(Path({str(folder)!r})):
    print("held", flush=True)
    signal.pause()
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "held\n"
        FederationState(name="default", provider="binaries", phase=FederationPhase.UP, supervisor=supervisor.pid).write(
            folder
        )
        assert mkctl("down").exit_code == 0
        assert not folder.exists()


def test_the_command_line_starts_fast() -> None:
    # Not a timing: what makes a start slow is what it imports.
    script = "import sys; from multikueue.cli import main; from multikueue.cli.local import status, kubeconfig;"
    script += "print(*sys.modules)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as child:
        loaded = set(child.communicate()[0].split())
    assert "typer" in loaded
    assert not {"kubernetes_asyncio", "aiohttp", "pydantic", "cryptography"} & loaded
