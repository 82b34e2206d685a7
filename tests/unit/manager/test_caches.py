# SPDX-License-Identifier: Apache-2.0
"""What the manager finds Workloads by, and what it keeps of objects."""

from __future__ import annotations

import zlib
from typing import Any

import orjson
import pytest

from manager.caches import DISPATCH_INDEX, followed, without_what_was_sent
from multikueue.api.resource import WORKLOADS

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
        pytest.param({"admission": _ADMISSION, "clusterName": "w"}, ["w"], id="one that was granted stands on its own"),
        pytest.param({"clusterName": "w"}, ["w"], id="one that lost its quota stands there until it is taken away"),
        pytest.param({"clusterName": "w", "conditions": _FINISHED}, [], id="one that is finished stands nowhere"),
    ],
)
def test_a_change_of_a_cluster_concerns_what_stands_there_and_what_waits(
    status: dict[str, Any], terms: list[str]
) -> None:
    assert dispatch_terms(status) == terms


def test_of_an_assignment_is_kept_what_was_wished_and_said_but_not_what_was_sent() -> None:
    sent = {"job": {"name": "j", "manifest": {"spec": {}}}, "workloadSpec": {}, "podSetAssignments": []}
    stored = {
        "metadata": {"name": "a", "managedFields": [{}]},
        "spec": {"epoch": 2, "intent": "Run", **sent},
        "status": {"phase": "Running"},
    }
    assert orjson.loads(zlib.decompress(without_what_was_sent(orjson.dumps(stored)))) == {
        "metadata": {"name": "a"},
        "spec": {"epoch": 2, "intent": "Run", "job": {"name": "j"}},
        "status": {"phase": "Running"},
    }
