# SPDX-License-Identifier: Apache-2.0
"""What the parts of the manager are built from.

Owns nothing: a value that the composition root fills once and hands to every reconciler and to dispatch.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from manager.caches import Caches
from manager.metrics import Metrics
from manager.options import Options
from manager.workload_status import StatusWriter
from multikueue.api.configuration import Configuration
from multikueue.core.clock import Clock
from multikueue.kube.client import KubeClient
from multikueue.kube.events import EventRecorder


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerContext:
    """The shared parts of one manager process."""

    configuration: Configuration
    options: Options
    namespace: str
    manager_uid: str
    client: KubeClient
    caches: Caches
    statuses: StatusWriter
    recorder: EventRecorder
    metrics: Metrics
    clock: Clock
    random: Random
