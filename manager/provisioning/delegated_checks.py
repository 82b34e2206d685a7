# SPDX-License-Identifier: Apache-2.0
"""Provisioning checks of dispatched Workloads, which a worker cluster decides (ADR 0018): facts and what is sent."""

from __future__ import annotations

from typing import Final

from manager.cache.caches import Caches
from manager.provisioning.checks import ProvisioningChecks
from manager.workload.status import Check, Status
from multikueue.api.constants import MULTIKUEUE_CONTROLLER, CheckState
from multikueue.api.meta import JsonObject
from multikueue.api.resource import ADMISSION_CHECKS
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.hub.facts import Delegation
from multikueue.provisioning.pod_sets import requested_pod_sets
from multikueue.provisioning.requests import parameters_of
from multikueue.provisioning.settings import ProvisioningSettings

_SENT: Final = ("provisioningClassName", "managedResources", "podSetUpdates", "podSetMergePolicy")


def is_delegated(workload: JsonObject, caches: Caches) -> bool:
    """Whether a Workload has a MultiKueue check, so that a worker cluster decides its provisioning checks."""
    view = caches.view(ADMISSION_CHECKS)
    found = (view.object(Key("", each["name"])) for each in (workload.get("status") or {}).get("admissionChecks") or ())
    return any(each is not None and each["spec"].get("controllerName") == MULTIKUEUE_CONTROLLER for each in found)


class DelegatedChecks:
    """The provisioning checks of Workloads that are dispatched."""

    def __init__(self, caches: Caches) -> None:
        self._checks = ProvisioningChecks(caches)

    def delegation(self, workload: JsonObject, status: Status, *, besides: str) -> Delegation | None:
        """The Pending checks that need capacity, besides the MultiKueue check; None if there are none."""
        pending = [
            (check, settings)
            for check in status.checks
            if check.state is CheckState.PENDING
            and check.name != besides
            and (settings := self._needed(workload, check.name)) is not None
        ]
        if not pending:
            return None
        check, settings = max(pending, key=lambda each: _attempt(each[0]))
        attempt = _attempt(check)
        names = (check.name, *(other.name for other, _ in pending if other is not check))
        return Delegation(
            checks=names,
            message=check.message,
            attempt=attempt,
            retry_seconds=settings.delay(attempt) if attempt <= settings.retries else None,
        )

    def sent(self, workload: JsonObject) -> list[JsonObject]:
        """`spec.provisioning` of its assignments, of whatever state its checks are."""
        found = []
        for entry in (workload.get("status") or {}).get("admissionChecks") or ():
            settings, check = self._needed(workload, entry["name"]), self._checks.find(entry["name"])
            if settings is None or check is None:
                continue
            spec: JsonObject = self._checks.config(check).get("spec") or {}
            config = {name: spec[name] for name in _SENT if spec.get(name)}
            parameters = parameters_of(workload, settings)
            found.append({"name": entry["name"], "config": config | ({"parameters": parameters} if parameters else {})})
        return found

    def _needed(self, workload: JsonObject, name: str) -> ProvisioningSettings | None:
        """The settings of a provisioning check that needs capacity; what is wrong with it is reported elsewhere."""
        check = self._checks.find(name)
        settings = None if check is None or "deletionTimestamp" in check["metadata"] else self._checks.usable(check)
        if settings is None or not requested_pod_sets(workload, settings, {}):
            return None
        try:
            parameters_of(workload, settings)
        except BadInput:
            return None
        return settings


def _attempt(check: Check) -> int:
    return (check.retry_count or 0) + 1
