# SPDX-License-Identifier: Apache-2.0
"""The status of a batch/v1 Job on the hub, synced from the remote job.

Owns what Kubernetes 1.36 lets other writers than its Job controller write there, as found on a real API server:

- the counters `succeeded` and `failed` never decrease, not even after a new dispatch;
- `startTime` of a Job that is not suspended cannot change once it is set;
- a suspended Job accepts a template change only while it has no active pods, and has no `startTime` or the condition
  `Suspended`. So a running status in a suspended Job would keep it from ever being started or restored.
"""

from __future__ import annotations

from typing import Final

from multikueue.api.objects import JsonObject
from multikueue.core.conditions import find_in, is_true_in
from multikueue.core.errors import BadInput
from multikueue.core.merge_patch import merge_patch
from multikueue.core.parsing import count_of
from multikueue.core.printable import excerpt
from multikueue.jobs.framework.protocol import JobWrite, StatusSync

SUSPENDED: Final = "Suspended"
SUSPENDED_REASON: Final = "JobSuspended"
SUSPENDED_MESSAGE: Final = "Job suspended"
RESUMED_REASON: Final = "JobResumed"
RESUMED_MESSAGE: Final = "Job resumed"
ADAPTER_REASON: Final = "MultiKueueAdapter"
DEFER_SECONDS: Final = 2.0
_COUNTERS: Final = (("succeeded", "completedIndexes"), ("failed", "failedIndexes"))
_ENDED: Final = ("Complete", "Failed")


def has_ended(status: JsonObject) -> bool:
    """Whether the Job is Complete or Failed."""
    return any(is_true_in(status, kind) for kind in _ENDED)


def synced(local: JsonObject, remote: JsonObject) -> StatusSync:
    """The write that syncs `remote` to the Job `local`, or that it has to wait until that is started.

    Raises `BadInput` if `remote`, which a worker wrote, is not a valid Job status.
    """
    _require_shape(remote)
    old: JsonObject = local.get("status") or {}
    if has_ended(old):
        return StatusSync()
    suspended = bool((local.get("spec") or {}).get("suspend"))
    if suspended and not has_ended(remote) and not is_true_in(remote, SUSPENDED) and _runs(remote):
        return StatusSync(write=_marked_suspended(old), deferred=True, retry_after=DEFER_SECONDS)
    new = {key: value for key, value in remote.items() if value is not None}
    for counter, indexes in _COUNTERS:
        if count_of(old, counter, at="status") > count_of(new, counter, at="jobStatus"):
            new[counter] = old[counter]
            if indexes in old:
                new[indexes] = old[indexes]
    if not suspended and old.get("startTime"):
        new["startTime"] = old["startTime"]
    conditions = _with_local_suspension(old, remote, suspended=suspended)
    if conditions is not None:
        new["conditions"] = conditions
    patch = merge_patch(old, new)
    return StatusSync(write=JobWrite(body={"status": patch}, subresource="status") if patch else None)


def suspended(local: JsonObject, *, now: str) -> JobWrite | None:
    """The write that marks a waiting Job as Suspended, as the Job controller does for its Jobs.

    None if it is marked, is not suspended, still has pods, or has ended.
    """
    old: JsonObject = local.get("status") or {}
    waits = bool((local.get("spec") or {}).get("suspend"))
    if not waits or has_ended(old) or is_true_in(old, SUSPENDED) or old.get("active") or old.get("terminating"):
        return None
    entry = {
        "type": SUSPENDED,
        "status": "True",
        "reason": SUSPENDED_REASON,
        "message": SUSPENDED_MESSAGE,
        "lastProbeTime": now,
        "lastTransitionTime": now,
    }
    others = [condition for condition in old.get("conditions") or () if condition.get("type") != SUSPENDED]
    return JobWrite(body={"status": {"conditions": [entry, *others]}}, subresource="status")


def stopped(local: JsonObject, *, now: str) -> JobWrite | None:
    """The write that sets the pod counts to zero for a Job whose cluster will not report it; None if they are."""
    old: JsonObject = local.get("status") or {}
    if has_ended(old) or not _runs(old):
        return None
    new = {**old, "active": 0, "ready": 0, "terminating": 0}
    if (local.get("spec") or {}).get("suspend"):
        new.pop("startTime", None)
        new["conditions"] = _with_suspended(old, now=now)
    patch = merge_patch(old, new)
    return JobWrite(body={"status": patch}, subresource="status") if patch else None


def _require_shape(status: JsonObject) -> None:
    """Check the fields that are read here; the API server validates the rest on write."""
    for name in ("active", "ready", "terminating", *(counter for counter, _ in _COUNTERS)):
        count_of(status, name, at="jobStatus")
    conditions = status.get("conditions")
    if conditions is not None and not (
        isinstance(conditions, list) and all(isinstance(condition, dict) for condition in conditions)
    ):
        raise BadInput(f"jobStatus.conditions: expected a list of objects, found {excerpt(conditions)}")


def _runs(status: JsonObject) -> bool:
    return bool(status.get("active") or status.get("ready") or status.get("terminating") or status.get("startTime"))


def _marked_suspended(status: JsonObject) -> JobWrite | None:
    started = status.get("startTime")
    # Without a startTime the template can be changed as it is, and the write would be one too many.
    if not started or is_true_in(status, SUSPENDED):
        return None
    return JobWrite(body={"status": {"conditions": _with_suspended(status, now=started)}}, subresource="status")


def _with_local_suspension(old: JsonObject, remote: JsonObject, *, suspended: bool) -> list[JsonObject] | None:
    """The worker's conditions with the local Suspended condition; None if the worker's need no change.

    A remote job is created without `suspend`, so its status has no Suspended condition for the hub.
    """
    own = find_in(old, SUSPENDED)
    waits = suspended and not has_ended(remote)
    if own is None or (find_in(remote, SUSPENDED) is not None and not waits):
        return None
    if own.get("status") == "True" and not waits and (remote.get("startTime") or has_ended(remote)):
        moment = remote.get("startTime") or own.get("lastTransitionTime")
        own = own | {"status": "False", "reason": RESUMED_REASON, "message": RESUMED_MESSAGE}
        own |= {"lastProbeTime": moment, "lastTransitionTime": moment} if moment else {}
    return [own, *(each for each in remote.get("conditions") or () if each.get("type") != SUSPENDED)]


def _with_suspended(status: JsonObject, *, now: str) -> list[JsonObject]:
    others = [condition for condition in status.get("conditions") or () if condition.get("type") != SUSPENDED]
    if is_true_in(status, SUSPENDED):
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
