# SPDX-License-Identifier: Apache-2.0
"""Answers of an API server that refuses, for clients that tests play."""

from __future__ import annotations

from multikueue.kube import errors
from multikueue.kube.errors import Details


def refused(kind: type[errors.ApiError], status: int, message: str = "refused") -> errors.ApiError:
    """The error that the client raises for that answer."""
    return kind(request="GET pods", status=status, reason="", message=message, details=Details())
