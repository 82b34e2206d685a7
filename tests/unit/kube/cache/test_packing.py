# SPDX-License-Identifier: Apache-2.0
"""Packed objects: what was packed comes back, whatever it is, and an ordinary Workload becomes small."""

from __future__ import annotations

import orjson
from hypothesis import given
from hypothesis import strategies as st

from multikueue.kube.cache.packing import packed, unpacked

UID = "5d3c8b1e-95a7-4f30-8d0b-6b1f0c7e2a94"
TIME = "2026-03-01T08:00:00Z"


def workload() -> bytes:
    """An admitted Workload of a Job, as the hub stores it."""
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}],
    }
    conditions = [
        {"type": each, "status": "True", "reason": each, "message": f"It is {each}", "lastTransitionTime": TIME}
        for each in ("QuotaReserved", "Admitted", "Finished")
    ]
    metadata = {
        "name": "job-train-1dadf",
        "namespace": "team-a",
        "uid": UID,
        "resourceVersion": "281",
        "creationTimestamp": TIME,
        "labels": {"kueue.x-k8s.io/queue-name": "jobs"},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": UID, "controller": True}],
    }
    spec = {
        "active": True,
        "queueName": "jobs",
        "podSets": [{"name": "main", "count": 1, "template": {"metadata": {}, "spec": pod}}],
    }
    assigned = [{"name": "main", "flavors": {"cpu": "default"}, "resourceUsage": {"cpu": "1"}, "count": 1}]
    status = {
        "conditions": conditions,
        "admission": {"clusterQueue": "team-a", "podSetAssignments": assigned},
        "clusterName": "east",
    }
    return orjson.dumps(
        {
            "kind": "Workload",
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "metadata": metadata,
            "spec": spec,
            "status": status,
        }
    )


@given(
    st.recursive(st.none() | st.text() | st.integers(-(2**53), 2**53), lambda each: st.dictionaries(st.text(), each))
)
def test_what_was_packed_comes_back(value: object) -> None:
    raw = orjson.dumps({"object": value})
    assert unpacked(packed(raw)) == raw


def test_what_was_not_packed_stays_as_it_is() -> None:
    assert (unpacked(b'{"metadata":{}}'), unpacked(b"")) == (b'{"metadata":{}}', b"")


def test_an_ordinary_workload_takes_a_third_of_its_bytes() -> None:
    assert len(packed(workload())) * 3 < len(workload())
