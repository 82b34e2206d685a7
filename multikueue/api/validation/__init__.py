# SPDX-License-Identifier: Apache-2.0
"""What the validating webhooks refuse (`docs/spec/kueue-api.md §3`), as pure functions of new and old object."""

from multikueue.api.validation.errors import ErrorKind, FieldError, join
from multikueue.api.validation.job import validate_job
from multikueue.api.validation.quota import validate_cluster_queue, validate_cohort, validate_resource_flavor
from multikueue.api.validation.workload import validate_workload

__all__ = [
    "ErrorKind",
    "FieldError",
    "join",
    "validate_cluster_queue",
    "validate_cohort",
    "validate_job",
    "validate_resource_flavor",
    "validate_workload",
]
