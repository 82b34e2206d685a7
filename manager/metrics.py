# SPDX-License-Identifier: Apache-2.0
"""The series the manager exports, under Kueue's names (`docs/spec/kueue-api.md §7`).

Owns a separate registry (two managers in one process do not share series). Every series but build_info carries
`replica_role`. Hot paths bind their labels once and keep the child.
"""

from __future__ import annotations

import platform
import sys
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from manager.workload.series import WorkloadSeries
from multikueue import __version__
from multikueue.kube.runtime.controller import ControllerMetrics

STANDALONE: Final = "standalone"
LEADER: Final = "leader"
FOLLOWER: Final = "follower"
_LATENCY_BUCKETS: Final = tuple(0.01 * 2**power for power in range(11))
_ROLE: Final = "replica_role"
_QUEUE: Final = ("cluster_queue", _ROLE)


class ManagerMetrics:
    """Counters, gauges and histograms of one manager."""

    def __init__(self, *, role: str = STANDALONE) -> None:
        self.registry = CollectorRegistry()
        self.role = role
        registry = self.registry
        self.controllers = ControllerMetrics(registry)
        self.admission_attempts = Counter(
            "kueue_admission_attempts", "Scheduling cycles by result.", ("result", _ROLE), registry=registry
        )
        self.admission_attempt_duration = Histogram(
            "kueue_admission_attempt_duration_seconds", "Duration of a cycle.", ("result", _ROLE), registry=registry
        )
        self.preemption_skips = Gauge(
            "kueue_admission_cycle_preemption_skips",
            "Workloads with targets that the last cycle skipped.",
            _QUEUE,
            registry=registry,
        )
        self.dispatched = Counter(
            "multikueue_workloads_dispatched",
            "Workloads sent to a worker cluster.",
            ("cluster_queue", "cluster", _ROLE),
            registry=registry,
        )
        self.granted = Counter(
            "multikueue_workloads_admitted",
            "Workloads granted to a worker cluster.",
            ("cluster_queue", "cluster", _ROLE),
            registry=registry,
        )
        self.creation_latency = Histogram(
            "kueue_workload_creation_latency_seconds",
            "From the creation of a job to that of its Workload.",
            ("job_kind", _ROLE),
            buckets=_LATENCY_BUCKETS,
            registry=registry,
        )
        self.workloads = WorkloadSeries(registry)
        self.preempted = Counter(
            "kueue_preempted_workloads",
            "Preemptions.",
            ("preempting_cluster_queue", "reason", _ROLE),
            registry=registry,
        )
        self.uncovered_pods = Gauge(
            "multikueue_pods_outside_quota",
            "Pods that run outside the quota of the owner that they name.",
            ("namespace", _ROLE),
            registry=registry,
        )
        build = Gauge(
            "kueue_build_info",
            "1, with the build in its labels.",
            ("git_version", "git_commit", "build_date", "go_version", "compiler", "platform"),
            registry=registry,
        )
        build.labels(
            f"multikueue-{__version__}",
            "",
            "",
            "",
            f"python-{platform.python_version()}",
            f"{sys.platform}/{platform.machine()}",
        ).set(1)
