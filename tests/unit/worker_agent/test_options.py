# SPDX-License-Identifier: Apache-2.0
"""The command line of the agent, and its log lines."""

from __future__ import annotations

import json
import logging

import pytest

from multikueue.core.errors import BadInput
from worker_agent import options
from worker_agent.logs import JsonLines

BASE = ["--cluster", "w1", "--hub-kubeconfig", "hub"]


def test_defaults_are_those_of_the_reference() -> None:
    found = options.parse(BASE)
    assert (found.cluster, found.hub_kubeconfig, found.kubeconfig, found.origin) == ("w1", "hub", None, "multikueue")
    assert (found.rhythm.renew_seconds, found.rhythm.lease_seconds, found.rhythm.report_seconds) == (10, 40, 10)
    assert found.rhythm.status_window_seconds == 1


def test_a_rhythm_can_be_scaled_down() -> None:
    given = [*BASE, "--renew-seconds", "0.2", "--lease-seconds", "2", "--report-seconds", "1"]
    assert options.parse(given).rhythm.renew_seconds == 0.2


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


def test_a_log_line_is_one_json_object() -> None:
    record = logging.LogRecord("x.y", logging.WARNING, __file__, 1, "job %s: %s", ("a", 'quote " and\nnewline'), None)
    line = JsonLines("w1").format(record)
    assert "\n" not in line
    entry = json.loads(line)
    assert entry["ts"].endswith("Z")
    assert (entry["level"], entry["cluster"], entry["msg"]) == ("warning", "w1", 'job a: quote " and\nnewline')
