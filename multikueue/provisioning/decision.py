# SPDX-License-Identifier: Apache-2.0
"""What to do for one Workload with provisioning checks: the rules of `docs/spec/kueue-api.md §5.2` in their order.

Promises to be idempotent: decided again on its own result, nothing changes. A request is created only while the
Workload holds quota and its check is Pending, and each request that is not the current one of a check is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

from multikueue.api.constants import (
    CONSUME_PROVISIONING_REQUEST_ANNOTATION,
    PROVISIONING_CLASS_NAME_ANNOTATION,
    CheckState,
)
from multikueue.api.names import label_value
from multikueue.api.objects import JsonObject
from multikueue.api.reasons import WorkloadCondition
from multikueue.core.conditions import is_true_in
from multikueue.core.errors import BadInput
from multikueue.core.parsing import MAX_INT32, parse_unsigned
from multikueue.core.printable import excerpt
from multikueue.provisioning import messages, requests
from multikueue.provisioning.pod_sets import RequestedPodSet, requested_pod_sets
from multikueue.provisioning.requests import ProvisioningAnswer, request_name
from multikueue.provisioning.settings import ProvisioningSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningFacts:
    """A Workload and what belongs to it; all objects as the API server has them."""

    workload: JsonObject
    checks: Mapping[str, ProvisioningSettings | None]
    """The provisioning checks by name; None: its config is missing or unusable."""
    requests: Mapping[str, JsonObject]
    """ProvisioningRequests by name: those of this Workload, and others that have a name it needs."""
    templates: frozenset[tuple[str, str]] = frozenset()
    """The names of PodTemplates in its namespace, each with the UID of the request that it belongs to."""
    flavors: Mapping[str, JsonObject] = field(default_factory=dict)
    delete_when_evicted: bool = True
    delegated: bool = False
    """Whether a worker cluster makes the requests (ADR 0018): here it is only decided whether any is needed."""


@dataclass(frozen=True, slots=True)
class CheckChange:
    """The new state of one check."""

    name: str
    state: CheckState
    message: str
    _: KW_ONLY
    requeue_after_seconds: int | None = None
    pod_set_updates: tuple[JsonObject, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRequest:
    """A request to create, and its pod sets, whose templates are created with the UID of the stored request."""

    check: str
    body: JsonObject
    pod_sets: tuple[RequestedPodSet, ...]


@dataclass(frozen=True, slots=True)
class MissingTemplate:
    """A PodTemplate that the request of a check lacks."""

    check: str
    body: JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningDecision:
    """Deletions first, then creations, then the states of the checks."""

    delete: tuple[str, ...] = ()
    create: tuple[NewRequest, ...] = ()
    templates: tuple[MissingTemplate, ...] = ()
    changes: tuple[CheckChange, ...] = ()
    blocked: bool = False
    """Another object has the name of a request; nothing reports when it is gone."""


def decide(facts: ProvisioningFacts) -> ProvisioningDecision:
    """The next step. Raises `BadInput` for a Workload that cannot be read."""
    workload = facts.workload
    status: JsonObject = workload.get("status") or {}
    own = tuple(name for name, each in facts.requests.items() if _owned(each, workload))
    ended = (
        "deletionTimestamp" in workload["metadata"]
        or is_true_in(status, WorkloadCondition.FINISHED)
        or (workload.get("spec") or {}).get("active") is False
    )
    if ended:
        return ProvisioningDecision(delete=own)
    evicted = is_true_in(status, WorkloadCondition.EVICTED)
    if evicted or not is_true_in(status, WorkloadCondition.QUOTA_RESERVED):
        return ProvisioningDecision(delete=own if facts.delete_when_evicted else ())
    steps = [
        _of_check(facts, entry, facts.checks[entry["name"]])
        for entry in status.get("admissionChecks") or ()
        if entry["name"] in facts.checks
    ]
    current = {step.current for step in steps}
    return ProvisioningDecision(
        delete=(*(name for name in own if name not in current), *(step.current for step in steps if step.outdated)),
        create=tuple(step.create for step in steps if step.create is not None),
        templates=tuple(body for step in steps for body in step.templates),
        changes=tuple(step.change for step in steps if step.change is not None),
        blocked=any(step.blocked for step in steps),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    current: str
    outdated: bool = False
    create: NewRequest | None = None
    templates: tuple[MissingTemplate, ...] = ()
    change: CheckChange | None = None
    blocked: bool = False


def _of_check(facts: ProvisioningFacts, entry: JsonObject, settings: ProvisioningSettings | None) -> _Step:
    workload, name = facts.workload, str(entry["name"])
    pending = partial(CheckChange, name, CheckState.PENDING)
    attempt = attempt_of(entry)
    current = current_request(workload, entry)
    state = CheckState(entry["state"])
    request = facts.requests.get(current)
    if state in (CheckState.RETRY, CheckState.REJECTED):
        return _Step(current=current)  # the Workload is evicted or deactivated next
    if facts.delegated and is_true_in(workload["status"], WorkloadCondition.ADMITTED):
        return _Step(current="")
    if is_true_in(workload["status"], WorkloadCondition.ADMITTED):
        return _Step(current=current, change=_revoked(facts, entry, request))

    if settings is None:
        return _Step(current=current, change=pending(messages.INACTIVE))
    pod_sets = requested_pod_sets(workload, settings, facts.flavors)
    if not pod_sets:
        return _Step(current="", change=CheckChange(name, CheckState.READY, messages.NOT_NEEDED))
    try:
        spec = requests.request_spec(current, settings, requests.parameters_of(workload, settings), pod_sets)
    except BadInput as error:
        return _Step(current=current, change=CheckChange(name, CheckState.REJECTED, str(error)))
    if facts.delegated:
        return _Step(current="")  # the state follows from what the cluster answers
    waiting = messages.requested(current, settings.class_name, attempt)
    if request is None:
        body = requests.request_body(current, workload, spec)
        new = NewRequest(check=name, body=body, pod_sets=pod_sets)
        return _Step(current=current, create=new, change=pending(waiting))
    if "deletionTimestamp" in request["metadata"] and _has_owner(request, workload):
        return _Step(current=current, change=pending(waiting))  # it is created anew once it is gone
    if not _owned(request, workload):
        return _Step(current=current, blocked=True, change=pending(messages.taken(current)))
    if not requests.requests_the_same(request, spec):
        return _Step(current=current, outdated=True, change=pending(waiting))
    change = _answered(name, request, settings, pod_sets, attempt) or pending(waiting)
    if change.state in (CheckState.RETRY, CheckState.REJECTED):
        return _Step(current=current, change=change)  # its templates are of no use any more
    missing = tuple(
        MissingTemplate(name, body)
        for body in requests.template_bodies(request, pod_sets)
        if (body["metadata"]["name"], request["metadata"]["uid"]) not in facts.templates
    )
    return _Step(current=current, templates=missing, change=change)


def current_request(workload: JsonObject, entry: JsonObject) -> str:
    """The name of the request of a check's current attempt; `entry` is its state. Raises `BadInput`."""
    return request_name(str(workload["metadata"]["name"]), str(entry["name"]), attempt_of(entry))


def attempt_of(entry: JsonObject) -> int:
    """The number of a check's current attempt, counted from 1. Raises `BadInput`."""
    field = f"status.admissionChecks: {entry['name']}: retryCount"
    return parse_unsigned(entry.get("retryCount") or 0, field=field, maximum=MAX_INT32) + 1


def _owned(request: JsonObject, workload: JsonObject) -> bool:
    owner = requests.workload_owner(request)
    return owner is not None and owner[1] == workload["metadata"]["uid"]


def _has_owner(request: JsonObject, workload: JsonObject) -> bool:
    """Whether it is of this Workload, or of a former one of the same name."""
    owner = requests.workload_owner(request)
    return owner is not None and owner[0] == workload["metadata"]["name"]


def _revoked(facts: ProvisioningFacts, entry: JsonObject, request: JsonObject | None) -> CheckChange | None:
    """After admission only revoked capacity counts: a booking that expires then has been consumed."""
    if request is None or not _owned(request, facts.workload):
        return None
    message = ProvisioningAnswer.of(request).true.get(requests.CAPACITY_REVOKED)
    if message is None:
        return None
    return CheckChange(entry["name"], CheckState.REJECTED, message or messages.REVOKED)


def _answered(
    check: str,
    request: JsonObject,
    settings: ProvisioningSettings,
    pod_sets: tuple[RequestedPodSet, ...],
    attempt: int,
) -> CheckChange | None:
    """The state that follows from the conditions of the request; None while it has none that counts."""
    answer = ProvisioningAnswer.of(request)
    true = answer.true
    if requests.FAILED in true:
        message = messages.retrying_after_failure(true[requests.FAILED])
        return _another_attempt(check, settings, attempt, retrying=message, message=true[requests.FAILED])
    if requests.CAPACITY_REVOKED in true:
        message = true[requests.CAPACITY_REVOKED] or messages.REVOKED
        return CheckChange(check, CheckState.REJECTED, message)
    if requests.BOOKING_EXPIRED in true:
        expired = true[requests.BOOKING_EXPIRED]
        message = messages.retrying_after_expiry(expired)
        return _another_attempt(check, settings, attempt, retrying=message, message=expired)
    if requests.PROVISIONED in true:
        name = request["metadata"]["name"]
        try:
            updates = tuple(pod_set_updates(name, settings, answer, pod_sets))
        except BadInput as error:
            return CheckChange(check, CheckState.PENDING, str(error))
        message = true[requests.PROVISIONED]
        return CheckChange(check, CheckState.READY, message, pod_set_updates=updates)
    if requests.ACCEPTED in true and (answer.progress or true[requests.ACCEPTED]):
        message = answer.progress or true[requests.ACCEPTED]
        return CheckChange(check, CheckState.PENDING, message)
    return None


def _another_attempt(
    check: str, settings: ProvisioningSettings, attempt: int, *, retrying: str, message: str
) -> CheckChange:
    if attempt > settings.retries:
        rejected = messages.no_attempt_left(attempt, message)
        return CheckChange(check, CheckState.REJECTED, rejected)
    return CheckChange(check, CheckState.RETRY, retrying, requeue_after_seconds=settings.delay(attempt))


def pod_set_updates(
    request: str, settings: ProvisioningSettings, answer: ProvisioningAnswer, pod_sets: tuple[RequestedPodSet, ...]
) -> Iterator[JsonObject]:
    """What the pods need to consume the capacity. Raises `BadInput` for a detail that cannot be a label."""
    annotations = {
        CONSUME_PROVISIONING_REQUEST_ANNOTATION: request,
        PROVISIONING_CLASS_NAME_ANNOTATION: settings.class_name,
    }
    selector = {key: answer.details[detail] for key, detail in settings.node_selector if detail in answer.details}
    for key, detail in settings.node_selector:
        for problem in label_value(selector.get(key, "")):
            value = excerpt(selector[key])
            raise BadInput(messages.bad_detail(request, detail, f"{problem}, found {value}"))
    for pod_set in pod_sets:
        for name in pod_set.names:
            yield {
                "name": name,
                "annotations": annotations,
                **({"nodeSelector": selector} if selector else {}),
            }
