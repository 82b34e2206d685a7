# SPDX-License-Identifier: Apache-2.0
"""AdmissionChecks of the MultiKueue controller: their Active condition, and the clusters of their MultiKueueConfigs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from manager.cache.views import View
from manager.context import ManagerContext
from manager.dispatch.clusters import Clusters
from manager.dispatch.condition_writes import write_active, write_condition
from manager.provisioning.checks import checks_of, is_provisioning
from multikueue.api.constants import MULTIKUEUE_CONTROLLER, QuotaManagement
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import CAN_PROVISION_CONDITION
from multikueue.api.resource import ADMISSION_CHECKS, CLUSTER_QUEUES, KUEUE_GROUP, MULTIKUEUE_CONFIGS
from multikueue.core.keys import Key
from multikueue.dispatch.hub.availability import mass_loss
from multikueue.dispatch.hub.facts import ClusterFacts, DispatchSettings
from multikueue.dispatch.hub.health import judge_ability, judge_check
from multikueue.kube.runtime.controller import Result


@dataclass(frozen=True, slots=True)
class CheckSource:
    """The clusters of a check in the config's order, or why they are unknown."""

    clusters: tuple[str, ...] | None
    problem: str = ""
    automated: bool = False
    """Whether the quota of its queues is to follow those clusters."""


class Checks:
    """The reconciler of AdmissionChecks, and their clusters."""

    def __init__(self, context: ManagerContext, *, clusters: Clusters, changed: Callable[[str], None]) -> None:
        self._context = context
        self._clusters = clusters
        self._changed = changed
        self._sources: dict[str, CheckSource] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """The checks of our controller."""
        return tuple(self._sources)

    def source(self, name: str) -> CheckSource | None:
        """The clusters of the check; None when it is not one of our controller."""
        return self._sources.get(name)

    def load(self, key: Key) -> JsonObject | None:
        """Read a check; returns the object if it is one of our controller and not being deleted."""
        check = self._context.caches.view(ADMISSION_CHECKS).object(key)
        before = self._sources.get(key.name)
        if check is None or not is_multikueue(check):
            if self._sources.pop(key.name, None) is not None:
                self._changed(key.name)
            return None
        source = self._sources[key.name] = source_of(check, self._context.caches.view(MULTIKUEUE_CONFIGS))
        if source != before:
            self._changed(key.name)
        return None if check["metadata"].get("deletionTimestamp") else check

    async def reconcile(self, key: Key) -> Result | None:
        """Bring the clusters and the condition of one check up to date."""
        check = self.load(key)
        if check is None:
            return None
        source = self._sources[key.name]
        listed = [self._clusters.inside(name) for name in source.clusters or ()]
        health = judge_check(
            source.clusters, self._clusters.active, problem=source.problem, held=mass_loss(listed, DispatchSettings())
        )
        await write_active(
            self._context,
            ADMISSION_CHECKS,
            check,
            active=health.active,
            reason=health.reason,
            message=health.message,
        )
        await self._write_ability(check, listed)
        return None

    async def _write_ability(self, check: JsonObject, listed: list[ClusterFacts]) -> None:
        """Show whether the clusters can provision, where a ClusterQueue has a provisioning check too (ADR 0018)."""
        name: str = check["metadata"]["name"]
        queues = [each for each in self._context.caches.view(CLUSTER_QUEUES).objects() if name in checks_of(each)]
        view = self._context.caches.view(ADMISSION_CHECKS)
        used = {other for queue in queues for other in checks_of(queue)}
        if not any((found := view.object(Key("", other))) is not None and is_provisioning(found) for other in used):
            return
        ability = judge_ability(listed)
        if ability is None:
            return  # nothing is known of a connected cluster yet: the last answer stays
        await write_condition(
            self._context,
            ADMISSION_CHECKS,
            view.object(Key("", name)) or check,
            CAN_PROVISION_CONDITION,
            value=ability.active,
            reason=ability.reason,
            message=ability.message,
        )


def is_multikueue(check: JsonObject) -> bool:
    """Whether an AdmissionCheck is one of our controller; its schema allows one without a spec."""
    return (check.get("spec") or {}).get("controllerName") == MULTIKUEUE_CONTROLLER


def source_of(check: JsonObject, configs: View) -> CheckSource:
    """The clusters of a check of our controller."""
    parameters: JsonObject = check["spec"].get("parameters") or {}
    kind, group = parameters.get("kind"), parameters.get("apiGroup")
    if (kind, group) != (MULTIKUEUE_CONFIGS.kind, KUEUE_GROUP):
        return CheckSource(None, f"spec.parameters must name a {MULTIKUEUE_CONFIGS.kind} of {KUEUE_GROUP}")
    name = str(parameters.get("name") or "")
    config = configs.object(Key("", name))
    if config is None:
        return CheckSource(None, f'Cannot load the AdmissionCheck parameters: MultiKueueConfig "{name}" not found')
    spec: JsonObject = config["spec"]
    return CheckSource(
        tuple(spec.get("clusters") or ()), automated=spec.get("quotaManagement") == QuotaManagement.AUTOMATED
    )
