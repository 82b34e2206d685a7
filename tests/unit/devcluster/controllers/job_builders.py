# SPDX-License-Identifier: Apache-2.0
"""Jobs and pods for the tests of the Job controller's decisions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from devcluster.controllers import pod_facts
from multikueue.api.objects import JsonObject
from multikueue.core.timestamps import format_time

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def job(status: JsonObject | None = None, **spec: Any) -> JsonObject:
    """A Job that started a minute ago, unless its status says otherwise."""
    template = {"spec": {"restartPolicy": spec.pop("restartPolicy", "Never"), "containers": [{"name": "main"}]}}
    metadata = {"name": "job", "namespace": "ns", "uid": "job-uid"}
    started = {"startTime": format_time(NOW - timedelta(minutes=1))}
    return {
        "metadata": metadata,
        "spec": {"parallelism": 1, "completions": 1, "backoffLimit": 6, **spec, "template": template},
        "status": started if status is None else status,
    }


def pod(
    uid: str,
    phase: str = "Running",
    *,
    index: int | None = None,
    code: int | None = None,
    ended: float = 0.0,
    deleting: bool = False,
    tracked: bool = True,
    ready: bool = False,
    failures: int = 0,
    disrupted: bool = False,
    restarts: int = 0,
    node: str = "node-1",
) -> JsonObject:
    """A pod of it; `ended` is how many seconds ago."""
    annotations = {pod_facts.FAILURES: str(failures)}
    if index is not None:
        annotations[pod_facts.INDEX] = str(index)
    metadata: JsonObject = {"name": f"job-{uid}", "namespace": "ns", "uid": uid, "annotations": annotations}
    if tracked:
        metadata["finalizers"] = [pod_facts.TRACKING]
    if deleting:
        metadata["deletionTimestamp"] = format_time(NOW)
    container: JsonObject = {"name": "main", "restartCount": restarts, "state": {}}
    if phase in ("Succeeded", "Failed"):
        exit_code = code if code is not None else int(phase == "Failed")
        finished = format_time(NOW - timedelta(seconds=ended))
        container["state"] = {"terminated": {"exitCode": exit_code, "finishedAt": finished}}
    conditions = [{"type": "Ready", "status": "True"}] if ready else []
    if disrupted:
        conditions.append({"type": "DisruptionTarget", "status": "True"})
    status = {"phase": phase, "conditions": conditions, "containerStatuses": [container]}
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": status}
