# SPDX-License-Identifier: Apache-2.0
"""The one worker, a process of its own: `python -m tests.bench.queueing.finisher --kubeconfig FILE`.

Writes Finished once an admitted Workload has run for its time, and clears the reservation of one that was evicted. Its
calls are made one after another, so that it is as slow as the API server. Prints its requests as a line of JSON each
second, until it is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import heapq
from collections import Counter
from time import monotonic
from typing import Any

import anyio
import orjson

from multikueue.api.resource import WORKLOADS
from multikueue.core.clock import SystemClock
from multikueue.core.timestamps import format_time
from multikueue.kube.errors import Conflict, KubeError, TooManyRequests
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.watch import BOOKMARK
from tests.bench.queueing.workloads import NAMESPACE, seconds_of
from tests.support.managers import condition, is_true

Object = dict[str, Any]


class Finisher:
    """Ends Workloads."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._known: dict[str, Object] = {}
        self._due: list[tuple[float, str]] = []
        self._expected: dict[str, tuple[str, float]] = {}
        self._clock = SystemClock()
        self._wake = anyio.Event()
        self._seconds = 0.0
        self._conflicts = 0

    async def run(self) -> None:
        """Work until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow)
            tasks.start_soon(self._report)
            while True:
                while self._due and self._due[0][0] <= monotonic():
                    due, name = heapq.heappop(self._due)
                    if self._expected.get(name, ("", 0.0))[1] == due:
                        del self._expected[name]
                        await self._answer(self._known[name])
                self._wake = anyio.Event()
                with anyio.move_on_after(self._due[0][0] - monotonic() if self._due else None):
                    await self._wake.wait()

    async def _follow(self) -> None:
        version = (await self._client.list_all(WORKLOADS, namespace=NAMESPACE)).resource_version
        while True:
            try:
                async for event in self._client.watch(WORKLOADS, namespace=NAMESPACE, resource_version=version):
                    new: Object = orjson.loads(event.raw)
                    version = new["metadata"]["resourceVersion"]
                    if event.type != BOOKMARK:
                        self._see(new["metadata"]["name"], new)
            except TooManyRequests:  # "storage is (re)initializing", soon after the definitions are created
                await anyio.sleep(0.5)

    def _see(self, name: str, new: Object) -> None:
        self._known[name] = new
        if is_true(new, "Finished") or not is_true(new, "QuotaReserved"):
            self._expected.pop(name, None)
        elif is_true(new, "Evicted"):
            self._expect(name, "evicted", 0.0)
        elif is_true(new, "Admitted"):
            since = condition(new, "Admitted")["lastTransitionTime"]
            self._expect(name, since, seconds_of(new))

    def _expect(self, name: str, what: str, seconds: float) -> None:
        if self._expected.get(name, ("", 0.0))[0] != what:
            due = monotonic() + seconds
            self._expected[name] = what, due
            heapq.heappush(self._due, (due, name))
            self._wake.set()

    async def _answer(self, workload: Object) -> None:
        metadata, now = workload["metadata"], format_time(self._clock.now())
        kinds: tuple[str, ...]
        if is_true(workload, "Evicted"):
            kinds, change = (
                ("QuotaReserved", "Admitted"),
                {"status": "False", "reason": "Pending", "message": "evicted"},
            )
        else:
            kinds, change = ("Finished",), {"status": "True", "reason": "Succeeded", "message": "done"}
        kept = [item for item in workload["status"]["conditions"] if item["type"] not in kinds]
        patch = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "status": {
                "conditions": [*kept, *({"type": kind, "lastTransitionTime": now, **change} for kind in kinds)],
                **({"admission": None} if "QuotaReserved" in kinds else {}),
            },
        }
        began = monotonic()
        try:
            await self._client.patch(WORKLOADS, metadata["name"], patch, namespace=NAMESPACE, subresource="status")
        except KubeError as error:
            self._conflicts += isinstance(error, Conflict)
            if metadata["name"] not in self._expected:
                self._expect(metadata["name"], "again", 0.01)  # on what the watch shows by then
        self._seconds += monotonic() - began

    async def _report(self) -> None:
        while True:
            sent = Counter({f"{verb} {kind}": count for (verb, kind), count in self._client.requests_sent.items()})
            line = {"requests": sent, "conflicts": self._conflicts, "seconds_in_calls": round(self._seconds, 1)}
            print(orjson.dumps(line).decode(), flush=True)
            await anyio.sleep(1.0)


async def finish(kubeconfig: str) -> None:
    """Work until cancelled."""
    async with KubeClient(credentials.load(kubeconfig), user_agent="worker") as client:
        await Finisher(client).run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="the worker that ends Workloads")
    parser.add_argument("--kubeconfig", required=True)
    asyncio.run(finish(parser.parse_args().kubeconfig))
