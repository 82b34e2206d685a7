# SPDX-License-Identifier: Apache-2.0
"""What a decision about a Workload is told of its queue, its admission and the checks that it needs."""

from __future__ import annotations

import pytest

from manager.controllers.workload_facts import AdmissionQueueFacts, assigned_flavors, required_checks
from multikueue.api.constants import StopPolicy
from multikueue.api.meta import JsonObject
from multikueue.engine.values import CheckRule
from tests.unit.manager.builders import reserved


@pytest.mark.parametrize(
    ("flavors", "want"),
    [
        pytest.param(None, ("all",), id="before the reservation only those for every flavor"),
        pytest.param(frozenset({"gpu"}), ("all", "gpu-only"), id="after it those of its flavors too"),
        pytest.param(frozenset({"cpu"}), ("all",), id="not those of other flavors"),
    ],
)
def test_required_checks(flavors: frozenset[str] | None, want: tuple[str, ...]) -> None:
    rules = (CheckRule("all"), CheckRule("gpu-only", frozenset({"gpu"})))
    assert required_checks(rules, flavors) == want


def test_facts_of_a_queue_object_and_of_an_admission() -> None:
    queue_spec: JsonObject = {
        "stopPolicy": "Hold",
        "admissionChecksStrategy": {"admissionChecks": [{"name": "a", "onFlavors": ["f"]}]},
    }
    queue = AdmissionQueueFacts.of({"metadata": {"name": "q", "deletionTimestamp": "now"}, "spec": queue_spec})
    assert (queue.stop_policy, queue.terminating, queue.checks) == (
        StopPolicy.HOLD,
        True,
        (CheckRule("a", frozenset({"f"})),),
    )
    flavors = [{"name": "f"}, {"name": "g"}]
    spec = queue_spec | {"resourceGroups": [{"flavors": flavors[:1]}]}
    assert AdmissionQueueFacts.of({"metadata": {"name": "q"}, "spec": spec}).checks == (CheckRule("a"),)
    spec = queue_spec | {"resourceGroups": [{"flavors": flavors}]}
    assert AdmissionQueueFacts.of({"metadata": {"name": "q"}, "spec": spec}).checks == queue.checks
    assert assigned_flavors(reserved().admission) == frozenset({"default"})
    assert assigned_flavors(None) is None
