# SPDX-License-Identifier: Apache-2.0
"""The declared kinds as tests play them: what a sample of each has to become, and which cells a kind has not.

Written by hand and not read from the declarations, which it is to prove.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from devcluster.operators.catalog import operator_of
from multikueue.api.objects import JsonObject
from multikueue.api.resource import Resource
from multikueue.kube.rest.client import KubeClient
from tests.support.crds import kinds
from tests.support.operators.operated_kinds import at
from tests.support.operators.operator import Operator
from tests.support.operators.samples import job_set, pod_template, sample


class Cell(StrEnum):
    """What is proved of a kind: the columns of the table in docs/jobs/README.md."""

    QUEUED = "queued"
    ADMITTED = "admitted"
    SELECTORS_INJECTED = "selectors injected"
    SUSPENDED = "suspended on preemption"
    RESUMED = "resumed"
    FINISHED = "finished"
    FAILED = "failed"
    DISPATCHED = "dispatched"
    SHOWN = "status shown"
    CLEANED_UP = "cleaned up"
    FENCED = "fenced"


REMOTE: Final = frozenset({Cell.DISPATCHED, Cell.SHOWN, Cell.CLEANED_UP, Cell.FENCED})
"""The cells of a job that runs on a worker."""
_NEVER_ENDS: Final = "it never ends by itself, so that it has no such state"
_NO_WORKER: Final = "it is not sent to workers, since it has no field `managedBy`"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedKind:
    """One kind; each pod of its sample requests 100m of cpu."""

    resource: Resource
    framework: str
    pod_sets: Mapping[str, int]
    """The counts of the sample's pod sets, in their order; `{name}` is the job's."""
    suspend: tuple[str, ...] = ("spec", "suspend")
    managed_by: tuple[str, ...] = ("spec", "managedBy")
    ends: bool = True
    """Whether it ends by itself."""
    dispatched: bool = True

    @property
    def kind(self) -> str:
        return self.resource.kind

    @property
    def pods(self) -> int:
        """How many pods a sample has."""
        return sum(self.pod_sets.values())

    @property
    def missing(self) -> Mapping[Cell, str]:
        """The cells that the kind has not, each with the reason."""
        found = {} if self.ends else dict.fromkeys((Cell.FINISHED, Cell.FAILED), _NEVER_ENDS)
        return found | ({} if self.dispatched else dict.fromkeys(REMOTE, _NO_WORKER))

    def sample(self, name: str, annotations: Mapping[str, str]) -> JsonObject:
        """A job whose pods have these annotations and end at once when they are deleted."""
        template = pod_template(annotations, terminationGracePeriodSeconds=0)
        if self.resource == kinds.JOB_SETS:
            return job_set(name, template)
        return sample(self.resource, name, template)

    def operator(self, client: KubeClient) -> Operator:
        """What plays its controller on a cluster."""
        return operator_of(client, self.resource)

    def is_suspended(self, job: JsonObject) -> bool:
        """Whether its field for that is true."""
        return at(job, *self.suspend) is True

    def ended_as(self, job: JsonObject) -> str:
        """What the operator wrote of its end; empty before."""
        status = job.get("status") or {}
        return str(status.get("operatorState") or status.get("terminalState") or "")


def _training(resource: Resource, **pod_sets: int) -> PlayedKind:
    return PlayedKind(
        resource=resource,
        framework=f"kubeflow.org/{resource.singular}",
        pod_sets=pod_sets,
        suspend=("spec", "runPolicy", "suspend"),
        managed_by=("spec", "runPolicy", "managedBy"),
    )


PLAYED_KINDS: Final[tuple[PlayedKind, ...]] = (
    PlayedKind(resource=kinds.JOB_SETS, framework="jobset.x-k8s.io/jobset", pod_sets={"leader": 1, "workers": 4}),
    _training(kinds.PYTORCH_JOBS, master=1, worker=2),
    _training(kinds.TF_JOBS, chief=1, worker=2),
    _training(kinds.XGBOOST_JOBS, master=1, worker=2),
    _training(kinds.PADDLE_JOBS, master=1, worker=2),
    _training(kinds.JAX_JOBS, worker=1),
    _training(kinds.MPI_JOBS, launcher=1, worker=2),
    PlayedKind(resource=kinds.TRAIN_JOBS, framework="trainer.kubeflow.org/trainjob", pod_sets={"node": 2}),
    PlayedKind(resource=kinds.RAY_JOBS, framework="ray.io/rayjob", pod_sets={"head": 1, "small": 2, "submitter": 1}),
    PlayedKind(
        resource=kinds.RAY_CLUSTERS, framework="ray.io/raycluster", pod_sets={"head": 1, "small": 2}, ends=False
    ),
    PlayedKind(
        resource=kinds.RAY_SERVICES,
        framework="ray.io/rayservice",
        pod_sets={"head": 1, "small": 2},
        suspend=("spec", "rayClusterConfig", "suspend"),
        ends=False,
    ),
    PlayedKind(resource=kinds.APP_WRAPPERS, framework="workload.codeflare.dev/appwrapper", pod_sets={"{name}-0": 2}),
    PlayedKind(
        resource=kinds.SPARK_APPLICATIONS,
        framework="sparkoperator.k8s.io/sparkapplication",
        pod_sets={"driver": 1, "executor": 2},
        dispatched=False,
    ),
)
"""Those that tests play."""

NOT_PLAYED: Final[Mapping[str, str]] = {
    "LeaderWorkerSet": "it has a Workload for each replica: tests/component/kinds/test_leader_worker_sets.py and"
    " test_remote_leader_worker_sets.py",
}
"""Other kinds whose controller an operator plays, each with the reason."""
