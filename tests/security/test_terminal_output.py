# SPDX-License-Identifier: Apache-2.0
"""What tenants and workers write never reaches a terminal or a log as anything but text.

Every command of mkctl is run against an API that answers with hostile names, messages, annotations and events; an API
server would refuse some of them today, and an older one, or a worker's own, may not.
"""

from __future__ import annotations

import io
import json
import logging
import sys
import unicodedata
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread
import orjson
import pytest
import typer
import yaml
from aiohttp import web
from rich.table import Table
from rich.text import Text

from devcluster import kubeconfigs
from devcluster.federation.state import ClusterState, ComponentState, FederationPhase, FederationState
from devcluster.progress import Step
from manager.logs import JsonFormatter, TextFormatter
from multikueue.api.constants import TRANSPORT_ANNOTATION
from multikueue.cli import display
from multikueue.cli.cluster import commands
from multikueue.cli.console import PrintableConsole
from multikueue.cli.inspect import explain, simulate, timeline
from multikueue.cli.local import status
from multikueue.cli.local.demo_jobs import DemoRow, Stage
from multikueue.cli.local.demo_view import LiveTable
from multikueue.core.errors import MultikueueError
from multikueue.core.keys import Key
from multikueue.core.log_lines import PrintableFormatter
from tests.support.stub_api import json_answer, status_answer, stub_api
from worker_agent.logs import JsonLines

Object = dict[str, Any]
T0 = "2026-01-01T12:00:00Z"
KUEUE = "kueue.x-k8s.io/v1beta2"
MARKUP = "[bold red]bold[/bold red] [link=http://evil]link[/link] :skull:"
HOSTILE = (
    "\x1b[2J\x1b[1;31mred\x1b]8;;http://evil\x07click\x1b]8;;\x07\x1bP+q\x1b\\ \r\x08\x00\x07\x0b\x0c\t\x7f\x85\x9b31m"
    f"\u202e\u2066\u200f\u2028\u2029 {MARKUP}\nforged line"
)
_REORDERING = frozenset({"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"})


def unprintable(text: str) -> set[str]:
    """The characters of `text` that a terminal takes for more than text."""
    return {
        found
        for found in set(text) - {"\n"}
        if unicodedata.category(found) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(found) in _REORDERING
    } | (set(text) & {"\u200e", "\u200f", "\u061c"})


def assert_is_text(output: str, *, forged: bool = False) -> None:
    assert not unprintable(output), sorted(map(hex, map(ord, unprintable(output))))
    if not forged:
        assert not [line for line in output.splitlines() if line.startswith("forged")]


def metadata(name: str, *, namespace: str = "", **more: Any) -> Object:
    found: Object = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "creationTimestamp": T0}
    found["annotations"] = {"a": HOSTILE, HOSTILE: HOSTILE}
    return found | ({"namespace": namespace} if namespace else {}) | more


def condition(kind: str, *, status: str = "False") -> Object:
    return {"type": kind, "status": status, "reason": HOSTILE, "message": HOSTILE, "lastTransitionTime": T0}


def workload() -> Object:
    container = {"name": HOSTILE, "image": HOSTILE, "resources": {"requests": {"cpu": "9", HOSTILE: "1"}}}
    template = {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    check = {"name": HOSTILE, "state": "Pending", "message": HOSTILE, "lastTransitionTime": T0}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": HOSTILE, "uid": "uid-job", "controller": True}
    return {
        "metadata": metadata("wl", namespace="ns", ownerReferences=[owner]),
        "spec": {"queueName": "lq", "active": True, "podSets": [{"name": HOSTILE, "count": 1, "template": template}]},
        "status": {
            "conditions": [condition("QuotaReserved"), condition("Evicted"), condition(HOSTILE)],
            "admissionChecks": [check],
            "clusterName": HOSTILE,
            "nominatedClusterNames": [HOSTILE],
            "schedulingStats": {"evictions": [{"reason": HOSTILE, "underlyingCause": HOSTILE, "count": 1}]},
        },
    }


def event(kind: str, name: str, uid: str) -> Object:
    return {
        "metadata": metadata(f"event-{kind}", namespace="ns"),
        "regarding": {"kind": kind, "name": name, "namespace": "ns", "uid": uid},
        "eventTime": "2026-01-01T12:00:00.000001Z",
        "reason": HOSTILE,
        "note": HOSTILE,
        "action": HOSTILE,
        "type": HOSTILE,
        "reportingController": HOSTILE,
    }


FLAVOR = {"name": HOSTILE, "resources": [{"name": "cpu", "nominalQuota": "4"}, {"name": HOSTILE, "nominalQuota": "4"}]}
OBJECTS: dict[str, list[Object]] = {
    "remoteassignments": [],
    "workloads": [workload()],
    "jobs": [{"metadata": metadata(HOSTILE, namespace="ns", uid="uid-job"), "spec": {"template": {"spec": {}}}}],
    "events": [event("Workload", "wl", "uid-wl"), event("Job", HOSTILE, "uid-job")],
    "resourceflavors": [{"metadata": metadata(HOSTILE), "spec": {}}],
    "clusterqueues": [
        {
            "metadata": metadata("cq"),
            "spec": {
                "namespaceSelector": {},
                "cohortName": HOSTILE,
                "resourceGroups": [{"coveredResources": ["cpu", HOSTILE], "flavors": [FLAVOR]}],
                "admissionChecksStrategy": {"admissionChecks": [{"name": HOSTILE}]},
            },
        }
    ],
    "localqueues": [{"metadata": metadata("lq", namespace="ns"), "spec": {"clusterQueue": "cq"}}],
    "namespaces": [{"metadata": metadata("ns")}],
    "admissionchecks": [
        {
            "metadata": metadata(HOSTILE),
            "spec": {
                "controllerName": "kueue.x-k8s.io/multikueue",
                "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "config"},
            },
            "status": {"conditions": [condition("Active")]},
        }
    ],
    "multikueueconfigs": [{"metadata": metadata("config"), "spec": {"clusters": [HOSTILE, "worker"]}}],
    "multikueueclusters": [
        {
            "metadata": metadata(name, annotations={TRANSPORT_ANNOTATION: "agent"}),
            "spec": {"clusterSource": {"kubeConfig": {"locationType": "Secret", "location": HOSTILE}}},
            "status": {"conditions": [condition("Active")]},
        }
        for name in ("worker", HOSTILE)
    ],
    "clusterregistrations": [
        {
            "metadata": metadata("worker"),
            "spec": {"accepted": True, "cordoned": True},
            "status": {"conditions": [condition("Registered")], "clusterUID": HOSTILE},
        }
    ],
    "clusterreports": [
        {
            "metadata": metadata("agent", namespace="mk-worker"),
            "status": {
                "agentVersion": HOSTILE,
                "kubernetesVersion": HOSTILE,
                "clusterUID": HOSTILE,
                "nodes": {"ready": 1, "total": 1},
                "capacity": [{"name": HOSTILE, "free": HOSTILE, "allocatable": HOSTILE}],
            },
        }
    ],
    "leases": [{"metadata": metadata("agent", namespace="mk-worker"), "spec": {"holderIdentity": HOSTILE}}],
}


async def answer(request: web.Request) -> web.StreamResponse:
    """A list, an object, or a 404 whose message is as hostile as the rest."""
    parts = request.path.strip("/").split("/")[2 if request.path.startswith("/api/") else 3 :]
    if parts[0] == "namespaces" and len(parts) > 2:
        parts = parts[2:]
    found = OBJECTS.get(parts[0], [])
    if request.method != "GET":
        return status_answer(422, "Invalid", HOSTILE)
    if len(parts) > 1:
        for obj in found:
            if obj["metadata"]["name"] == parts[1]:
                return json_answer(obj)
        return status_answer(404, "NotFound", HOSTILE)
    if parts[0] in OBJECTS:
        return json_answer({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": found})
    return status_answer(404, "NotFound", HOSTILE)


@pytest.fixture
async def kubeconfig(tmp_path: Path) -> AsyncIterator[str]:
    """That of an API which answers with hostile text."""
    async with stub_api(answer) as api:
        config = kubeconfigs.with_token(cluster="hub", server=api.url, user="admin", token="t")
        yield str(kubeconfigs.write(config, tmp_path / "kubeconfig"))


Command = Callable[[list[str]], int]
COMMANDS: dict[str, tuple[Command, list[str], str, int]] = {
    "cluster list": (commands.main, ["list"], "table json", 0),
    "cluster describe": (commands.main, ["describe", "worker"], "table json", 0),
    "cluster describe, not there": (commands.main, ["describe", HOSTILE + "x"], "table json", 2),
    "cluster cordon, refused": (commands.main, ["cordon", "worker"], "", 1),
    "cluster recover, refused": (commands.main, ["recover", "worker", "--wait=0s"], "", 1),
    "explain": (explain.main, ["workload", "ns/wl"], "table json yaml", 0),
    "explain, not there": (explain.main, ["workload", "ns/other"], "table json yaml", 2),
    "timeline": (timeline.main, ["workload", "ns/wl"], "table json yaml", 0),
    "timeline, not there": (timeline.main, ["workload", "ns/other"], "table json yaml", 2),
}
CASES = [
    pytest.param(command, [*arguments, *(["-o", form] if form else [])], code, id=f"{name} {form}".strip())
    for name, (command, arguments, forms, code) in COMMANDS.items()
    for form in (forms.split() or [""])
]


@pytest.mark.parametrize(("command", "arguments", "code"), CASES)
async def test_a_command_prints_what_the_api_says_as_text(
    command: Command, arguments: list[str], code: int, kubeconfig: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = await anyio.to_thread.run_sync(partial(command, [*arguments, "--kubeconfig", kubeconfig]))
    out, err = capsys.readouterr()
    assert ended == code, err
    assert_is_text(out)
    assert_is_text(err)
    assert "Traceback" not in err
    if code == 0:
        assert "\\x1b[2J" in out or "\\u001b[2J" in out or "\\e[2J" in out
        assert ":skull:" in out
    if "json" in arguments and code == 0:
        assert HOSTILE in texts_of(json.loads(out))
    if "yaml" in arguments and code == 0:
        assert HOSTILE in texts_of(yaml.safe_load(out))


def texts_of(document: Any) -> str:
    """All texts in a document, one after the other."""
    if isinstance(document, dict):
        return "".join(map(texts_of, document.values()))
    if isinstance(document, list):
        return "".join(map(texts_of, document))
    return str(document)


MANIFESTS: list[Object] = [
    {"apiVersion": KUEUE, "kind": "ResourceFlavor", **OBJECTS["resourceflavors"][0]},
    {"apiVersion": KUEUE, "kind": "ClusterQueue", **OBJECTS["clusterqueues"][0]},
    {"apiVersion": KUEUE, "kind": "LocalQueue", **OBJECTS["localqueues"][0]},
    {"apiVersion": KUEUE, "kind": "Workload", **workload()},
    {"apiVersion": KUEUE, "kind": HOSTILE, "metadata": metadata(HOSTILE)},
    {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata("ns")},
]


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
@pytest.mark.parametrize(
    ("command", "arguments"),
    [(simulate.main, []), (explain.main, ["workload", "ns/wl"])],
    ids=["simulate", "explain -f"],
)
def test_manifests_are_shown_as_text(
    command: Command, arguments: list[str], form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "manifests.json"
    file.write_bytes(orjson.dumps({"apiVersion": "v1", "kind": "List", "items": MANIFESTS}))
    command([*arguments, "-f", str(file), "-o", form])
    out, err = capsys.readouterr()
    assert_is_text(out)
    assert_is_text(err)
    assert "\\x1b[2J" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("form", list(display.Output))
def test_the_state_of_a_federation_is_shown_as_text(form: display.Output, capsys: pytest.CaptureFixture[str]) -> None:
    broken = ComponentState(name=HOSTILE, owner=HOSTILE, pid=None, running=False, log=HOSTILE)
    member = ClusterState(name=HOSTILE, role=HOSTILE, server=HOSTILE, kubeconfig=HOSTILE)
    found = FederationState(
        name="default",
        provider=HOSTILE,
        phase=FederationPhase.FAILED,
        supervisor=1,
        error=HOSTILE,
        clusters=[member],
        components=[broken],
    )
    status.show(found, form)
    assert_is_text(capsys.readouterr().out, forged=True)


def test_an_error_is_shown_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), display.errors_of("up"):
        raise MultikueueError(HOSTILE)
    err = capsys.readouterr().err
    assert_is_text(err)
    assert err.startswith("mkctl up: \\x1b[2J")


@pytest.mark.parametrize("terminal", [False, True], ids=["in a log", "on a terminal"])
def test_the_views_of_the_demo_show_text(terminal: bool) -> None:
    drawn = io.StringIO()
    console = PrintableConsole(file=drawn, force_terminal=terminal, width=2000, color_system=None)
    row = DemoRow(key=Key(HOSTILE, HOSTILE), stage=Stage.QUEUED, cluster=HOSTILE, note=HOSTILE)
    with LiveTable(console) as live:
        live.show([row])
    with display.StepDisplay(console) as steps:
        steps(Step(HOSTILE))
    assert "\\x1b[2J" in drawn.getvalue()
    assert "[bold red]bold[/bold red]" in drawn.getvalue()
    if not terminal:
        assert_is_text(drawn.getvalue(), forged=True)
    assert "\x1b[2J" not in drawn.getvalue()
    assert "\x1b]8;" not in drawn.getvalue()


def test_a_table_escapes_what_it_is_given_in_any_form(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(HOSTILE, title=HOSTILE, caption=HOSTILE)
    table.add_row(HOSTILE)
    table.add_row(Text(HOSTILE))
    PrintableConsole(width=400).print(table, HOSTILE, Text.assemble((HOSTILE, "red")))
    out = capsys.readouterr().out
    assert_is_text(out, forged=True)
    assert out.count("[bold red]bold[/bold red]") == 7


def record() -> logging.LogRecord:
    made = logging.LogRecord("manager.x", logging.WARNING, "f", 1, "workload %s: %s", (HOSTILE, HOSTILE), None)
    vars(made)["workload"] = HOSTILE
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        made.exc_info = sys.exc_info()
    return made


@pytest.mark.parametrize(
    "formatter",
    [
        pytest.param(TextFormatter(), id="manager, text"),
        pytest.param(JsonFormatter(), id="manager, JSON"),
        pytest.param(JsonLines("w"), id="agent, JSON"),
        pytest.param(PrintableFormatter("%(asctime)s %(name)s: %(message)s"), id="agent and devcluster, text"),
    ],
)
def test_a_log_line_is_text(formatter: logging.Formatter) -> None:
    line = formatter.format(record())
    assert_is_text(line)
    assert "\\x1b[2J" in line or "\\u001b[2J" in line


def test_json_of_a_log_keeps_what_was_written() -> None:
    for formatter in (JsonFormatter(), JsonLines("w")):
        assert orjson.loads(formatter.format(record()))["msg"] == f"workload {HOSTILE}: {HOSTILE}"
