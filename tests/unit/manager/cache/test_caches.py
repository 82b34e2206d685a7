# SPDX-License-Identifier: Apache-2.0
"""What the manager finds Workloads by, and what it keeps of objects."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from manager.cache.indexes import DISPATCH_INDEX, followed, without_what_was_sent
from multikueue.api.resource import WORKLOADS
from multikueue.kube.cache.packing import unpacked

_ADMISSION = {"clusterQueue": "q"}
_FINISHED = [{"type": "Finished", "status": "True"}]


def dispatch_terms(status: dict[str, Any]) -> list[str]:
    kinds = {kind.resource: kind for kind in followed(namespace="kueue-system", jobs=())}
    return list(kinds[WORKLOADS].indexers[DISPATCH_INDEX]({"metadata": {}, "status": status}))


@pytest.mark.parametrize(
    ("status", "terms"),
    [
        pytest.param({}, [], id="one without quota asks about no cluster"),
        pytest.param({"admission": _ADMISSION}, [""], id="one with quota waits for any cluster"),
        pytest.param({"admission": _ADMISSION, "clusterName": "w"}, ["w"], id="a granted one, by its cluster"),
        pytest.param({"clusterName": "w"}, ["w"], id="one without quota, until its assignment is removed"),
        pytest.param({"clusterName": "w", "conditions": _FINISHED}, [], id="a finished one, nowhere"),
    ],
)
def test_a_change_of_a_cluster_concerns_its_workloads_and_the_waiting_ones(
    status: dict[str, Any], terms: list[str]
) -> None:
    assert dispatch_terms(status) == terms


def test_intent_and_status_of_an_assignment_are_kept_and_not_what_was_sent() -> None:
    sent = {"job": {"name": "j", "manifest": {"spec": {}}}, "workloadSpec": {}, "podSetAssignments": []}
    stored = {
        "metadata": {"name": "a", "managedFields": [{}]},
        "spec": {"epoch": 2, "intent": "Run", **sent},
        "status": {"phase": "Running"},
    }
    assert orjson.loads(unpacked(without_what_was_sent(stored))) == {
        "metadata": {"name": "a"},
        "spec": {"epoch": 2, "intent": "Run", "job": {"name": "j"}},
        "status": {"phase": "Running"},
    }
