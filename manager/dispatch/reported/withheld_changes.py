# SPDX-License-Identifier: Apache-2.0
"""Which changes of running jobs are not forwarded to their clusters, each reported once as an event of its Workload."""

from __future__ import annotations

from manager.dispatch.gather import Gathered
from multikueue.api.reasons import WorkloadEvent
from multikueue.api.resource import WORKLOADS
from multikueue.core.keys import Key
from multikueue.dispatch.hub import messages
from multikueue.kube.runtime.events import EventRecorder, Reference


class WithheldChanges:
    """The reason that was reported last for each Workload."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._reported: dict[Key, str] = {}

    def report(self, key: Key, gathered: Gathered) -> None:
        """Record why a change is not forwarded, unless that was the last report of the Workload."""
        before = self._reported.pop(key, "")
        if not gathered.withheld or gathered.workload is None or gathered.facts.workload is None:
            return
        self._reported[key] = gathered.withheld
        if gathered.withheld != before:
            about = Reference.of(gathered.workload, api_version=WORKLOADS.api_version, kind=WORKLOADS.kind)
            message = messages.not_forwarded(gathered.facts.workload.cluster_name, gathered.withheld)
            self._recorder.event(about, "Warning", WorkloadEvent.MULTIKUEUE, message)

    def forget(self, key: Key) -> None:
        """The Workload is gone, or is not dispatched."""
        self._reported.pop(key, None)
