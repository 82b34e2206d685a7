# SPDX-License-Identifier: Apache-2.0
"""Why a Workload has no quota, as the reconciler says it (docs/spec/engine.md §7.12)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from manager.controllers.workload_facts import WorkloadFacts
from manager.workload.status import Status
from multikueue.api.constants import StopPolicy
from multikueue.api.reasons import QuotaReservedReason, WorkloadCondition
from multikueue.engine.decisions import Bypassed
from tests.unit.manager.builders import (
    KEY,
    admitted,
    check,
    cluster_queue,
    decided,
    facts,
    local_queue,
    pending,
    reserved,
    shown,
    status,
    with_checks,
)

HOLD, DRAIN = StopPolicy.HOLD, StopPolicy.HOLD_AND_DRAIN
CLAIM = 'podSet main: resourceClaim "x": ResourceClaimTemplate "t" not found'


@pytest.mark.parametrize(
    ("known", "old", "want"),
    [
        pytest.param(
            facts(local_queue=None, cluster_queue=None),
            status(),
            ("False", "Misconfigured", "LocalQueue lq doesn't exist"),
            id="a queue that does not exist is reported at once",
        ),
        pytest.param(
            facts(local_queue=local_queue(HOLD)),
            status(),
            ("False", "Suspended", "LocalQueue lq is inactive"),
            id="a stopped LocalQueue is reported",
        ),
        pytest.param(
            facts(cluster_queue=None),
            status(),
            ("False", "Misconfigured", "ClusterQueue cq doesn't exist"),
            id="a LocalQueue without its ClusterQueue is reported",
        ),
        pytest.param(
            facts(cluster_queue=cluster_queue(active=False)),
            status(),
            ("False", "Suspended", "ClusterQueue cq is inactive"),
            id="an inactive ClusterQueue is reported",
        ),
        pytest.param(
            facts(gated_by=("a.io/x", "b.io/y")),
            status(),
            ("False", "AdmissionGated", "Admission is gated by: a.io/x,b.io/y"),
            id="gates are named",
        ),
        pytest.param(
            facts(
                bypassed=Bypassed(
                    workload=KEY, cluster_queue="cq", reason=QuotaReservedReason.WAITING_FOR_QUOTA, message="as another"
                )
            ),
            status(),
            ("False", "WaitingForQuota", "as another"),
            id="one that is inadmissible like its equal on arrival shows why",
        ),
        pytest.param(facts(), status(), None, id="a fresh workload in a working queue gets no condition"),
        pytest.param(
            facts(),
            pending("Misconfigured", "LocalQueue lq doesn't exist"),
            (
                "False",
                "PendingEvaluation",
                "Workload is pending evaluation in the scheduling queue",
            ),
            id="what was wrong and is not any more is taken back",
        ),
        pytest.param(
            facts(),
            pending("Misconfigured", "workload namespace doesn't match ClusterQueue selector"),
            ("False", "Misconfigured", "workload namespace doesn't match ClusterQueue selector"),
            id="the scheduler's message is kept",
        ),
        pytest.param(
            facts(),
            pending("Misconfigured", "podSet main: container c: resources.cpu: invalid quantity"),
            ("False", "Misconfigured", "podSet main: container c: resources.cpu: invalid quantity"),
            id="why it cannot be read is kept, which begins with a pod set too",
        ),
        pytest.param(
            facts(claims_problem=CLAIM),
            status(),
            ("False", "Misconfigured", CLAIM),
            id="devices that cannot be counted are shown at once",
        ),
        pytest.param(
            facts(),
            pending("Misconfigured", CLAIM),
            ("False", "PendingEvaluation", "Workload is pending evaluation in the scheduling queue"),
            id="and taken back when they can be counted",
        ),
        pytest.param(
            facts(local_queue=None, cluster_queue=None),
            reserved(),
            ("False", "Misconfigured", "LocalQueue lq is terminating or missing"),
            id="a reservation is lost with the LocalQueue",
        ),
        pytest.param(
            facts(cluster_queue=cluster_queue(terminating=True)),
            reserved(),
            ("False", "Misconfigured", "ClusterQueue cq is terminating or missing"),
            id="a reservation is lost with the ClusterQueue",
        ),
        pytest.param(
            facts(cluster_queue=cluster_queue(HOLD, "mk")),
            with_checks(reserved(), check("mk")),
            ("False", "Suspended", "ClusterQueue cq is stopped"),
            id="a reservation that is not admitted is lost when the ClusterQueue is stopped",
        ),
        pytest.param(
            facts(local_queue=local_queue(DRAIN)),
            reserved(),
            ("False", "Suspended", "LocalQueue lq is stopped"),
            id="a reservation that is not admitted is lost without an eviction also when the queue is drained",
        ),
        pytest.param(
            facts(local_queue=local_queue(HOLD)),
            admitted(),
            ("True", "QuotaReserved", "Quota reserved in ClusterQueue cq"),
            id="an admitted workload runs on in a held queue",
        ),
    ],
)
def test_quota_reserved(known: WorkloadFacts, old: Status, want: tuple[str, str, str] | None) -> None:
    assert shown(decided(known, old).status, WorkloadCondition.QUOTA_RESERVED) == want


def test_what_took_the_reservation_stays_the_reason_while_it_is_so() -> None:
    known = facts(local_queue=local_queue(HOLD))
    once = decided(known, reserved()).status
    assert shown(once, WorkloadCondition.QUOTA_RESERVED) == ("False", "Suspended", "LocalQueue lq is stopped")
    assert decided(known, once).status is once
    assert decided(facts(), once).status.condition(WorkloadCondition.QUOTA_RESERVED) == replace(
        once.conditions[0], reason="PendingEvaluation", message="Workload is pending evaluation in the scheduling queue"
    )


@pytest.mark.parametrize(
    ("known", "message"),
    [
        pytest.param(
            facts(local_queue=local_queue(HOLD)), "LocalQueue lq is held: its stopPolicy is Hold", id="the LocalQueue"
        ),
        pytest.param(
            facts(cluster_queue=cluster_queue(DRAIN)),
            "ClusterQueue cq is held: its stopPolicy is HoldAndDrain",
            id="the ClusterQueue",
        ),
    ],
)
@pytest.mark.parametrize("old", [status(), reserved()], ids=["a new workload", "one that had quota"])
def test_a_held_queue_causes_one_event_about_the_workload_and_its_job(
    known: WorkloadFacts, message: str, old: Status
) -> None:
    first = decided(known, old)
    (note,) = first.notes
    assert (note.reason, note.about_job, note.message.startswith(message)) == ("QueueHeld", True, True)
    assert note.message.endswith("until an administrator sets it to None")
    assert decided(known, first.status).notes == ()


def test_a_queue_that_is_not_held_causes_no_event() -> None:
    assert decided(facts(), status()).notes == ()
    assert decided(facts(local_queue=None), status()).notes == ()
