# SPDX-License-Identifier: Apache-2.0
"""What goes wrong on a first day, by hand: options and data of a federation, merged kubeconfigs, processes that die."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from devcluster.providers.binaries.release import Binaries
from tests.support.federations import EXAMPLES
from tests.support.hand import Hand

pytestmark = [pytest.mark.binaries, pytest.mark.timeout(400)]
# Real control planes start three times here, which `make test` has no time for.
_PROVIDERS = [pytest.param("embedded", marks=pytest.mark.e2e), pytest.param("binaries", marks=pytest.mark.attacks)]

_LONG = """
apiVersion: batch/v1
kind: Job
metadata: {name: long, namespace: team-a, labels: {kueue.x-k8s.io/queue-name: jobs}}
spec:
  template:
    metadata: {annotations: {multikueue.io/run-for: 1h}}
    spec: {restartPolicy: Never, containers: [{name: c, image: x, resources: {requests: {cpu: 1, memory: 1Gi}}}]}
"""


@pytest.fixture
def kubectl(kube_binaries: Binaries) -> Path:
    return kube_binaries.path("kubectl")


@pytest.fixture(params=_PROVIDERS)
def hand(request: pytest.FixtureRequest, tmp_path: Path, kubectl: Path) -> Iterator[Hand]:
    hand = Hand(home=tmp_path, kubectl=kubectl)
    config = tmp_path / "manager.yaml"
    config.write_text("{manageJobsWithoutQueueName: false, webhook: {port: 9443}}")
    hand.mkctl("up", "--workers", "1", "--nodes", "3", "--provider", request.param, "--config", str(config))
    try:
        yield hand
    finally:
        hand.mkctl("down")


def test_options_data_and_names_of_a_federation_last(hand: Hand, tmp_path: Path) -> None:
    hand.kubectl("apply", "-f", str(EXAMPLES / "two-teams" / "00-namespaces.yaml"), cluster="worker-1")
    hand.kubectl("apply", "-f", str(EXAMPLES / "two-teams"))
    hand.kubectl("patch", "multikueueconfig", "workers", "--type=merge", "-p", '{"spec":{"clusters":["worker-1"]}}')
    job = tmp_path / "job.yaml"
    job.write_text(_LONG)
    hand.kubectl("create", "-f", str(job))
    wait = ("wait", "-n", "team-a", "--for=jsonpath={.status.active}=1", "--timeout=60s", "job/long")
    hand.kubectl(*wait)

    # Merged, each cluster still has its own certificate.
    paths = {cluster: hand.mkctl("kubeconfig", cluster).strip() for cluster in ("hub", "worker-1")}
    agent = Path(paths["worker-1"]).parent / "agent.kubeconfig"
    merged = tmp_path / "merged"
    files = ":".join([*paths.values(), str(agent)])
    merged.write_text(hand.kubectl_of(files, "config", "view", "--flatten"))
    contexts = hand.kubectl_of(str(merged), "config", "get-contexts", "-o", "name").split()
    assert sorted(contexts) == ["hub", "system:mk:cluster:worker-1@hub", "worker-1"]
    for cluster in paths:
        assert hand.kubectl_of(str(merged), "--context", cluster, "auth", "whoami", "-o", "jsonpath={.kind}")
    assert hand.kubectl_of(str(merged), "--context", "hub", "get", "jobs", "-n", "team-a", "-o", "name") == (
        "job.batch/long\n"
    )

    # Explained.
    assert "The LocalQueue, in the same namespace" in hand.kubectl("explain", "workload.spec.queueName")

    # Another option is refused and changes nothing; without options it starts again with its data and addresses.
    hand.mkctl("up", "--workers", "2", code=2)
    (before,) = _status(hand)
    uid = hand.kubectl("get", "job", "long", "-n", "team-a", "-o", "jsonpath={.metadata.uid}")
    hand.mkctl("down", "--keep-data")
    hand.mkctl("up", "--nodes", "9", code=2)
    hand.mkctl("up")
    (after,) = _status(hand)
    assert after["provider"] == before["provider"]
    assert after["metrics"] == before["metrics"]
    assert [each["server"] for each in after["clusters"]] == [each["server"] for each in before["clusters"]]
    assert hand.kubectl_of(str(merged), "--context", "worker-1", "get", "nodes", "-o", "name").count("node/") == 3
    assert hand.kubectl("get", "job", "long", "-n", "team-a", "-o", "jsonpath={.metadata.uid}") == uid
    hand.kubectl(*wait)

    # An agent that hangs is down, and so says the exit code; it is not hidden by a process that exists.
    assert after["healthy"]
    pid = next(part["pid"] for part in after["components"] if part["name"] == "agent")
    os.kill(pid, signal.SIGSTOP)
    try:
        (hung,) = _status(hand, code=1)
        assert not hung["healthy"]
        assert [part["problem"] for part in hung["components"] if part["name"] == "agent"] == ["frozen"]
    finally:
        os.kill(pid, signal.SIGCONT)
    os.kill(next(part["pid"] for part in after["components"] if part["name"] == "manager"), signal.SIGKILL)
    _until(lambda: [p["restarts"] for p in _status(hand, code=None)[0]["components"] if p["name"] == "manager"] == [1])
    _until(lambda: bool(_status(hand, code=None)[0]["healthy"]))


def _status(hand: Hand, *, code: int | None = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = orjson.loads(hand.mkctl("status", "-o", "json", code=code))
    return found


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.2)
