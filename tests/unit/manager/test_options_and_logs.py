# SPDX-License-Identifier: Apache-2.0
"""The command line, and the form of a log line."""

from __future__ import annotations

import logging
import sys

import orjson
import pytest

from manager.logs import JsonFormatter, TextFormatter
from manager.options import ManagerOptions, parse
from multikueue.core.keys import Key


def test_without_flags_the_configuration_decides() -> None:
    assert parse([]) == ManagerOptions()


def test_flags() -> None:
    given = parse(
        [
            "--config=c.yaml",
            "--kubeconfig=k",
            "--namespace=kueue",
            "--webhook-url=https://127.0.0.1:1",
            "--no-leader-elect",
            "--no-job-integrations",
            "--metrics-bind=127.0.0.1:0",
            "--health-bind=0",
            "--log-format=json",
        ]
    )
    assert (given.config, given.kubeconfig, given.namespace) == ("c.yaml", "k", "kueue")
    assert (given.leader_election, given.job_integrations, given.webhooks) == (False, False, True)
    assert parse(["--no-webhooks"]).webhooks is False


@pytest.mark.parametrize("flag", ["--event-qps=-1", "--event-qps=nan", "--event-burst=0"])
def test_a_budget_of_events_that_cannot_be_is_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse([flag])
    assert "is expected" in capsys.readouterr().err


def test_a_url_and_a_service_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--webhook-url=https://a", "--webhook-service=b"])
    assert "not allowed with" in capsys.readouterr().err


def record(message: str, *args: object) -> logging.LogRecord:
    made = logging.LogRecord("manager.x", logging.INFO, "f", 1, message, args, None)
    made.created = 1767268800.5
    return made


def test_a_text_line() -> None:
    line = TextFormatter().format(record("evicted workload=%s reason=%s", Key("ns", "w"), "Preempted"))
    assert line == "2026-01-01T12:00:00.500000Z INFO    manager.x: evicted workload=ns/w reason=Preempted"


@pytest.mark.parametrize(
    ("message", "args", "expected"),
    [
        pytest.param("lost key=%s", (Key("ns", "w"),), {"msg": "lost", "key": "ns/w"}, id="one field"),
        pytest.param(
            "lost: port=%d after=%.1f", (8080, 1.26), {"msg": "lost", "port": 8080, "after": 1.3}, id="numbers"
        ),
        pytest.param("%s is lost", ("w",), {"msg": "w is lost"}, id="prose is one text"),
        pytest.param("lost", (), {"msg": "lost"}, id="no fields"),
    ],
)
def test_the_fields_of_a_json_line_are_members_of_it(
    message: str, args: tuple[object, ...], expected: dict[str, object]
) -> None:
    line = orjson.loads(JsonFormatter().format(record(message, *args)))
    assert {name: value for name, value in line.items() if name not in ("ts", "level", "logger")} == expected


def test_a_json_line_with_an_error() -> None:
    made = record("broke workload=%s", "ns/w")
    try:
        raise ValueError("broken")
    except ValueError:
        made.exc_info = sys.exc_info()
    line = orjson.loads(JsonFormatter().format(made))
    assert (line["level"], line["msg"], line["workload"]) == ("info", "broke", "ns/w")
    assert "ValueError: broken" in line["error"]
    assert "ValueError: broken" in TextFormatter().format(made)
