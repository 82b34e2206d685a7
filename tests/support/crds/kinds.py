# SPDX-License-Identifier: Apache-2.0
"""The definitions of job kinds, which local clusters have too."""

from __future__ import annotations

from devcluster.operators.definitions import (
    APP_WRAPPERS,
    CLUSTER_TRAINING_RUNTIMES,
    JAX_JOBS,
    JOB_SETS,
    MPI_JOBS,
    PADDLE_JOBS,
    PYTORCH_JOBS,
    RAY_CLUSTERS,
    RAY_JOBS,
    RAY_SERVICES,
    SCALED,
    SPARK_APPLICATIONS,
    SPECS,
    TF_JOBS,
    TRAIN_JOBS,
    TRAINING_RUNTIMES,
    XGBOOST_JOBS,
    definition,
    install,
)
from multikueue.api.resource import LEADER_WORKER_SETS

__all__ = [
    "APP_WRAPPERS",
    "CLUSTER_TRAINING_RUNTIMES",
    "JAX_JOBS",
    "JOB_SETS",
    "LEADER_WORKER_SETS",
    "MPI_JOBS",
    "PADDLE_JOBS",
    "PYTORCH_JOBS",
    "RAY_CLUSTERS",
    "RAY_JOBS",
    "RAY_SERVICES",
    "SCALED",
    "SPARK_APPLICATIONS",
    "SPECS",
    "TF_JOBS",
    "TRAINING_RUNTIMES",
    "TRAIN_JOBS",
    "XGBOOST_JOBS",
    "definition",
    "install",
]
