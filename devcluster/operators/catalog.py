# SPDX-License-Identifier: Apache-2.0
"""The operator of each kind."""

from __future__ import annotations

from devcluster.operators.definitions import JOB_SETS, TRAIN_JOBS
from devcluster.operators.job_sets import JobSetOperator
from devcluster.operators.operated_kinds import kind_of
from devcluster.operators.operator import Operator
from devcluster.operators.templated import TemplatedOperator
from devcluster.operators.train_jobs import TrainJobOperator
from multikueue.api.resource import Resource
from multikueue.kube.rest.client import KubeClient


def operator_of(client: KubeClient, resource: Resource) -> Operator:
    """An operator of the kind on the cluster of that client."""
    if resource == JOB_SETS:
        return JobSetOperator(client)
    if resource == TRAIN_JOBS:
        return TrainJobOperator(client)
    return TemplatedOperator(client, kind_of(resource))
