# SPDX-License-Identifier: Apache-2.0
"""The pods on a hub without controllers: of Jobs those that an annotation asks for, and those that users make.

What it shows is level-based, as the job controller's: a Job that runs has pods, and one that is suspended has none.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import anyio
import orjson

from multikueue.api.resource import JOBS, PODS
from multikueue.kube import errors
from multikueue.kube.rest.client import KubeClient
from tests.comparison.histories.groups import run_pod

Object = dict[str, Any]

PODS_ANNOTATION: Final = "histories/pods"
"""Whether the pods of a Job that runs are `ready` or `unready`; it has none without."""
_TIME: Final = "2026-01-01T00:00:00Z"
_LOOK_SECONDS: Final = 0.2


class PlayedPods:
    """The pods of all Jobs of a hub, and those of groups."""

    def __init__(self, client: KubeClient, *, groups: bool = False, dispatched: bool = False) -> None:
        """`groups` is whether there are pods that users make; with `dispatched` Jobs run on worker clusters.

        Then it shows only that a Job has stopped here, where Kueue 0.17.0 keeps the last status of its remote Job for
        ever, and its quota with it.
        """
        self._client = client
        self._groups = groups
        self._dispatched = dispatched

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            for raw in (await self._client.list_all(JOBS)).items:
                await self._show(orjson.loads(raw))
            for raw in (await self._client.list_all(PODS)).items if self._groups else ():
                await run_pod(self._client, orjson.loads(raw))
            await anyio.sleep(_LOOK_SECONDS)

    async def _show(self, job: Object) -> None:
        metadata, shown = job["metadata"], job.get("status") or {}
        if "deletionTimestamp" in metadata:
            await self._delete(metadata)
            return
        wanted = (metadata.get("annotations") or {}).get(PODS_ANNOTATION)
        if wanted is None or any(each["status"] == "True" for each in _ends(shown)):
            return
        if self._dispatched and not job["spec"].get("suspend"):
            return
        active = 0 if job["spec"].get("suspend") else int(job["spec"].get("parallelism", 1))
        ready = active if wanted == "ready" else 0
        if (shown.get("active") or 0, shown.get("ready") or 0) == (active, ready):
            return
        suspended = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "lastTransitionTime": _TIME}
        status: Object = {"active": active, "ready": ready, "startTime": _TIME if active else None}
        status["conditions"] = None if active else [suspended]
        name, namespace = metadata["name"], metadata["namespace"]
        body = {"metadata": {"resourceVersion": metadata["resourceVersion"]}, "status": status}
        with suppress(errors.NotFound, errors.Conflict):  # what is there now is shown at the next look
            await self._client.patch(JOBS, name, body, namespace=namespace, subresource="status")

    async def _delete(self, metadata: Object) -> None:
        """What the garbage collector does with a Job whose pods are to be deleted before it: they have ended."""
        body = {"metadata": {"resourceVersion": metadata["resourceVersion"], "finalizers": None}}
        with suppress(errors.NotFound, errors.Conflict):
            await self._client.patch(JOBS, metadata["name"], body, namespace=metadata["namespace"])


def _ends(status: Object) -> list[Object]:
    return [each for each in status.get("conditions") or () if each["type"] in ("Complete", "Failed")]
