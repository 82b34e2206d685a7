# SPDX-License-Identifier: Apache-2.0
"""Conditions of a Workload by what its cluster reports: that its pods do not start, and changes that are not made."""

from __future__ import annotations

from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.dispatch.hub import messages
from multikueue.dispatch.hub.actions import ChangeUpdate, StartUpdate
from multikueue.dispatch.hub.facts import DispatchedWorkload, Observation
from multikueue.dispatch.worker.assignment_state import FORBIDDEN_BY_POLICY


def start_update(workload: DispatchedWorkload, observation: Observation) -> StartUpdate | None:
    """The change of the condition PodsStarted; None if it shows what the cluster reports."""
    if workload.check is None or not observation.has_phase(AssignmentPhase.RUNNING):
        return None
    problem, shown = observation.start_problem, workload.not_started
    if problem is None:
        return None if shown is None else StartUpdate()
    message = messages.pods_not_started(observation.cluster, problem.message)
    if shown is not None and (shown.reason, shown.message) == (problem.reason, message):
        return None
    return StartUpdate(problem.reason, message)


def change_update(workload: DispatchedWorkload, observation: Observation) -> ChangeUpdate | None:
    """The change of the condition ChangeForwarded; None if it shows what this hub, else the cluster, refuses."""
    if workload.check is None or not observation.has_phase(AssignmentPhase.RUNNING):
        return None
    refused, shown = observation.refused_change, workload.not_forwarded
    reason, why = (FORBIDDEN_BY_POLICY, workload.withheld) if workload.withheld else ("", "")
    if not why and refused is not None:
        reason, why = refused.reason, refused.message
    if not reason:
        return None if shown is None else ChangeUpdate()
    message = messages.not_forwarded(observation.cluster, why)
    if shown is not None and (shown.reason, shown.message) == (reason, message):
        return None
    return ChangeUpdate(reason, message)
