# SPDX-License-Identifier: Apache-2.0
"""Quota moves between running Jobs of a federation: by priority, and back to its owner through a tree of cohorts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devcluster.providers.binaries.release import Binaries
from tests.support.hand import Hand

pytestmark = [pytest.mark.e2e, pytest.mark.binaries]

NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n"
WORLD = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: MultiKueueConfig
metadata: {name: all}
spec: {clusters: [worker-1]}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: AdmissionCheck
metadata: {name: all}
spec:
  controllerName: kueue.x-k8s.io/multikueue
  parameters: {apiGroup: kueue.x-k8s.io, kind: MultiKueueConfig, name: all}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: default}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 100
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: company}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Cohort
metadata: {name: research}
spec: {parentName: company}
"""
QUEUE = """---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: NAME}
spec:
  cohortName: COHORT
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority, reclaimWithinCohort: Any}
  admissionChecksStrategy: {admissionChecks: [{name: all}]}
  resourceGroups:
    - coveredResources: [cpu]
      flavors: [{name: default, resources: [{name: cpu, nominalQuota: 2}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: NAME, namespace: team}
spec: {clusterQueue: NAME}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: NAME
  namespace: team
  labels: {kueue.x-k8s.io/queue-name: QUEUE, LABELS}
spec:
  parallelism: PODS
  completions: PODS
  template:
    metadata: {annotations: {multikueue.io/run-for: SECONDS}}
    spec:
      restartPolicy: Never
      containers: [{name: main, image: busybox, resources: {requests: {cpu: "1"}}}]
"""


class Team:
    """A user of the hub."""

    def __init__(self, hand: Hand, folder: Path) -> None:
        self._hand = hand
        self._folder = folder

    def apply(self, text: str, *, cluster: str = "hub") -> None:
        path = self._folder / "manifest.yaml"
        path.write_text(text)
        self._hand.kubectl("apply", "-f", str(path), cluster=cluster)

    def submit(self, name: str, *, queue: str, pods: int, seconds: int, labels: str = "app: test") -> None:
        words = {"NAME": name, "QUEUE": queue, "PODS": str(pods), "SECONDS": f"{seconds}s", "LABELS": labels}
        text = JOB
        for word, value in words.items():
            text = text.replace(word, value)
        self.apply(text)

    def active(self, name: str) -> str:
        return self._hand.kubectl("get", "job", name, "-n", "team", "-o", "jsonpath={.status.active}")

    def suspended(self, name: str) -> bool:
        return self._hand.kubectl("get", "job", name, "-n", "team", "-o", "jsonpath={.spec.suspend}") == "true"

    def succeeds(self, name: str) -> None:
        self._hand.kubectl("wait", "-n", "team", "--for=condition=Complete", "--timeout=90s", f"job/{name}")

    def preempted_for(self, name: str) -> str:
        return self._workload(name, "{.status.conditions[?(@.type=='Preempted')].reason}")

    def evictions(self, name: str) -> str:
        return self._workload(name, "{.status.schedulingStats.evictions[*].count}")

    def _workload(self, job: str, path: str) -> str:
        of_job = f"{{range .items[?(@.metadata.ownerReferences[0].name=='{job}')]}}{path}{{end}}"
        return self._hand.kubectl("get", "workloads", "-n", "team", "-o", f"jsonpath={of_job}")


@pytest.fixture
def team(tmp_path: Path, kube_binaries: Binaries) -> Iterator[Team]:
    hand = Hand(home=tmp_path, kubectl=kube_binaries.path("kubectl"))
    hand.mkctl("up", "--workers", "1", "--provider", "binaries")
    try:
        team = Team(hand, tmp_path)
        for cluster in ("hub", "worker-1"):
            team.apply(NAMESPACE, cluster=cluster)
        red = QUEUE.replace("NAME", "red").replace("COHORT", "research")
        team.apply(WORLD + red + QUEUE.replace("NAME", "blue").replace("COHORT", "company"))
        yield team
    finally:
        hand.mkctl("down")


def test_running_jobs_give_way_and_come_back(team: Team) -> None:
    # Red borrows through two levels of cohorts: 4 cpu while it owns 2.
    team.submit("low", queue="red", pods=2, seconds=30)
    team.submit("borrower", queue="red", pods=2, seconds=30)
    _until(lambda: team.active("low") == "2" and team.active("borrower") == "2")

    # Blue takes its own back from the one that got it last.
    team.submit("owner", queue="blue", pods=2, seconds=25)
    _until(lambda: team.active("owner") == "2")
    victim, other = ("borrower", "low") if team.suspended("borrower") else ("low", "borrower")
    assert team.suspended(victim)
    assert not team.suspended(other)
    assert team.preempted_for(victim) == "InCohortReclamation"

    # Within red, what is urgent evicts what is not. It runs long enough to be seen by who asks now and then.
    team.submit("incident", queue="red", pods=2, seconds=15, labels="kueue.x-k8s.io/priority-class: urgent")
    _until(lambda: team.active("incident") == "2")

    # Everybody finishes in the end, those that had to go after they came back.
    for name in ("incident", "owner", victim, other):
        team.succeeds(name)
    assert team.evictions(victim) != ""


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "the federation did not get there in time"
        time.sleep(0.2)
