# SPDX-License-Identifier: Apache-2.0
"""What all operators share, which local clusters have too."""

from __future__ import annotations

from devcluster.operators.operator import (
    Operator,
    operating,
)

__all__ = [
    "Operator",
    "operating",
]
