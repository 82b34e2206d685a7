# SPDX-License-Identifier: Apache-2.0
"""The ProvisioningRequests of a workload in an explanation: what was requested, since when, and what was answered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

import orjson

from manager.provisioning.checks import is_provisioning
from multikueue.api.constants import MULTIKUEUE_CONTROLLER
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import EvictedReason, WorkloadCondition
from multikueue.api.resource import PROVISIONING_REQUESTS
from multikueue.core.conditions import TRUE, find_in
from multikueue.core.errors import BadInput
from multikueue.core.printable import printable
from multikueue.core.timestamps import format_time, parse_time
from multikueue.kube.errors import Forbidden, NotFound
from multikueue.kube.rest.client import KubeClient
from multikueue.provisioning.decision import attempt_of, current_request
from multikueue.provisioning.requests import workload_owner


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLine:
    """The attempt of one provisioning check; `created` is None while there is no request."""

    check: str
    request: str
    attempt: int
    class_name: str = ""
    created: datetime | None = None
    conditions: tuple[str, ...] = ()
    next_attempt: datetime | None = None
    failed: str = ""
    """Why the workload was evicted, while it waits for the next attempt."""


async def read_requests(hub: KubeClient, *, namespace: str) -> list[JsonObject] | None:
    """The requests of a namespace; none where they are not installed, None if they may not be listed."""
    try:
        page = await hub.list_all(PROVISIONING_REQUESTS, namespace=namespace)
    except NotFound:
        return []
    except Forbidden:
        return None
    return [orjson.loads(raw) for raw in page.items]


def request_lines(
    workload: JsonObject, checks: Iterable[JsonObject], requests: Iterable[JsonObject], *, now: datetime
) -> tuple[RequestLine, ...]:
    """The current attempt of each provisioning check of a workload; `checks` are AdmissionChecks.

    None if a worker cluster provisions: its request is there, and the message of the check has it (ADR 0018).
    """
    status: JsonObject = workload.get("status") or {}
    listed = {entry["name"] for entry in status.get("admissionChecks") or ()}
    known = [check for check in checks if check["metadata"]["name"] in listed]
    if any((check.get("spec") or {}).get("controllerName") == MULTIKUEUE_CONTROLLER for check in known):
        return ()
    ours = {check["metadata"]["name"] for check in known if is_provisioning(check)}
    written = (status.get("requeueState") or {}).get("requeueAt")
    due = parse_time(written) if written else None
    found = {
        request["metadata"]["name"]: request
        for request in requests
        if (owner := workload_owner(request)) is not None and owner[1] == workload["metadata"]["uid"]
    }
    return tuple(
        _line(workload, entry, found.get(current_request(workload, entry)), due if due and due > now else None)
        for entry in status.get("admissionChecks") or ()
        if entry["name"] in ours
    )


def _line(workload: JsonObject, entry: JsonObject, request: JsonObject | None, due: datetime | None) -> RequestLine:
    name, attempt = current_request(workload, entry), attempt_of(entry)
    if request is None:
        evicted = find_in(workload.get("status"), WorkloadCondition.EVICTED) or {}
        waits = evicted.get("status") == TRUE and evicted.get("reason") == EvictedReason.ADMISSION_CHECK
        failed = printable(str(evicted.get("message") or "")) if waits else ""
        return RequestLine(check=entry["name"], request=name, attempt=attempt, next_attempt=due, failed=failed)
    return RequestLine(
        check=entry["name"],
        request=name,
        attempt=attempt,
        class_name=str((request.get("spec") or {}).get("provisioningClassName") or ""),
        created=parse_time(request["metadata"]["creationTimestamp"]),
        conditions=tuple(_conditions(request)),
        next_attempt=due,
    )


def _conditions(request: JsonObject) -> Iterator[str]:
    """The conditions, as another system wrote them."""
    status = request.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    for each in conditions if isinstance(conditions, list) else ():
        if not isinstance(each, dict):
            continue
        kind = str(each.get("type"))
        shown = kind if each.get("status") == "True" else f"not {kind}"
        try:
            shown += f" since {format_time(parse_time(str(each.get('lastTransitionTime'))))}"
        except BadInput:
            shown += " since an unknown time"
        message = str(each.get("message") or "")
        yield printable(f"{shown}: {message}" if message else shown)


def text_lines(each: RequestLine) -> Iterator[str]:
    """One attempt as text."""
    if each.created is not None:
        since = f"since {format_time(each.created)}"
        yield f"ProvisioningRequest {each.request} of class {each.class_name}, attempt {each.attempt}, {since}"
        yield from (f"  {condition}" for condition in each.conditions)
        return
    if each.failed:
        yield each.failed
    if each.next_attempt is not None:
        yield f"Attempt {each.attempt} begins when it has quota again, not before {format_time(each.next_attempt)}"


def request_document(each: RequestLine) -> JsonObject:
    """One attempt as a document; the keys are stable."""
    return {
        "check": each.check,
        "request": each.request,
        "attempt": each.attempt,
        "className": each.class_name or None,
        "since": None if each.created is None else format_time(each.created),
        "conditions": list(each.conditions),
        "failed": each.failed or None,
        "nextAttempt": None if each.next_attempt is None else format_time(each.next_attempt),
    }
