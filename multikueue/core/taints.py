# SPDX-License-Identifier: Apache-2.0
"""Taints and tolerations.

Owns whether a toleration tolerates a taint, by Kubernetes' rules including the numeric operators. Which effects
count is the caller's decision.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Taint:
    """A mark on a node that keeps pods away; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    """What a pod puts up with; an empty key with Exists is everything, an empty effect is every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether this toleration covers `taint`."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        match self.operator or "Equal":
            case "Exists":
                return True
            case "Equal":
                # Without a key only Exists matches everything.
                return bool(self.key) and self.value == taint.value
            case "Lt" | "Gt" as operator:
                return bool(self.key) and _compare(taint.value, operator, self.value)
            case _:
                return False


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether any of `tolerations` covers `taint`."""
    return any(toleration.tolerates(taint) for toleration in tolerations)


def _compare(actual: str, operator: str, wanted: str) -> bool:
    try:
        left, right = int(actual), int(wanted)
    except ValueError:
        return False
    return left < right if operator == "Lt" else left > right
