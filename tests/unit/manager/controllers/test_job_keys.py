# SPDX-License-Identifier: Apache-2.0
"""Which Workloads are those of a replica."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import orjson

from manager.cache.caches import Caches
from manager.cache.indexes import CONTROLLER_INDEX, NAMED_OWNER_INDEX, OWNER_INDEX, owner_term
from manager.cache.views import View
from manager.controllers.job_keys import JobKeys
from multikueue.api.constants import JOB_UID_LABEL
from multikueue.api.resource import LEADER_WORKER_SETS, LIMIT_RANGES, PODS, RUNTIME_CLASSES, WORKLOADS
from multikueue.core.clock import ManualClock
from multikueue.jobs.framework.workloads import Priority, workload_for
from multikueue.jobs.kinds.leader_worker_set import LeaderWorkerSetIntegration
from multikueue.kube.cache.store import Store, read_row

SETS = LeaderWorkerSetIntegration()
POD = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
Object = dict[str, Any]


def a_set(name: str) -> Object:
    return {
        "apiVersion": LEADER_WORKER_SETS.api_version,
        "kind": LEADER_WORKER_SETS.kind,
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-of-{name}", "resourceVersion": "1"},
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": POD}},
    }


def workload_of(job: Object, index: int) -> Object:
    made = workload_for(SETS.replica(job, index), SETS, priority=Priority())
    made["metadata"] |= {"uid": f"{job['metadata']['name']}-{index}", "resourceVersion": "1"}
    return made


def keys_over(*workloads: Object) -> JobKeys:
    clock = ManualClock()
    indexers = {OWNER_INDEX: _owner_terms}
    views = {
        WORKLOADS: View(WORKLOADS, clock=clock, store=Store(indexers)),
        LEADER_WORKER_SETS: View(LEADER_WORKER_SETS, clock=clock),
        **{each: View(each, clock=clock) for each in (LIMIT_RANGES, RUNTIME_CLASSES)},
        PODS: View(PODS, clock=clock, store=Store({CONTROLLER_INDEX: _none, NAMED_OWNER_INDEX: _none})),
    }
    for each in workloads:
        views[WORKLOADS].store.put(read_row(orjson.dumps(each)))
    return JobKeys(cast(Caches, SimpleNamespace(view=views.__getitem__)), SETS)


def _owner_terms(workload: Object) -> list[str]:
    namespace = workload["metadata"]["namespace"]
    return [
        owner_term(api_version=each["apiVersion"], kind=each["kind"], namespace=namespace, name=each["name"])
        for each in workload["metadata"]["ownerReferences"]
    ]


def _none(_: Object) -> list[str]:
    return []


def names_of(keys: JobKeys, workload: Object, job: str) -> list[str]:
    """The Workloads of the replica that this Workload is for, of that job."""
    found = {name: key for key in keys.of_workload(workload) for name in [keys.of_job(key).name]}
    return sorted(each["metadata"]["uid"] for each in keys.workloads(found[job]))


def test_a_further_owner_makes_a_workload_of_another_set_no_replica_of_it() -> None:
    llm, theirs = a_set("llm"), a_set("theirs")
    real, forged = workload_of(llm, 0), workload_of(theirs, 0)
    owner = {"apiVersion": llm["apiVersion"], "kind": llm["kind"], "name": "llm", "uid": llm["metadata"]["uid"]}
    forged["metadata"]["ownerReferences"].append(owner)
    forged["metadata"].setdefault("labels", {})[JOB_UID_LABEL] = llm["metadata"]["uid"]
    keys = keys_over(real, forged)
    assert names_of(keys, forged, "llm") == ["llm-0"]
    assert names_of(keys, forged, "theirs") == ["theirs-0"]


def test_each_replica_has_the_workload_of_its_index() -> None:
    llm = a_set("llm")
    first, second = workload_of(llm, 0), workload_of(llm, 1)
    keys = keys_over(first, second)
    assert names_of(keys, first, "llm") == ["llm-0"]
    assert names_of(keys, second, "llm") == ["llm-1"]
