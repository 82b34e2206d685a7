# SPDX-License-Identifier: Apache-2.0
"""Jobs of CRDs without a schema: whatever a tenant writes is read or refused, and breaks nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from multikueue.core.errors import BadInput
from multikueue.jobs.declared.integration import DeclaredIntegration
from multikueue.jobs.declared.paths import Keys, with_value
from multikueue.jobs.framework.protocol import InjectionConflict
from tests.unit.jobs.declared.builders import IDENTITY, PAGES_OF_KINDS, example, infos, kind_of, workload, written

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOSTILE: tuple[Any, ...] = (-1, [1], {"a": 1})
STATUS = {
    "conditions": [{"type": "Running", "status": "True"}],
    "replicatedJobsStatus": [{"name": "workers", "ready": 1, "active": 1, "succeeded": 1}],
    "jobsStatus": [{"name": "node", "ready": 1, "active": 1, "succeeded": 1}],
    "replicaStatuses": {"Worker": {"active": 1}},
    "jobDeploymentStatus": "Running",
    "message": "m",
    "rayClusterStatus": {"state": "ready"},
    "activeServiceStatus": {"rayClusterStatus": {"state": "ready", "availableWorkerReplicas": 1}},
    "state": "ready",
    "availableWorkerReplicas": 1,
    "applicationState": {"state": "RUNNING", "errorMessage": "m"},
    "readyReplicas": 1,
    "replicas": 1,
    "phase": "Running",
}


def places(value: Any, keys: Keys = ()) -> Iterator[Keys]:
    """The keys to every value inside."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        yield (*keys, key)
        yield from places(item, (*keys, key))


def questions(kind: DeclaredIntegration, job: dict[str, Any], sound: dict[str, Any]) -> Iterator[Callable[[], object]]:
    """All that controllers ask of a job; `sound` is the job before it was changed."""
    added, of = infos(sound, kind), workload(sound, kind)
    pod_sets = of["spec"]["podSets"]
    yield lambda: kind.managed_by(job)
    yield lambda: kind.is_suspended(job)
    yield lambda: kind.is_active(job)
    yield lambda: kind.pod_sets(job)
    yield lambda: kind.priority(job)
    yield lambda: kind.matches(job, of, added)
    yield lambda: kind.differences(job, of, added)
    yield lambda: kind.start(job, added)
    yield lambda: kind.stop(job, pod_sets)
    yield lambda: kind.finished(job)
    yield lambda: kind.pods_ready(job)
    yield lambda: kind.reclaimable(job)
    yield lambda: kind.remote_manifest(job, added, identity=IDENTITY)
    yield lambda: kind.local_manifest(job)
    yield lambda: kind.sync_status(job, job["status"])
    yield lambda: kind.stopped_status(job, now=NOW)
    yield lambda: kind.job_refusals(job)
    yield lambda: kind.refused_changes(sound, job)
    yield lambda: kind.pod_labels(job)


@pytest.mark.parametrize("page", PAGES_OF_KINDS)
def test_a_value_of_another_type_anywhere_is_read_or_refused(page: str) -> None:
    job = example(page)
    kind = kind_of(job)
    sound = written(job, kind.start(job, infos(job, kind))) | {"status": STATUS}
    refused = 0
    for keys in [each for each in places(sound) if each[0] in ("spec", "status")]:
        for value in HOSTILE:
            job = with_value(sound, keys, value)
            for ask in questions(kind, job, sound):
                try:
                    ask()
                except (BadInput, InjectionConflict):
                    refused += 1
                except Exception as error:
                    raise AssertionError(f"{keys} = {value!r}: {type(error).__name__}: {error}") from error
    assert refused
