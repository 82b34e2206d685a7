# SPDX-License-Identifier: Apache-2.0
"""Writing a condition of a cluster-scoped object, Active or another, when it says something new."""

from __future__ import annotations

import logging

from manager.conditions import condition_wire, conditions_of
from manager.context import ManagerContext
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ACTIVE_CONDITION
from multikueue.api.resource import Resource
from multikueue.core import conditions
from multikueue.core.conditions import FALSE, TRUE, Condition
from multikueue.kube.client import PatchKind

_log = logging.getLogger(__name__)


def active_condition(obj: JsonObject) -> Condition | None:
    """The Active condition as it stands."""
    return conditions.find(_read(obj), ACTIVE_CONDITION)


async def write_active(
    context: ManagerContext, resource: Resource, obj: JsonObject, *, active: bool, reason: str, message: str
) -> None:
    """Make Active say this. Raises `Conflict` when `obj` is not the newest any more."""
    await write_condition(context, resource, obj, ACTIVE_CONDITION, value=active, reason=reason, message=message)


async def write_condition(
    context: ManagerContext,
    resource: Resource,
    obj: JsonObject,
    kind: str,
    *,
    value: bool,
    reason: str,
    message: str,
) -> None:
    """Make the condition of that type say this, as `write_active`."""
    before = _read(obj)
    after = conditions.set_condition(
        before,
        Condition(
            type=kind,
            status=TRUE if value else FALSE,
            reason=reason,
            message=message,
            last_transition_time=context.clock.now(),
            observed_generation=obj["metadata"].get("generation"),
        ),
    )
    if after is before:
        return
    name = obj["metadata"]["name"]
    answer = await context.client.patch(
        resource,
        name,
        {"status": {"conditions": [condition_wire(condition) for condition in after]}},
        kind=PatchKind.MERGE,
        subresource="status",
        resource_version=obj["metadata"]["resourceVersion"],
    )
    context.caches.view(resource).observe(answer)
    _log.info("%s %s: %s=%s %s: %s", resource.kind, name, kind, value, reason, message)


def _read(obj: JsonObject) -> tuple[Condition, ...]:
    return conditions_of((obj.get("status") or {}).get("conditions") or ())
