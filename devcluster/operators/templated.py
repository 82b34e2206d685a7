# SPDX-License-Identifier: Apache-2.0
"""The generic operator: makes pods from the templates of an object, and shows in its status how they are.

A suspended object has no pods. An object has failed when a pod has, and succeeded when the pods of its leading roles
have; the pods that still run then are deleted. Pods that are deleted by others are made again.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Final

import orjson

from devcluster.controllers import pod_facts
from devcluster.operators.operated_kinds import OperatedKind, Progress, Role, RoleCounts, State, at
from devcluster.operators.operator import Operator
from multikueue.api.objects import JsonObject
from multikueue.api.resource import PODS
from multikueue.core.clock import Clock
from multikueue.core.conditions import is_true_in
from multikueue.kube.errors import AlreadyExists, NotFound
from multikueue.kube.rest.client import KubeClient

ROLE_LABEL: Final = "example.com/role"
_OVER: Final = ("Succeeded", "Failed")
_ENDED: Final = (State.SUCCEEDED, State.FAILED)
_STATE: Final = "operatorState"
"""The field of the status that keeps how an object ended, when its pods are gone."""


class TemplatedOperator(Operator):
    """The controller of one kind on one cluster."""

    def __init__(self, client: KubeClient, kind: OperatedKind, *, clock: Clock | None = None) -> None:
        super().__init__(client, kind.resource, children=PODS, clock=clock)
        self._kind = kind

    def is_managed(self, obj: JsonObject) -> bool:
        """Whether `managedBy` is absent or names this controller."""
        return at(obj, *self._kind.managed_by) in (None, "", self._kind.controller)

    async def reconcile(self, obj: JsonObject, children: list[JsonObject]) -> JsonObject:
        """Create and delete pods, and count them."""
        status = copy.deepcopy(obj.get("status") or {})
        ended = status.get(_STATE)
        roles = list(self._kind.roles(obj))
        suspended = bool(at(obj, *self._kind.suspend))
        if ended is None and not suspended:
            await self._create(obj, roles, children)
        wanted = {name for role in roles for name in _names(obj, role)}
        over = _OVER if self._kind.serves else ()
        await self._delete([pod for pod in children if _name(pod) not in wanted or pod_facts.phase(pod) in over])
        counts = {role.name: _counts(role, children) for role in roles}
        state = State(ended) if ended is not None else self._state(counts, suspended=suspended)
        # Once the end is stored, and not before: a pod that was deleted fails, and would change how the object ended.
        if suspended or ended is not None:
            await self._delete([pod for pod in children if suspended or pod_facts.active(pod)])
        conditions: list[JsonObject] = status.get("conditions") or []
        known = {type_ for types in self._kind.conditions.values() for type_ in types}
        true = self._kind.conditions.get(state, ())
        for type_ in sorted(known):
            if type_ in true:
                conditions = self.condition(conditions, type_, "True", f"{self.resource.kind}{state}")
            elif is_true_in({"conditions": conditions}, type_):
                conditions = self.condition(conditions, type_, "False", f"{self.resource.kind}{state}")
        made = {**status, **self._kind.status(Progress(state, counts)), "conditions": conditions}
        return {**made, _STATE: state.value} if state in _ENDED else made

    def _state(self, counts: dict[str, RoleCounts], *, suspended: bool) -> State:
        if suspended:
            return State.SUSPENDED
        if self._kind.finishes:
            if any(each.failed for each in counts.values()):
                return State.FAILED
            leading = [each for name, each in counts.items() if name in self._kind.leaders] or list(counts.values())
            if leading and all(each.succeeded >= each.wanted for each in leading):
                return State.SUCCEEDED
        is_ready = all(each.ready + each.succeeded >= each.wanted for each in counts.values())
        return State.RUNNING if is_ready else State.PENDING

    async def _create(self, obj: JsonObject, roles: Sequence[Role], pods: Sequence[JsonObject]) -> None:
        known = {_name(pod) for pod in pods}
        for role in roles:
            for name in _names(obj, role):
                if name in known:
                    continue
                template = copy.deepcopy(role.template)
                metadata = template.get("metadata") or {}
                body = {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {
                        "name": name,
                        "labels": {**(metadata.get("labels") or {}), ROLE_LABEL: role.name},
                        "annotations": metadata.get("annotations") or {},
                        "ownerReferences": [self.reference(obj)],
                    },
                    "spec": template["spec"],
                }
                try:
                    stored = await self.client.create(PODS, body, namespace=obj["metadata"]["namespace"])
                except AlreadyExists:
                    continue  # a pod of an earlier object of that name, which is being deleted
                self.children.put(orjson.loads(stored))

    async def _delete(self, pods: Sequence[JsonObject]) -> None:
        for pod in pods:
            metadata = pod["metadata"]
            if pod_facts.deleting(pod):
                continue
            try:
                await self.client.delete(PODS, metadata["name"], namespace=metadata["namespace"], uid=metadata["uid"])
            except NotFound:
                continue
            self.children.mark_deleted(metadata["uid"])


def _names(obj: JsonObject, role: Role) -> Sequence[str]:
    """The names of the pods of one role."""
    prefix = f"{obj['metadata']['name']}-{role.name.lower()}"
    return role.names or [f"{prefix}-{index}" for index in range(role.count)]


def _name(pod: JsonObject) -> str:
    return str(pod["metadata"]["name"])


def _role(pod: JsonObject) -> str:
    return str((pod["metadata"].get("labels") or {}).get(ROLE_LABEL))


def _counts(role: Role, pods: Sequence[JsonObject]) -> RoleCounts:
    own = [pod for pod in pods if _role(pod) == role.name]
    return RoleCounts(
        wanted=role.count,
        active=sum(map(pod_facts.active, own)),
        ready=sum(pod_facts.active(pod) and pod_facts.ready(pod) for pod in own),
        succeeded=sum(pod_facts.phase(pod) == "Succeeded" for pod in own),
        failed=sum(pod_facts.phase(pod) == "Failed" for pod in own),
    )
