# SPDX-License-Identifier: Apache-2.0
"""What `mkctl up` leaves behind dies with its supervisor, and comes back with its data."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from devcluster.providers.binaries.release import Binaries
from tests.support.hand import Hand

pytestmark = [pytest.mark.e2e, pytest.mark.binaries]


@pytest.mark.parametrize(("provider", "processes"), [("embedded", 5), ("binaries", 9)])
def test_everything_dies_with_a_killed_supervisor_and_comes_back_with_its_data(
    tmp_path: Path, kube_binaries: Binaries, provider: str, processes: int
) -> None:
    up_with = ("up", "--workers", "1", "--provider", provider, "-o", "json")
    hand = Hand(home=tmp_path, kubectl=kube_binaries.path("kubectl"))
    try:
        up = orjson.loads(hand.mkctl(*up_with))
        assert (up["phase"], up["healthy"]) == ("up", True)
        hand.kubectl("create", "configmap", "kept", "--from-literal=a=1")

        os.kill(up["supervisor"], signal.SIGKILL)
        pids = [part["pid"] for part in up["components"]]
        assert len(pids) == processes
        _until(lambda: not any(_runs(pid) for pid in pids))
        (down,) = orjson.loads(hand.mkctl("status", "-o", "json", code=1))
        assert (down["phase"], down["healthy"]) == ("down", False)

        again = orjson.loads(hand.mkctl(*up_with))
        assert again["healthy"]
        assert hand.kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.a}") == "1"

        # A component that crashes comes back by itself.
        manager = _pid(again, "manager")
        os.kill(manager, signal.SIGKILL)
        _until(lambda: _pid(orjson.loads(hand.mkctl("status", "-o", "json", code=None))[0], "manager") != manager)
        _until(lambda: bool(orjson.loads(hand.mkctl("status", "-o", "json", code=None))[0]["healthy"]))
    finally:
        hand.mkctl("down")
    assert not (tmp_path / "multikueue" / "default").exists()


def _pid(status: dict[str, list[dict[str, int]]], name: str) -> int:
    return next(part["pid"] for part in status["components"] if str(part["name"]) == name)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 45
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.1)
