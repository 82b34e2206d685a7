# SPDX-License-Identifier: Apache-2.0
"""The preemption gate of a clone: what its own queue waits for, and opening it when the hub says so.

Owns how the gate that the hub put into a clone is read and opened. Pure: what is written is `queues`'. Promises that
gates of anybody else are left as they are, and that nothing is closed: that is the business of the worker's engine,
which does it with an eviction.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from multikueue.api.constants import MULTIKUEUE_PREEMPTION_GATE, GatePosition
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.resource import WORKLOADS
from multikueue.core.conditions import TRUE
from multikueue.core.timestamps import format_time, parse_time

FIELD_MANAGER: Final = "multikueue-preemption-gate"


def is_closed(clone: JsonObject) -> bool:
    """Whether it has the gate of the hub, and that is not open; as long as nobody has said anything it is closed."""
    if not _has_gate(clone["spec"]):
        return False
    stated: list[JsonObject] = (clone.get("status") or {}).get("preemptionGates") or []
    return not any(_is_ours(entry) and entry.get("position") == GatePosition.OPEN for entry in stated)


def is_to_open(clone: JsonObject, *, gate: GatePosition | None, spec: JsonObject) -> bool:
    """Whether the closed gate is to be opened, as the hub wants it at `gate` and would make the clone of `spec` now.

    A hub that does not send gates any more will never open this one: then nothing is to wait for it.
    """
    wanted = gate is GatePosition.OPEN or (gate is None and not _has_gate(spec))
    return wanted and is_closed(clone)


def blocked_since(clone: JsonObject) -> datetime | None:
    """Since when the queue's engine would have to preempt for it and may not; None when that is not what it waits for.

    The condition outlives the opening until the engine has looked again, so an open gate is no signal.
    """
    if not is_closed(clone):
        return None
    for entry in (clone.get("status") or {}).get("conditions") or ():
        if entry["type"] == WorkloadCondition.BLOCKED_ON_PREEMPTION_GATES and entry["status"] == TRUE:
            return parse_time(entry["lastTransitionTime"])
    return None


def opened(clone: JsonObject, *, now: datetime) -> JsonObject:
    """The body of the apply that opens it, on the `status` of that very clone."""
    metadata = clone["metadata"]
    entry = {
        "name": MULTIKUEUE_PREEMPTION_GATE,
        "position": str(GatePosition.OPEN),
        "lastTransitionTime": format_time(now),
    }
    return {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": {name: metadata[name] for name in ("name", "namespace", "uid")},
        "status": {"preemptionGates": [entry]},
    }


def _has_gate(spec: JsonObject) -> bool:
    return any(map(_is_ours, spec.get("preemptionGates") or ()))


def _is_ours(entry: JsonObject) -> bool:
    return entry.get("name") == MULTIKUEUE_PREEMPTION_GATE
