# SPDX-License-Identifier: Apache-2.0
"""The shared parts of one manager process, created once by `app` and passed to every reconciler and to dispatch."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from manager.cache.caches import Caches
from manager.measured_queues import MeasuredQueues
from manager.metrics import ManagerMetrics
from manager.options import ManagerOptions
from manager.seals import Seals
from manager.workload.status_writer import StatusWriter
from multikueue.api.configuration import Configuration
from multikueue.core.clock import Clock
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.events import EventRecorder
from multikueue.kube.runtime.supervisor import Supervisor


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerContext:
    """The shared parts of one manager process."""

    configuration: Configuration
    options: ManagerOptions
    namespace: str
    manager_uid: str
    seals: Seals
    client: KubeClient
    caches: Caches
    statuses: StatusWriter
    recorder: EventRecorder
    metrics: ManagerMetrics
    measured: MeasuredQueues
    supervisor: Supervisor
    clock: Clock
    random: Random
