# SPDX-License-Identifier: Apache-2.0
"""Acceptance 3 of the first issue: with mkctl and kubectl only, as a new user would."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from devcluster.providers.binaries.release import Binaries
from tests.support.federations import EXAMPLES
from tests.support.hand import Hand

pytestmark = pytest.mark.binaries

_PROVIDERS = [pytest.param("embedded", marks=pytest.mark.e2e), pytest.param("binaries", marks=pytest.mark.attacks)]


@pytest.fixture(params=_PROVIDERS)
def hand(request: pytest.FixtureRequest, tmp_path: Path, kube_binaries: Binaries) -> Iterator[Hand]:
    hand = Hand(home=tmp_path, kubectl=kube_binaries.path("kubectl"))
    hand.mkctl("up", "--provider", request.param)
    try:
        yield hand
    finally:
        hand.mkctl("down")


def test_a_new_user_runs_a_job_with_kubectl(hand: Hand, tmp_path: Path) -> None:
    slow_job = tmp_path / "job.yaml"  # long enough to be looked at from all sides on a busy machine
    slow_job.write_text((EXAMPLES / "two-teams-job.yaml").read_text().replace("run-for: 5s", "run-for: 60s"))
    for worker in ("worker-1", "worker-2"):
        hand.kubectl("apply", "-f", str(EXAMPLES / "two-teams" / "00-namespaces.yaml"), cluster=worker)
    hand.kubectl("apply", "-f", str(EXAMPLES / "two-teams"))
    job = hand.kubectl("create", "-f", str(slow_job), "-o", "name").strip()

    # While it runs: admitted on the hub, a Job with our origin on one worker, its status on the user's Job.
    _until(lambda: hand.kubectl("get", job, "-n", "team-a", "-o", "jsonpath={.status.active}") == "2")
    shown = hand.kubectl("get", "job,workload", "-n", "team-a", "-o", "wide")
    assert "team-a" in shown
    assert "True" in shown
    workers = ["worker-1", "worker-2"]
    copies = [
        hand.kubectl("get", "jobs", "-A", "-l", "kueue.x-k8s.io/multikueue-origin", "-o", "name", cluster=worker)
        for worker in workers
    ]
    assert sorted(copies) == ["", f"{job}\n"]
    worker = workers[copies.index(f"{job}\n")]
    chosen = hand.kubectl("get", "workloads", "-n", "team-a", "-o", "jsonpath={.items[0].status.clusterName}")
    assert chosen == worker
    pod = hand.kubectl("get", "pods", "-n", "team-a", "-o", "name", cluster=worker).splitlines()[0]
    assert "started on virtual node" in hand.kubectl("logs", "-n", "team-a", pod, cluster=worker)
    for way in ((), ("--relay",)):
        assert "started on virtual node" in hand.mkctl("logs", job.rpartition("/")[2], "-n", "team-a", *way)

    # After: complete, quota is free, the worker is empty, and no pod was ever on the hub.
    hand.kubectl("wait", "-n", "team-a", "--for=condition=Complete", "--timeout=90s", job)
    assert hand.kubectl("get", job, "-n", "team-a", "-o", "jsonpath={.status.succeeded}") == "2"
    reserved = "jsonpath={.items[*].status.flavorsReservation[*].resources[*].total}"
    _until(lambda: set(hand.kubectl("get", "clusterqueues", "-o", reserved).split()) <= {"0"})
    for each in workers:
        _until(partial(_has_nothing, hand, each))
    assert hand.kubectl("get", "pods", "-A", "-o", "name") == ""
    events = hand.kubectl("get", "events", "-A", "-o", "jsonpath={.items[*].involvedObject.kind}")
    assert "Pod" not in events.split()
    assert "federation default is up" in hand.mkctl("status")


def _has_nothing(hand: Hand, cluster: str) -> bool:
    return hand.kubectl("get", "jobs,pods", "-A", "-o", "name", cluster=cluster) == ""


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 45
    while not condition():
        assert time.monotonic() < deadline, "the federation did not get there in time"
        time.sleep(0.2)
