# SPDX-License-Identifier: Apache-2.0
"""Taints and tolerations, by Kubernetes' rules including the numeric operators."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from multikueue.core.errors import BadInput
from multikueue.core.parsing import parse_signed

_REPELLING: Final = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration; an empty key with Exists tolerates everything, an empty effect every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether this toleration tolerates `taint`."""
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
    """Whether any of `tolerations` tolerates `taint`."""
    return any(toleration.tolerates(taint) for toleration in tolerations)


def untolerated(taints: Iterable[Taint], tolerations: Collection[Toleration]) -> Taint | None:
    """The first taint that keeps pods with these tolerations from a node; None if they may run there."""
    for taint in taints:
        if taint.effect in _REPELLING and not tolerates(tolerations, taint):
            return taint
    return None


def _compare(actual: str, operator: str, wanted: str) -> bool:
    try:
        left, right = parse_signed(actual, field="taint"), parse_signed(wanted, field="toleration")
    except BadInput:
        return False
    return left < right if operator == "Lt" else left > right
