# SPDX-License-Identifier: Apache-2.0
"""Writes a condition of a cluster-scoped object, Active or another, if it changed."""

from __future__ import annotations

import logging

from manager.context import ManagerContext
from manager.workload.conditions import condition_wire, conditions_of
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ACTIVE_CONDITION
from multikueue.api.resource import Resource
from multikueue.core import conditions
from multikueue.core.conditions import FALSE, TRUE, Condition
from multikueue.kube.rest.client import PatchKind

_log = logging.getLogger(__name__)


def active_condition(obj: JsonObject) -> Condition | None:
    """The current Active condition."""
    return conditions.find(_read(obj), ACTIVE_CONDITION)


async def write_active(
    context: ManagerContext, resource: Resource, obj: JsonObject, *, active: bool, reason: str, message: str
) -> None:
    """Write the condition Active if it changed. Raises `Conflict` when `obj` is not the newest version."""
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
    """Write the condition of that type if it changed, as `write_active`."""
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
    context.caches.view(resource).on_write(answer)
    _log.info(
        "condition changed kind=%s name=%s condition=%s status=%s reason=%s message=%s",
        resource.kind,
        name,
        kind,
        value,
        reason,
        message,
    )


def _read(obj: JsonObject) -> tuple[Condition, ...]:
    return conditions_of((obj.get("status") or {}).get("conditions") or ())
