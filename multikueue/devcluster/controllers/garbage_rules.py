# SPDX-License-Identifier: Apache-2.0
"""What becomes of an object by the state of its owners. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from multikueue.devcluster.controllers.ownership_graph import FOREGROUND, ORPHAN, Item


class OwnerState(StrEnum):
    """What is known of an owner."""

    PRESENT = "Present"
    AWAITS = "AwaitsDependents"
    ABSENT = "Absent"
    UNKNOWN = "Unknown"
    """Its kind is not served, or the reference cannot be right: nothing follows from it."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Leave it alone."""


@dataclass(frozen=True, slots=True)
class Disown:
    """It has owners that stay: drop the references to the others."""

    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete it, with this propagation."""

    propagation: str


Decision = Keep | Disown | Remove


def decide(item: Item, owners: Mapping[str, OwnerState], *, has_dependents: bool) -> Decision:
    """What to do with an object that is not being deleted."""
    if not item.owners or item.deleting:
        return Keep()
    states = [(owner.uid, owners[owner.uid]) for owner in item.owners]
    if any(state is OwnerState.UNKNOWN for _, state in states):
        return Keep()
    useless = tuple(uid for uid, state in states if state is not OwnerState.PRESENT)
    if len(useless) < len(states):
        return Disown(useless) if useless else Keep()
    if has_dependents and any(state is OwnerState.AWAITS for _, state in states):
        # Its owner waits for it, so it waits for its own dependents.
        return Remove("Foreground")
    if ORPHAN in item.finalizers:
        return Remove("Orphan")
    if FOREGROUND in item.finalizers:
        return Remove("Foreground")
    return Remove("Background")
