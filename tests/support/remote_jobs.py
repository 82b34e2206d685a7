# SPDX-License-Identifier: Apache-2.0
"""The remote jobs of one agent, of kind Job, and one of them; for tests of what follows and writes them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from multikueue.api.constants import ASSIGNMENT_ANNOTATION, CLUSTER_LABEL, ORIGIN_LABEL
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from multikueue.kube.rest.client import KubeClient
from worker_agent.local.jobs import ASSIGNMENT_ANNOTATIONS, RemoteJobKey, RemoteJobs

KEY = Key("team", "j")
ASSIGNMENT = "a"
OVERDUE = 31.0
"""Seconds after which a job that no watch has shown is asked about."""


def job(version: str) -> dict[str, Any]:
    """The job that an agent created, at that resource version."""
    annotations = dict.fromkeys(ASSIGNMENT_ANNOTATIONS, "1") | {ASSIGNMENT_ANNOTATION: ASSIGNMENT, CLUSTER_LABEL: "w"}
    metadata = {"namespace": KEY.namespace, "name": KEY.name, "uid": "u", "resourceVersion": version}
    labels = {ORIGIN_LABEL: "multikueue"}
    return {"metadata": {**metadata, "labels": labels, "annotations": annotations}, "spec": {"suspend": False}}


def remote_jobs(
    client: KubeClient,
    clock: Clock,
    *,
    changed: Callable[[str], None],
    gone: Callable[[RemoteJobKey], None],
    may_patch: Callable[[], bool] = lambda: True,
) -> RemoteJobs:
    """The jobs of the agent of cluster `w`."""
    return RemoteJobs(
        client,
        BATCH_JOB,
        cluster="w",
        origin="multikueue",
        clock=clock,
        random=Random(1),
        changed=changed,
        gone=gone,
        may_patch=may_patch,
    )
