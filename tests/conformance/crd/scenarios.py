# SPDX-License-Identifier: Apache-2.0
"""What is done to an object to keep a rule of its definition, and to break it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is done to one object."""

    create: Document
    then: tuple[Document, ...] = ()
    """Merge patches; those of nothing but the status go to the subresource."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A scenario that satisfies the rule and one that violates it at its end."""

    kept: Scenario
    broken: Scenario


def create(spec: Document, *, kept: Document, broken: Document) -> Pair:
    """A rule without oldSelf; both scenarios are changes of the spec."""
    return Pair(Scenario({"spec": {**spec, **kept}}), Scenario({"spec": {**spec, **broken}}))


def change(before: Document, *, kept: Document, broken: Document) -> Pair:
    """A rule about how the object may change."""
    return Pair(Scenario(before, (kept,)), Scenario(before, (broken,)))


TOLERATIONS: Final[Mapping[str, tuple[Document, Document]]] = {
    "operator must be Exists when 'key' is empty, which means 'match all values and all keys'": (
        {"operator": "Exists"},
        {"operator": "Equal", "value": "v"},
    ),
    "effect must be 'NoExecute' when 'tolerationSeconds' is set": (
        {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
        {"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5},
    ),
    "supported toleration values: 'Equal'(default), 'Exists'": (
        {"key": "k", "operator": "Equal", "value": "v"},
        {"key": "k", "operator": "Gt", "value": "1"},
    ),
    "a value must be empty when 'operator' is 'Exists'": (
        {"key": "k", "operator": "Exists"},
        {"key": "k", "operator": "Exists", "value": "v"},
    ),
    "supported taint effect values: 'NoSchedule', 'PreferNoSchedule', 'NoExecute'": (
        {"key": "k", "operator": "Exists", "effect": "PreferNoSchedule"},
        {"key": "k", "operator": "Exists", "effect": "Whatever"},
    ),
}
"""For the message of each rule about tolerations, one that satisfies it and one that violates it."""
