# SPDX-License-Identifier: Apache-2.0
"""What pending admission checks say of a Workload, for an event on its job, once for each text.

A user looks at the job, and what a check waits for is in its Workload only. Without a message a check is not mentioned.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from manager.workload.status import Status
from multikueue.api.constants import CheckState
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadCondition
from multikueue.dispatch.hub import messages

_KEPT: Final = 16384


def pending_checks(workload: JsonObject) -> str:
    """What pending checks say of a Workload that holds quota and is not admitted; empty if they say nothing.

    What a check of MultiKueue waits for is left out: the event WaitingForCluster has it.
    """
    if not (workload.get("status") or {}).get("admissionChecks"):
        return ""
    status = Status.of(workload)
    if not status.is_true(WorkloadCondition.QUOTA_RESERVED) or status.is_true(WorkloadCondition.ADMITTED):
        return ""
    if status.is_true(WorkloadCondition.EVICTED) or status.is_true(WorkloadCondition.FINISHED):
        return ""
    pending = (check for check in status.checks if check.state is CheckState.PENDING and check.message)
    return "; ".join(
        f"{check.name}: {check.message}" for check in pending if not check.message.startswith(messages.WAITING)
    )


class CheckMessages:
    """What was reported is in memory, so that a manager that has started may report it again."""

    def __init__(self) -> None:
        self._reported: OrderedDict[str, str] = OrderedDict()
        """The last text by the uid of the Workload."""

    def new(self, workload: JsonObject) -> str:
        """What its pending checks say and was not reported; empty if there is nothing new. Counts as reported then."""
        uid, text = workload["metadata"]["uid"], pending_checks(workload)
        if not text:
            self._reported.pop(uid, None)
            return ""
        if self._reported.get(uid) == text:
            return ""
        self._reported[uid] = text
        if len(self._reported) > _KEPT:
            self._reported.popitem(last=False)
        return text
