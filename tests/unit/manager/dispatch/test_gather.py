# SPDX-License-Identifier: Apache-2.0
"""What dispatch takes for the job of a Workload."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from manager.dispatch.gather import Gathered, Hub, load_job
from multikueue.core.keys import Key
from multikueue.dispatch.hub.facts import DispatchFacts
from multikueue.jobs.kinds.batch_job import BatchJob

KEY = Key("team", "job")


def found(job_uid: str, *, owner_uid: str | None) -> dict[str, Any] | None:
    """What is loaded for a Workload of that owner, while the Job of its name has that uid."""
    job = {"metadata": {"namespace": KEY.namespace, "name": KEY.name, "uid": job_uid}}
    view = SimpleNamespace(object=lambda key: job if key == KEY else None)
    context = SimpleNamespace(caches=SimpleNamespace(view=lambda resource: view))
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": KEY.name, "uid": owner_uid, "controller": True}
    workload = {"metadata": {"ownerReferences": [] if owner_uid is None else [owner]}}
    gathered = Gathered(facts=DispatchFacts(workload=None), workload=workload, integration=BatchJob(), job=KEY)
    return load_job(cast(Hub, context), gathered)


def test_the_job_is_the_one_that_owns_the_workload() -> None:
    job = found("first", owner_uid="first")
    assert job is not None
    assert job["metadata"]["uid"] == "first"


@pytest.mark.parametrize("owner_uid", ["first", None], ids=["of the former one", "of no job"])
def test_a_job_that_was_created_again_with_its_name_is_not_the_job_of_a_workload(owner_uid: str | None) -> None:
    assert found("second", owner_uid=owner_uid) is None
