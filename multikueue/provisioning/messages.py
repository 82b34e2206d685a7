# SPDX-License-Identifier: Apache-2.0
"""The messages of a provisioning check, as users read them in their Workload."""

from __future__ import annotations

from typing import Final

NOT_NEEDED: Final = "the provisioning request is not needed"
INACTIVE: Final = "the check is not active"
REVOKED: Final = "the capacity was revoked"


def requested(request: str, class_name: str, attempt: int) -> str:
    """The autoscaler has not answered yet."""
    return f"Waiting for an autoscaler to accept ProvisioningRequest {request} of class {class_name}, attempt {attempt}"


def taken(request: str) -> str:
    """Another object has the name of the request."""
    return f"ProvisioningRequest {request} exists and does not belong to this Workload; delete it or rename the job"


def not_created(request: str, error: str) -> str:
    """The API server refused the request."""
    return f"ProvisioningRequest {request} could not be created, trying again: {error}"


def retrying_after_failure(message: str) -> str:
    """An attempt has failed, and another follows."""
    return f"Retrying after failure: {message}"


def retrying_after_expiry(message: str) -> str:
    """The capacity was not used in time, and another attempt follows."""
    return f"Retrying after booking expired: {message}"


def no_attempt_left(attempt: int, message: str) -> str:
    """The last attempt has failed."""
    return f"No attempt is left after attempt {attempt}: {message}"


def bad_detail(request: str, detail: str, problem: str) -> str:
    """A node label cannot have the value that the autoscaler gave."""
    return f"ProvisioningRequest {request}: status.provisioningClassDetails[{detail}] cannot be a node label: {problem}"


def in_progress(request: str, class_name: str, since: str, message: str) -> str:
    """Of a request on a worker cluster that is not answered for good yet."""
    detail = message or "waiting for an autoscaler to accept it"
    return f"ProvisioningRequest {request} of class {class_name} since {since}: {detail}"


def ended(request: str, message: str) -> str:
    """Of a request on a worker cluster that provides no capacity, or no longer."""
    return f"ProvisioningRequest {request}: {message or 'the autoscaler gave no message'}"


def of_another(request: str) -> str:
    """Another object on the worker cluster has the name of the request."""
    return f"ProvisioningRequest {request} exists on this cluster and was not made for this assignment; delete it"


def two_checks(pod_set: str) -> str:
    """Pods consume the capacity of one request."""
    return f"pod set {pod_set}: two provisioning checks request capacity for it, and its pods can consume one"
