# SPDX-License-Identifier: Apache-2.0
"""What the provisioner does, and where it fails: a ConfigMap that people change while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from multikueue.core.errors import BadInput
from multikueue.core.parsing import parse_unsigned
from multikueue.core.printable import excerpt

NAMESPACE: Final = "kube-system"
NAME: Final = "provisioner"
_MAX_SECONDS: Final = 86_400
_MAX_NODES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionerSettings:
    """The keys of the ConfigMap; an absent key has its default."""

    delay_seconds: int = 5
    """`delaySeconds`: from a request to its nodes."""
    queue_seconds: int = 15
    """`queueSeconds`: the same for the queued class."""
    nodes: int = 10
    """`nodes`: how many nodes it adds at most; a request that needs more fails."""
    booking_seconds: int = 0
    """`bookingSeconds`: from Provisioned to BookingExpired; 0: never."""
    fail: str = ""
    """`fail`: the message with which every new request fails."""
    revoke: frozenset[str] = frozenset()
    """`revoke`: requests as `NAMESPACE/NAME`, separated by commas, whose capacity is taken away; `*`: all."""

    @classmethod
    def of(cls, data: Mapping[str, str]) -> Self:
        """The settings in a ConfigMap. Raises `BadInput`."""
        numbers = {
            "delaySeconds": ("delay_seconds", _MAX_SECONDS),
            "queueSeconds": ("queue_seconds", _MAX_SECONDS),
            "nodes": ("nodes", _MAX_NODES),
            "bookingSeconds": ("booking_seconds", _MAX_SECONDS),
        }
        where = f"ConfigMap {NAMESPACE}/{NAME}"
        unknown = sorted(data.keys() - numbers.keys() - {"fail", "revoke"})
        if unknown:
            raise BadInput(
                f"{where}: there is no key {excerpt(unknown[0])}, only {', '.join([*numbers, 'fail', 'revoke'])}"
            )
        found = {
            name: parse_unsigned(data[key], field=f"{where}: {key}", maximum=most)
            for key, (name, most) in numbers.items()
            if key in data
        }
        revoked = frozenset(part.strip() for part in data.get("revoke", "").split(",") if part.strip())
        return cls(**found, fail=data.get("fail", ""), revoke=revoked)

    def revokes(self, key: str) -> bool:
        """Whether the capacity of a request is taken away."""
        return "*" in self.revoke or key in self.revoke
