# SPDX-License-Identifier: Apache-2.0
"""The course of a check that requests capacity from an autoscaler, whose answers the course gives."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import anyio
import orjson

from multikueue.api.constants import PROVISIONING_CONTROLLER
from multikueue.api.resource import ADMISSION_CHECKS, PROVISIONING_REQUEST_CONFIGS, PROVISIONING_REQUESTS
from tests.comparison.courses.course import RESERVED_SECONDS
from tests.comparison.hub import NAMESPACE, ComparedHub, Object
from tests.comparison.looks import Look

_CLASS: Final = "queued-provisioning.example.com"
_PARAMETER: Final = "provreq.kueue.x-k8s.io/"
_TIME: Final = "2026-01-01T00:00:00Z"
_ENDS: Final = frozenset({"Failed", "CapacityRevoked", "BookingExpired"})
_LOOKS: Final = 25
_LOOK_SECONDS: Final = 0.2


async def provisioned(hub: ComparedHub) -> AsyncIterator[Look]:
    """Capacity is provisioned, revoked, refused until there is no other try, and booked for too long."""
    await _check(hub)
    await hub.queue(cpu="9", admissionChecksStrategy={"admissionChecks": [{"name": "p"}]})
    yield Look("there is the check")
    await hub.submit("a", parallelism=2, annotations={f"{_PARAMETER}maxRunDurationSeconds": "60"})
    yield Look("a holds quota")
    await _answer(hub, "Accepted", "Provisioned", pool="x")
    yield Look("its capacity is provisioned")
    await hub.run("a", pods=2)
    await _answer(hub, "CapacityRevoked")
    yield Look("its capacity is revoked")
    await hub.stop("a")
    yield Look("a has stopped")
    await hub.submit("f")
    await _answer(hub, "Failed", of="f")
    yield Look("the request of f has failed", 3)
    await _answer(hub, "Failed", of="f")
    yield Look("the next one has failed", 3)
    await hub.submit("b")
    await anyio.sleep(RESERVED_SECONDS)
    await _answer(hub, "Provisioned", of="b")
    await hub.run("b")
    await _answer(hub, "BookingExpired", of="b")
    yield Look("the booking of b has expired while it runs")
    await hub.end("b")
    yield Look("b has succeeded")
    await hub.submit("c")
    await anyio.sleep(RESERVED_SECONDS)
    await _answer(hub, "Provisioned", "BookingExpired", of="c")
    yield Look("the booking of c has expired before it was ready", 3)
    await hub.submit("d", cpu="100m", annotations={f"{_PARAMETER}large": "x" * 300})
    yield Look("d has a parameter that is too long")
    await hub.client.delete(PROVISIONING_REQUEST_CONFIGS, "p")
    await hub.submit("e")
    yield Look("the configuration is deleted")


async def _check(hub: ComparedHub) -> None:
    retries = {"backoffBaseSeconds": 1, "backoffLimitCount": 1, "backoffMaxSeconds": 1}
    selector = [{"key": "example.com/pool", "valueFromProvisioningClassDetail": "pool"}]
    configuration = {
        "provisioningClassName": _CLASS,
        "parameters": {"zone": "a"},
        "managedResources": ["cpu"],
        "retryStrategy": retries,
        "podSetUpdates": {"nodeSelector": selector},
    }
    await hub.make(PROVISIONING_REQUEST_CONFIGS, "p", configuration)
    named = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "p"}
    await hub.make(ADMISSION_CHECKS, "p", {"controllerName": PROVISIONING_CONTROLLER, "parameters": named})


async def _answer(hub: ComparedHub, *kinds: str, of: str = "a", **details: str) -> None:
    """The autoscaler sets these conditions on the youngest request for a Job, once there is one without an end."""
    for _ in range(_LOOKS):
        found = await _open_request(hub, of)
        if found is not None:
            break
        await anyio.sleep(_LOOK_SECONDS)
    else:
        raise LookupError(f"Job {NAMESPACE}/{of} has no request without an end")
    conditions: list[Object] = (found.get("status") or {}).get("conditions") or []
    added = [{"type": kind, "status": "True", "reason": kind, "message": "By hand"} for kind in kinds]
    status = {"conditions": [*conditions, *({**each, "lastTransitionTime": _TIME} for each in added)]}
    body = {"status": {**status, **({"provisioningClassDetails": details} if details else {})}}
    name = found["metadata"]["name"]
    await hub.client.patch(PROVISIONING_REQUESTS, name, body, namespace=NAMESPACE, subresource="status")


async def _open_request(hub: ComparedHub, job: str) -> Object | None:
    raw = (await hub.client.list_all(PROVISIONING_REQUESTS, namespace=NAMESPACE)).items
    found = [each for each in map(orjson.loads, raw) if each["metadata"]["name"].startswith(f"job-{job}-")]
    return max(filter(_is_open, found), key=lambda each: int(each["metadata"]["resourceVersion"]), default=None)


def _is_open(request: Object) -> bool:
    conditions: list[Object] = (request.get("status") or {}).get("conditions") or []
    return not any(each["type"] in _ENDS for each in conditions)
