# SPDX-License-Identifier: Apache-2.0
"""The status of a batch/v1 Job on the management cluster, as the mirror of the one on the worker.

Owns what Kubernetes 1.36 lets somebody else than its own Job controller write there, found out on a real API server:

- the counters `succeeded` and `failed` never go down, not even after a new dispatch;
- `startTime` of a Job that is not suspended cannot change once it is set;
- a suspended Job accepts a template change only while it has no active pods, and has no `startTime` or is marked
  `Suspended`. So a running status in a suspended Job would keep it from ever being started or restored.
"""

from __future__ import annotations

from typing import Final

from multikueue.api.objects import JsonObject
from multikueue.integrations.merge_patch import merge_patch
from multikueue.integrations.protocol import JobWrite, Mirror

SUSPENDED: Final = "Suspended"
ADAPTER_REASON: Final = "MultiKueueAdapter"
DEFER_SECONDS: Final = 2.0
_COUNTERS: Final = (("succeeded", "completedIndexes"), ("failed", "failedIndexes"))
_ENDED: Final = ("Complete", "Failed")


def is_true(status: JsonObject, kind: str) -> bool:
    """Whether the Job has the condition, and it is True."""
    return any(c.get("type") == kind and c.get("status") == "True" for c in status.get("conditions") or ())


def has_ended(status: JsonObject) -> bool:
    """Whether the Job is Complete or Failed."""
    return any(is_true(status, kind) for kind in _ENDED)


def mirror(local: JsonObject, remote: JsonObject) -> Mirror:
    """What brings the status of the Job `local` to `remote`, or that it has to wait until the Job is started."""
    old: JsonObject = local.get("status") or {}
    if has_ended(old):
        return Mirror()
    suspended = bool((local.get("spec") or {}).get("suspend"))
    if suspended and not has_ended(remote) and not is_true(remote, SUSPENDED) and _runs(remote):
        return Mirror(write=_marked_suspended(old), deferred=True, retry_after=DEFER_SECONDS)
    new = {key: value for key, value in remote.items() if value is not None}
    for counter, indexes in _COUNTERS:
        if old.get(counter, 0) > new.get(counter, 0):
            new[counter] = old[counter]
            if indexes in old:
                new[indexes] = old[indexes]
    if not suspended and old.get("startTime"):
        new["startTime"] = old["startTime"]
    patch = merge_patch(old, new)
    return Mirror(write=JobWrite(body={"status": patch}, subresource="status") if patch else None)


def stopped(local: JsonObject, *, now: str) -> JobWrite | None:
    """The write that says that nothing runs, of a Job whose cluster will not say so."""
    old: JsonObject = local.get("status") or {}
    if has_ended(old) or not _runs(old):
        return None
    new = {**old, "active": 0, "ready": 0, "terminating": 0}
    if (local.get("spec") or {}).get("suspend"):
        new.pop("startTime", None)
        new["conditions"] = _with_suspended(old, now=now)
    patch = merge_patch(old, new)
    return JobWrite(body={"status": patch}, subresource="status") if patch else None


def _runs(status: JsonObject) -> bool:
    return bool(status.get("active") or status.get("ready") or status.get("terminating") or status.get("startTime"))


def _marked_suspended(status: JsonObject) -> JobWrite | None:
    started = status.get("startTime")
    # Without a startTime the template can be changed as it is, and the write would be one too many.
    if not started or is_true(status, SUSPENDED):
        return None
    return JobWrite(body={"status": {"conditions": _with_suspended(status, now=started)}}, subresource="status")


def _with_suspended(status: JsonObject, *, now: str) -> list[JsonObject]:
    others = [condition for condition in status.get("conditions") or () if condition.get("type") != SUSPENDED]
    if is_true(status, SUSPENDED):
        return list(status["conditions"])
    return [
        *others,
        {
            "type": SUSPENDED,
            "status": "True",
            "reason": ADAPTER_REASON,
            "message": "Job suspended",
            "lastProbeTime": now,
            "lastTransitionTime": now,
        },
    ]
