# SPDX-License-Identifier: Apache-2.0
"""AdmissionChecks of the MultiKueue controller: their Active condition, and which clusters each stands for.

Owns the condition and the book of check -> MultiKueueConfig -> clusters that every plan starts from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from manager.context import ManagerContext
from manager.dispatch.clusters import Clusters
from manager.dispatch.condition_writes import write_active
from manager.views import View
from multikueue.api.constants import MULTIKUEUE_CONTROLLER, QuotaManagement
from multikueue.api.meta import JsonObject
from multikueue.api.resource import ADMISSION_CHECKS, KUEUE_GROUP, MULTIKUEUE_CONFIGS
from multikueue.core.keys import Key
from multikueue.federation import check_health
from multikueue.federation.availability import mass_loss
from multikueue.federation.facts import Settings
from multikueue.kube.controller import Result


@dataclass(frozen=True, slots=True)
class CheckSource:
    """The clusters of a check in the config's order, or why there are none to be known."""

    clusters: tuple[str, ...] | None
    problem: str = ""
    automated: bool = False
    """Whether the quota of its queues is to follow those clusters."""


class Checks:
    """The reconciler of AdmissionChecks, and the book of what they mean."""

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
        """What the check stands for; None when it is not one of ours."""
        return self._sources.get(name)

    def load(self, key: Key) -> JsonObject | None:
        """Enter a check into the book; gives the object if it is one of ours and is to stay."""
        check = self._context.caches.view(ADMISSION_CHECKS).object(key)
        before = self._sources.get(key.name)
        if check is None or check["spec"].get("controllerName") != MULTIKUEUE_CONTROLLER:
            if self._sources.pop(key.name, None) is not None:
                self._changed(key.name)
            return None
        source = self._sources[key.name] = source_of(check, self._context.caches.view(MULTIKUEUE_CONFIGS))
        if source != before:
            self._changed(key.name)
        return None if check["metadata"].get("deletionTimestamp") else check

    async def reconcile(self, key: Key) -> Result | None:
        """Bring the book and the condition of one check up to date."""
        check = self.load(key)
        if check is None:
            return None
        source = self._sources[key.name]
        listed = [self._clusters.inside(name) for name in source.clusters or ()]
        health = check_health.judge(
            source.clusters, self._clusters.active, problem=source.problem, held=mass_loss(listed, Settings())
        )
        await write_active(
            self._context,
            ADMISSION_CHECKS,
            check,
            active=health.active,
            reason=health.reason,
            message=health.message,
        )
        return None


def source_of(check: JsonObject, configs: View) -> CheckSource:
    """What a check of our controller stands for."""
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
