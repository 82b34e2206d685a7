# SPDX-License-Identifier: Apache-2.0
"""Provisioning on a worker cluster for one assignment: what to request, and how far it is (ADR 0018).

Promises to be idempotent, as `decision`. A request is made once per check and epoch: a failed one is kept, so that its
failure is read again and not repeated. Attempts are counted by the hub.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.provisioning import messages, requests
from multikueue.provisioning.decision import pod_set_updates
from multikueue.provisioning.pod_sets import RequestedPodSet, requested_pod_sets
from multikueue.provisioning.requests import ProvisioningAnswer, RequestMark, request_name
from multikueue.provisioning.settings import ProvisioningSettings

MAX_CHECKS: Final = 8
MAX_CONFIG: Final = 64 * 1024
"""The most characters in the config of one check, as text."""


class RequestStage(StrEnum):
    """What the assignment needs its requests for."""

    WANTED = "Wanted"
    RUNS = "Runs"
    OVER = "Over"


class ProvisioningEnd(StrEnum):
    """Why there is no capacity, or no longer."""

    FAILED = "Failed"
    EXPIRED = "Expired"
    REVOKED = "Revoked"
    TAKEN = "Taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegatedFacts:
    """One assignment. `pod_sets` are those of the job that is created for it, with all that the hub added."""

    workload: str
    namespace: str
    epoch: int
    settings: Mapping[str, ProvisioningSettings]
    pod_sets: tuple[JsonObject, ...]
    mark: RequestMark
    requests: Mapping[str, JsonObject]
    """By name: those of the assignment, of whatever epoch, and others that have a name it needs."""
    has_templates: frozenset[str] = frozenset()
    """The UIDs of requests whose templates were created."""
    stage: RequestStage = RequestStage.WANTED


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDelegatedRequest:
    """A request to create with its templates, or one that exists and may lack them."""

    body: JsonObject
    pod_sets: tuple[RequestedPodSet, ...]
    exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegatedDecision:
    """Deletions first, then creations. `updates` are for the pods once all is provisioned."""

    delete: tuple[str, ...] = ()
    create: tuple[NewDelegatedRequest, ...] = ()
    provisioned: bool = False
    message: str = ""
    end: ProvisioningEnd | None = None
    updates: tuple[JsonObject, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _CheckStep:
    current: str = ""
    outdated: bool = False
    create: NewDelegatedRequest | None = None
    provisioned: bool = False
    message: str = ""
    end: ProvisioningEnd | None = None
    updates: tuple[JsonObject, ...] = field(default_factory=tuple)


def settings_of(provisioning: object) -> dict[str, ProvisioningSettings]:
    """The checks of `spec.provisioning` of an assignment. Raises `BadInput`."""
    entries = provisioning if isinstance(provisioning, list) else []
    if len(entries) > MAX_CHECKS:
        raise BadInput(f"spec.provisioning: expected at most {MAX_CHECKS} checks, found {len(entries)}")
    found: dict[str, ProvisioningSettings] = {}
    for entry in entries:
        name, config = str(entry.get("name") or ""), entry.get("config")
        if not name or not isinstance(config, dict):
            raise BadInput("spec.provisioning: expected a name and a config for each check")
        size = len(str(config))
        if size > MAX_CONFIG:
            raise BadInput(f"spec.provisioning: {name}: expected a config of at most {MAX_CONFIG} characters")
        found[name] = ProvisioningSettings.of({"metadata": {"name": name}, "spec": config})
    return found


def decide_delegated(facts: DelegatedFacts) -> DelegatedDecision:
    """The next step. Raises `BadInput` for pod sets and parameters that cannot be requested."""
    own = tuple(name for name, each in facts.requests.items() if facts.mark.is_on(each, any_epoch=True))
    if facts.stage is RequestStage.OVER:
        return DelegatedDecision(delete=own)
    if facts.stage is RequestStage.RUNS:
        return _while_running(facts, own)
    steps = [_of_check(facts, name, settings) for name, settings in facts.settings.items()]
    current = {step.current for step in steps}
    ended = next((step for step in steps if step.end is not None), None)
    waiting = [step.message for step in steps if step.message and not step.provisioned]
    provisioned = all(step.provisioned for step in steps)
    updates = tuple(update for step in steps for update in step.updates)
    _check_pod_sets(updates)
    return DelegatedDecision(
        delete=(*(name for name in own if name not in current), *(step.current for step in steps if step.outdated)),
        create=() if ended is not None else tuple(step.create for step in steps if step.create is not None),
        provisioned=provisioned,
        message=ended.message if ended is not None else "; ".join(waiting or [step.message for step in steps]),
        end=None if ended is None else ended.end,
        updates=updates if provisioned else (),
    )


def _of_check(facts: DelegatedFacts, check: str, settings: ProvisioningSettings) -> _CheckStep:
    workload = {"spec": {"podSets": list(facts.pod_sets)}}
    # The flavors of the hub are in the pod sets already.
    pod_sets = requested_pod_sets(workload, settings, {})
    if not pod_sets:
        return _CheckStep(provisioned=True, message=messages.NOT_NEEDED)
    name = request_name(facts.workload, check, facts.epoch)
    spec = requests.request_spec(name, settings, settings.parameters, pod_sets)
    request = facts.requests.get(name)
    if request is None:
        body = requests.unowned_request_body(name, facts.namespace, facts.mark, spec)
        return _CheckStep(current=name, create=NewDelegatedRequest(body=body, pod_sets=pod_sets))
    if not facts.mark.is_on(request):
        return _CheckStep(current=name, end=ProvisioningEnd.TAKEN, message=messages.of_another(name))
    if "deletionTimestamp" in request["metadata"]:
        return _CheckStep(current=name)  # it is created anew once it is gone
    if not requests.requests_the_same(request, spec):
        return _CheckStep(current=name, outdated=True)
    lacks = request["metadata"]["uid"] not in facts.has_templates
    create = NewDelegatedRequest(body=request, pod_sets=pod_sets, exists=True) if lacks else None
    return _answered(name, request, settings, pod_sets, create)


def _while_running(facts: DelegatedFacts, own: tuple[str, ...]) -> DelegatedDecision:
    """While the job runs only revoked capacity counts: a booking that expires then has been consumed.

    The checks are not asked for: a hub that was restarted may not know them.
    """
    current = tuple(name for name in own if facts.mark.is_on(facts.requests[name]))
    for name in current:
        message = ProvisioningAnswer.of(facts.requests[name]).true.get(requests.CAPACITY_REVOKED)
        if message is not None:
            ended = messages.ended(name, message)
            return DelegatedDecision(end=ProvisioningEnd.REVOKED, message=ended)
    return DelegatedDecision(delete=tuple(name for name in own if name not in current), provisioned=True)


def _answered(
    name: str,
    request: JsonObject,
    settings: ProvisioningSettings,
    pod_sets: tuple[RequestedPodSet, ...],
    create: NewDelegatedRequest | None,
) -> _CheckStep:
    answer = ProvisioningAnswer.of(request)
    for condition, end in (
        (requests.FAILED, ProvisioningEnd.FAILED),
        (requests.CAPACITY_REVOKED, ProvisioningEnd.REVOKED),
        (requests.BOOKING_EXPIRED, ProvisioningEnd.EXPIRED),
    ):
        if condition in answer.true:
            return _CheckStep(current=name, end=end, message=messages.ended(name, answer.true[condition]))
    if requests.PROVISIONED in answer.true:
        updates = tuple(pod_set_updates(name, settings, answer, pod_sets))
        return _CheckStep(
            current=name, create=create, provisioned=True, message=answer.true[requests.PROVISIONED], updates=updates
        )
    since = str(request["metadata"].get("creationTimestamp") or "")
    progress = answer.progress or answer.true.get(requests.ACCEPTED, "")
    return _CheckStep(
        current=name, create=create, message=messages.in_progress(name, settings.class_name, since, progress)
    )


def _check_pod_sets(updates: Iterable[JsonObject]) -> None:
    seen: set[str] = set()
    for update in updates:
        if update["name"] in seen:
            raise BadInput(messages.two_checks(update["name"]))
        seen.add(update["name"])
