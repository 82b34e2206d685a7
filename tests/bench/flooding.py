# SPDX-License-Identifier: Apache-2.0
"""The flood of one tenant, in a process of its own: `python -m tests.bench.flooding --kubeconfig FILE --jobs N`.

Creates Jobs as fast as the hub takes them, every hundredth near the largest that it takes, and changes a hundred of
their statuses in each second. Then it continues with the statuses, and changes a large Job twice a second.
Prints what it has done so far as a line of JSON each quarter of a second, until it is ended.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any, Final

import anyio
import orjson

from multikueue.api import constants
from multikueue.api.resource import JOBS
from multikueue.kube.errors import KubeError
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.support.managers import job_manifest

TENANT: Final = "a-flood"
CREATORS: Final = 16
_LARGE_EVERY: Final = 100
_LARGE_BYTES: Final = 1_300_000
_CHANGES_PER_SECOND: Final = 100
_LARGE_CHANGES_PER_SECOND: Final = 2
_REPORT_SECONDS: Final = 0.25


def manifest_of(name: str, tenant: str) -> dict[str, Any]:
    """A Job that is dispatched and never ends."""
    manifest = job_manifest(name, namespace=tenant, queue=tenant, cpu="10m", suspend=True)
    manifest["spec"]["managedBy"] = constants.MULTIKUEUE_MANAGED_BY
    manifest["spec"]["template"]["metadata"] = {"annotations": {constants.RUN_FOR_ANNOTATION: "forever"}}
    return manifest


class Flooder:
    """One tenant that asks for all it can get."""

    def __init__(self, client: KubeClient, *, jobs: int) -> None:
        self._client = client
        self._jobs = jobs
        self.counted = {"created": 0, "changed": 0, "large_changed": 0, "refused": 0}

    async def run(self) -> None:
        """Flood until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._report)
            tasks.start_soon(self._change_statuses)
            async with anyio.create_task_group() as creators:
                for first in range(CREATORS):
                    creators.start_soon(self._create, first)
            await self._change_large()

    async def _report(self) -> None:
        while True:
            print(orjson.dumps(self.counted).decode(), flush=True)
            await anyio.sleep(_REPORT_SECONDS)

    async def _create(self, first: int) -> None:
        for number in range(first, self._jobs, CREATORS):
            manifest = manifest_of(_name(number), TENANT)
            if number % _LARGE_EVERY == 0:
                manifest["spec"]["template"]["spec"]["containers"][0]["args"] = ["x" * _LARGE_BYTES]
            while not await self._send(self._client.create(JOBS, manifest, namespace=TENANT)):
                await anyio.sleep(0.1)
            self.counted["created"] += 1

    async def _change_statuses(self) -> None:
        number = 0
        async with anyio.create_task_group() as tasks:
            while True:
                await anyio.sleep(1 / _CHANGES_PER_SECOND)
                there = self.counted["created"] - CREATORS
                if there < 1:
                    continue
                number += 1
                tasks.start_soon(self._change_status, _name(number % there), number % 7)

    async def _change_status(self, name: str, terminating: int) -> None:
        change = {"status": {"terminating": terminating}}
        if await self._send(self._client.patch(JOBS, name, change, namespace=TENANT, subresource="status")):
            self.counted["changed"] += 1

    async def _change_large(self) -> None:
        number = 0
        while True:
            await anyio.sleep(1 / _LARGE_CHANGES_PER_SECOND)
            number += 1
            name = _name(number * _LARGE_EVERY % self._jobs // _LARGE_EVERY * _LARGE_EVERY)
            change = {"metadata": {"annotations": {"example.com/changed": str(number)}}}
            if await self._send(self._client.patch(JOBS, name, change, namespace=TENANT)):
                self.counted["large_changed"] += 1

    async def _send(self, request: Any) -> bool:
        try:
            await request
        except KubeError:
            self.counted["refused"] += 1  # too many requests, or not there yet
            return False
        return True


def _name(number: int) -> str:
    return f"flood-{number:05}"


async def flood(kubeconfig: str, jobs: int) -> None:
    """Flood until cancelled."""
    async with KubeClient(credentials.load(kubeconfig)) as client:
        await Flooder(client, jobs=jobs).run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="one tenant's flood")
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--jobs", type=int, required=True)
    options = parser.parse_args()
    asyncio.run(flood(options.kubeconfig, options.jobs))
