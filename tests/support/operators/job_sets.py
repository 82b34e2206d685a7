# SPDX-License-Identifier: Apache-2.0
"""The operator of JobSets, which local clusters have too."""

from __future__ import annotations

from devcluster.operators.job_sets import (
    ATTEMPT_LABEL,
    CONTROLLER,
    INDEX_LABEL,
    NAME_LABEL,
    REPLICATED_JOB_LABEL,
    JobSetOperator,
)

__all__ = [
    "ATTEMPT_LABEL",
    "CONTROLLER",
    "INDEX_LABEL",
    "NAME_LABEL",
    "REPLICATED_JOB_LABEL",
    "JobSetOperator",
]
