# SPDX-License-Identifier: Apache-2.0
"""The runbook has an entry for every reason and every message that the product writes or knows."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import pytest

from manager.registration import approval, controller
from multikueue.api import reasons
from multikueue.core.timestamps import format_time
from multikueue.dispatch.dispatchers.capacity import FILTERS
from multikueue.dispatch.dispatchers.cluster_capacity import Fit, Lack, Level
from multikueue.dispatch.hub import messages, waits
from multikueue.dispatch.hub.actions import WaitingReason
from multikueue.dispatch.hub.facts import ClusterFacts
from multikueue.dispatch.protocol import phases
from multikueue.dispatch.worker import assignment_state
from multikueue.jobs.framework import pod_starts
from worker_agent import reconciler
from worker_agent.local import boundary, obstacles
from worker_agent.local.queueing import clones

RUNBOOK = (Path(__file__).parents[2] / "docs" / "operations" / "runbook.md").read_text()
SECTIONS = {
    reasons.QuotaReservedReason: "Workload: QuotaReserved",
    reasons.AdmittedReason: "Workload: Admitted",
    reasons.FinishedReason: "Workload: Finished",
    reasons.PodsReadyReason: "Workload: PodsReady",
    reasons.EvictedReason: "Workload: Evicted",
    reasons.DeactivationCause: "Workload: DeactivationTarget",
    reasons.PreemptedReason: "Workload: Preempted",
    reasons.RequeuedReason: "Workload: Requeued",
    reasons.ClusterQueueReason: "ClusterQueue: Active",
    reasons.QuotaAutomationReason: "ClusterQueue: MultiKueueManagerQuotaAutomation",
    reasons.LocalQueueReason: "LocalQueue: Active",
    reasons.AdmissionCheckReason: "AdmissionCheck: Active",
    reasons.ClusterReason: "MultiKueueCluster: Active",
    reasons.CohortReason: "Cohort: Active",
}
# Named somewhere on the page, in a table or not.
ANYWHERE = (
    reasons.WorkloadCondition,
    reasons.PodCondition,
    reasons.WorkloadEvent,
    reasons.JobEvent,
    reasons.FrameworkEvent,
    reasons.PodEvent,
)
TIME = datetime(2026, 1, 1, tzinfo=UTC)


def section(heading: str) -> str:
    _, found, rest = RUNBOOK.partition(f"\n## {heading}\n")
    assert found, f"the runbook has no section {heading!r}"
    return rest.partition("\n## ")[0]


def entries(heading: str) -> dict[str, str]:
    """The rows of a section's tables: the name, and what is said of it."""
    return dict(re.findall(r"^\| `([^`]+)` \|(.+)\|$", section(heading), re.MULTILINE))


def enums() -> Iterator[type[StrEnum]]:
    for value in vars(reasons).values():
        if isinstance(value, type) and issubclass(value, StrEnum) and value is not StrEnum:
            yield value


@pytest.mark.parametrize("enum", list(SECTIONS), ids=lambda enum: enum.__name__)
def test_every_reason_of_a_condition_has_a_row_in_its_section(enum: type[StrEnum]) -> None:
    rows = entries(SECTIONS[enum])
    assert sorted(set(enum) - rows.keys()) == []
    assert sorted(rows.keys() - set(enum)) == [], "the runbook tells of reasons that there are not"
    assert all(len(text.split()) > 1 for text in rows.values())


def test_no_enumeration_of_reasons_is_left_out() -> None:
    assert {each.__name__ for each in enums()} == {each.__name__ for each in (*SECTIONS, *ANYWHERE)}
    for enum in ANYWHERE:
        assert [name for name in enum if f"`{name}`" not in RUNBOOK] == []


def test_reasons_without_a_message_are_named() -> None:
    alone = [value for name, value in vars(reasons).items() if name.endswith(("_REASON", "_CONDITION", "_EVENT"))]
    assert len(alone) >= 5
    assert [value for value in alone if f"`{value}`" not in RUNBOOK] == []


def test_every_reason_of_a_worker_has_a_row() -> None:
    known = {
        value
        for module in (boundary, assignment_state, phases, reconciler, obstacles, clones)
        for name, value in vars(module).items()
        if name.strip("_").isupper() and isinstance(value, str) and re.fullmatch(r"([A-Z][a-z]+){2,}", value)
    }
    assert {assignment_state.NO_CAPACITY, phases.JOB_GONE, obstacles.NAMESPACE_MISSING} <= known
    assert sorted(known - entries("Reasons of workers").keys()) == []


def test_every_reason_of_a_registration_has_a_row() -> None:
    denied = set(re.findall(r'Deny\("(\w+)"', inspect.getsource(approval)))
    noted = set(re.findall(r'_(?:note|decide)\([^")]*?"?\w*"?,? ?"([A-Z]\w+)"', inspect.getsource(controller)))
    assert len(denied) > 10
    assert "WaitsForApproval" in noted
    assert sorted((denied | noted) - entries("ClusterRegistration: Registered").keys() - {"Denied"}) == []


def test_every_message_of_the_check_is_there_word_for_word() -> None:
    told = {
        messages.admitted_on("CLUSTER"),
        messages.no_adapter("KIND"),
        messages.not_managed("MANAGED_BY"),
        messages.sent_already("KIND", "NAME", "WORKLOAD"),
        messages.out_of_sync("CLUSTER"),
        messages.evicted_on_worker("CLUSTER", "REASON", "STATE"),  # type: ignore[arg-type]
        messages.refused("CLUSTER", "REASON", "MESSAGE"),
        messages.stopped_without_check("CLUSTER", "REASON"),
        messages.gate_opened("CLUSTER"),
        messages.drained("CLUSTER"),
        messages.pods_given_up("CLUSTER", "REASON", "MESSAGE"),
        messages.pods_not_started("CLUSTER", "MESSAGE"),
        messages.forbidden("CLUSTER", "REASON"),
        messages.forbidden_everywhere("REASON"),
        messages.waiting([WaitingReason("CLUSTER", "REASON")]),
        messages.provisioning([WaitingReason("CLUSTER", "MESSAGE")]),
        messages.provisioned_on("CLUSTER", "MESSAGE"),
        messages.free_on("CLUSTER"),
        messages.runs_already_on("CLUSTER"),
        messages.no_cluster_provisioned([WaitingReason("CLUSTER", "MESSAGE")], attempt=1, retry_seconds=60),
        messages.LOST,
        messages.NO_LONGER_THERE,
        messages.READY_WITHOUT_CLUSTER,
    }
    makers = {name for name, value in vars(messages).items() if inspect.isfunction(value)} - {
        "excerpt",
        "not_forwarded",  # an event, which docs/reference/messages.md has
        "reasons_by_cluster",
        "start_detail",
        "reported",
        "printable",
    }
    assert len(told) == len(makers) + 3, "a message of messages.py is not asked for here"
    assert sorted(told - entries("Messages of the MultiKueue check").keys()) == []


def test_every_cause_why_a_cluster_does_not_take_a_workload_is_there() -> None:
    lost = ClusterFacts(name="w", lost_since=TIME, reason="ClientConnectionFailed")
    bad = ClusterFacts(name="w", lost_since=TIME, reason="BadKubeConfig", message="MESSAGE")
    told = {
        waits.unavailable(lost),
        waits.unavailable(bad),
        waits.closed(ClusterFacts(name="w", takes_new_work=False)),
        waits.closed(ClusterFacts(name="w", takes_new_work=False, draining=True)),
        waits.avoided(TIME),
        waits.shortage(Fit(Level.LATER, (Lack("cpu", 3000),))),
        waits.shortage(Fit(Level.NEVER, (Lack("cpu", 3000),))),
    }
    rows = entries("Messages of the MultiKueue check")
    assert sorted({text.replace(format_time(TIME), "TIME") for text in told} - rows.keys()) == []
    said = " ".join(rows.values())
    assert [each.__name__ for each in FILTERS if f"Filter `{each.__name__}`" not in said] == []


def test_every_reason_of_pods_that_do_not_start_which_is_ours_has_a_row() -> None:
    ours = {pod_starts.NO_PODS, reasons.PODS_NOT_STARTED_REASON}
    assert sorted(ours - entries("Workload: PodsStarted").keys()) == []
