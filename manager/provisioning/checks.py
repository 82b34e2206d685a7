# SPDX-License-Identifier: Apache-2.0
"""AdmissionChecks of the provisioning controller: their settings, and why one cannot be used.

Those of dispatched Workloads are decided by a worker cluster (ADR 0018): facts and what is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from manager.cache.caches import Caches
from manager.workload.status import Check, Status
from multikueue.api.constants import MULTIKUEUE_CONTROLLER, PROVISIONING_CONTROLLERS, CheckState
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import AdmissionCheckReason
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    KUEUE_GROUP,
    POD_TEMPLATES,
    PROVISIONING_REQUEST_CONFIGS,
    PROVISIONING_REQUESTS,
)
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.hub.facts import Delegation
from multikueue.provisioning.pod_sets import requested_pod_sets
from multikueue.provisioning.requests import parameters_of
from multikueue.provisioning.settings import ProvisioningSettings

ACTIVE_MESSAGE: Final = "The admission check is active"
_SENT: Final = ("provisioningClassName", "managedResources", "podSetUpdates", "podSetMergePolicy")


def is_provisioning(check: JsonObject) -> bool:
    """Whether an AdmissionCheck is one of this controller; its schema allows one without a spec."""
    return (check.get("spec") or {}).get("controllerName") in PROVISIONING_CONTROLLERS


def config_name(check: JsonObject) -> str:
    """The ProvisioningRequestConfig of a check. Raises `BadInput` if its parameters name none."""
    parameters: JsonObject = check["spec"].get("parameters") or {}
    if (parameters.get("kind"), parameters.get("apiGroup")) != (PROVISIONING_REQUEST_CONFIGS.kind, KUEUE_GROUP):
        raise BadInput(f"spec.parameters must name a {PROVISIONING_REQUEST_CONFIGS.kind} of {KUEUE_GROUP}")
    return str(parameters.get("name") or "")


def checks_of(queue: JsonObject) -> frozenset[str]:
    """The names of the checks of a ClusterQueue, in whichever field."""
    spec: JsonObject = queue.get("spec") or {}
    rules = (spec.get("admissionChecksStrategy") or {}).get("admissionChecks") or ()
    return frozenset((*(spec.get("admissionChecks") or ()), *(str(rule.get("name")) for rule in rules)))


def only_delegated(check: str, caches: Caches) -> bool:
    """Whether each ClusterQueue with that check has a MultiKueue check too, and there is one."""
    remote = {
        each["metadata"]["name"]
        for each in caches.view(ADMISSION_CHECKS).objects()
        if (each.get("spec") or {}).get("controllerName") == MULTIKUEUE_CONTROLLER
    }
    using = [names for queue in caches.view(CLUSTER_QUEUES).objects() if check in (names := checks_of(queue))]
    return bool(using) and all(names & remote for names in using)


@dataclass(frozen=True, slots=True)
class CheckVerdict:
    """Whether a check can be used, and its Active condition."""

    active: bool
    reason: AdmissionCheckReason
    message: str


class ProvisioningChecks:
    """The provisioning checks, read from the caches."""

    def __init__(self, caches: Caches) -> None:
        self._caches = caches

    @property
    def ready(self) -> bool:
        """Follow requests and templates; whether all of them are known."""
        # Both are asked for, also when the first is not complete.
        return all([self._caches.demand(PROVISIONING_REQUESTS), self._caches.demand(POD_TEMPLATES)])

    def find(self, name: str) -> JsonObject | None:
        """The check of that name if it is one of this controller."""
        check = self._caches.view(ADMISSION_CHECKS).object(Key("", name))
        return check if check is not None and is_provisioning(check) else None

    def settings(self, check: JsonObject) -> ProvisioningSettings:
        """How a check requests capacity. Raises `BadInput`."""
        return ProvisioningSettings.of(self.config(check))

    def config(self, check: JsonObject) -> JsonObject:
        """The ProvisioningRequestConfig of a check. Raises `BadInput`."""
        name = config_name(check)
        config = self._caches.view(PROVISIONING_REQUEST_CONFIGS).object(Key("", name))
        if config is None:
            raise BadInput(f'ProvisioningRequestConfig "{name}" of spec.parameters not found')
        return config

    def usable(self, check: JsonObject) -> ProvisioningSettings | None:
        """The settings of a check; None while it is not active."""
        try:
            return self.settings(check)
        except BadInput:
            return None  # `judge` reports it in the Active condition

    def judge(self, check: JsonObject) -> CheckVerdict:
        """The Active condition of a check."""
        try:
            self.settings(check)
        except BadInput as error:
            return CheckVerdict(False, AdmissionCheckReason.BAD_PARAMETERS_REF, str(error))
        if not only_delegated(check["metadata"]["name"], self._caches) and not self.ready:
            return CheckVerdict(
                False,
                AdmissionCheckReason.PROVISIONING_NOT_INSTALLED,
                f"{PROVISIONING_REQUESTS.qualified} cannot be listed: install the CustomResourceDefinition of the"
                f" cluster autoscaler, and allow the manager to list it and {POD_TEMPLATES.plural}",
            )
        return CheckVerdict(True, AdmissionCheckReason.ACTIVE, ACTIVE_MESSAGE)


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
