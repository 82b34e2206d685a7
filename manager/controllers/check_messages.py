# SPDX-License-Identifier: Apache-2.0
"""Events on jobs with what their pending admission checks say, once for each text.

A user looks at the job, and what a check waits for is in its Workload only. Without a message a check is not mentioned.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from manager.workload.status import Status
from multikueue.api.constants import CheckState
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import JobEvent, WorkloadCondition
from multikueue.kube.runtime.events import NORMAL, EventRecorder, Reference

_KEPT: Final = 16384


def pending_checks(status: Status) -> str:
    """What pending checks say of a Workload that holds quota and is not admitted; empty if they say nothing."""
    if not status.is_true(WorkloadCondition.QUOTA_RESERVED) or status.is_true(WorkloadCondition.ADMITTED):
        return ""
    if status.is_true(WorkloadCondition.EVICTED) or status.is_true(WorkloadCondition.FINISHED):
        return ""
    pending = [check for check in status.checks if check.state is CheckState.PENDING and check.message]
    return "; ".join(f"{check.name}: {check.message}" for check in pending)


class CheckMessages:
    """Reports them; what was reported is in memory, so that a manager which has started may repeat one."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._reported: OrderedDict[str, str] = OrderedDict()
        """The last text by the uid of the job."""

    def report(self, job: JsonObject, workload: JsonObject) -> None:
        """Record an event about the job if its pending checks say something new."""
        uid, text = job["metadata"]["uid"], pending_checks(Status.of(workload))
        if not text:
            self._reported.pop(uid, None)
            return
        if self._reported.get(uid) == text:
            return
        self._reported[uid] = text
        if len(self._reported) > _KEPT:
            self._reported.popitem(last=False)
        self._recorder.event(Reference.of(job), NORMAL, JobEvent.UPDATED_ADMISSION_CHECK, text)
