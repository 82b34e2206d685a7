# SPDX-License-Identifier: Apache-2.0
"""The names of ProvisioningRequests and of their PodTemplates (`docs/spec/kueue-api.md §5.2`)."""

from __future__ import annotations

import hashlib
from typing import Final

_LONGEST: Final = 253
_HASH_LENGTH: Final = 5
_KEPT: Final = _LONGEST - _HASH_LENGTH - 1


def request_name(workload: str, check: str, attempt: int) -> str:
    """The ProvisioningRequest of one attempt, counted from 1."""
    return _limited(f"{workload}-{check}-{attempt}")


def template_name(request: str, pod_set: str) -> str:
    """The PodTemplate of a pod set of that request."""
    return _limited(f"ppt-{request}-{pod_set}")


def _limited(name: str) -> str:
    if len(name) <= _LONGEST:
        return name
    # Two long names that begin alike must differ; a dot before the hyphen would not be a valid name.
    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()
    return f"{name[:_KEPT].rstrip('.')}-{digest[:_HASH_LENGTH]}"
