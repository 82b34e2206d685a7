# SPDX-License-Identifier: Apache-2.0
"""The kinds of the generic operator, which local clusters have too."""

from __future__ import annotations

from devcluster.operators.operated_kinds import (
    KINDS,
    OperatedKind,
    Progress,
    Role,
    RoleCounts,
    State,
    at,
    kind_of,
)

__all__ = [
    "KINDS",
    "OperatedKind",
    "Progress",
    "Role",
    "RoleCounts",
    "State",
    "at",
    "kind_of",
]
