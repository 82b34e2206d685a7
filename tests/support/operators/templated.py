# SPDX-License-Identifier: Apache-2.0
"""The generic operator, which local clusters have too."""

from __future__ import annotations

from devcluster.operators.templated import (
    ROLE_LABEL,
    TemplatedOperator,
)

__all__ = [
    "ROLE_LABEL",
    "TemplatedOperator",
]
