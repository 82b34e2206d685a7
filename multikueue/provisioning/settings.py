# SPDX-License-Identifier: Apache-2.0
"""How capacity is requested: a ProvisioningRequestConfig as a value (`docs/spec/kueue-api.md §1.9`).

The delay between attempts is here, because it follows from these settings alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.parsing import MAX_INT32, parse_unsigned
from multikueue.core.printable import excerpt

_DOUBLINGS: Final = 31  # more reach the largest delay whatever the base is


class MergePolicy(StrEnum):
    """Which pod sets share one pod set of the request."""

    IDENTICAL_TEMPLATES = "IdenticalPodTemplates"
    IDENTICAL_SCHEDULING = "IdenticalWorkloadSchedulingRequirements"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningSettings:
    """A ProvisioningRequestConfig."""

    class_name: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    managed_resources: frozenset[str] = frozenset()
    """A pod set that requests none of these needs no capacity; empty: every pod set does."""
    retries: int = 3
    base_seconds: int = 60
    max_seconds: int = 1800
    node_selector: tuple[tuple[str, str], ...] = ()
    """Node labels, each with the detail of the request that is its value."""
    merge_policy: MergePolicy | None = None

    @classmethod
    def of(cls, config: JsonObject) -> ProvisioningSettings:
        """The settings of a ProvisioningRequestConfig. Raises `BadInput`."""
        where = f"ProvisioningRequestConfig {config['metadata']['name']}"
        spec: JsonObject = config.get("spec") or {}
        if not spec.get("provisioningClassName"):
            raise BadInput(f"{where}: spec.provisioningClassName is missing")
        strategy: JsonObject = spec.get("retryStrategy") or {}
        policy = spec.get("podSetMergePolicy")
        if policy is not None and policy not in set(MergePolicy):
            known = ", ".join(MergePolicy)
            raise BadInput(f"{where}: spec.podSetMergePolicy: expected one of {known}, found {excerpt(policy)}")

        def number(name: str, default: int) -> int:
            value = strategy.get(name, default)
            return parse_unsigned(value, field=f"{where}: spec.retryStrategy.{name}", maximum=MAX_INT32)

        return cls(
            class_name=str(spec["provisioningClassName"]),
            parameters=dict(spec.get("parameters") or {}),
            managed_resources=frozenset(spec.get("managedResources") or ()),
            retries=number("backoffLimitCount", 3),
            base_seconds=number("backoffBaseSeconds", 60),
            max_seconds=number("backoffMaxSeconds", 1800),
            node_selector=tuple(
                (str(each["key"]), str(each["valueFromProvisioningClassDetail"]))
                for each in (spec.get("podSetUpdates") or {}).get("nodeSelector") or ()
            ),
            merge_policy=None if policy is None else MergePolicy(policy),
        )

    def delay(self, attempt: int) -> int:
        """Seconds from the failure of attempt number `attempt`, counted from 1, to the next."""
        return min(self.max_seconds, self.base_seconds << min(attempt - 1, _DOUBLINGS))
