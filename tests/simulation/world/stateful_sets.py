# SPDX-License-Identifier: Apache-2.0
"""The controller of StatefulSets on the hub: that of the embedded clusters, in virtual time."""

from __future__ import annotations

from random import Random
from typing import Final

import anyio

from devcluster.controllers.caches import AppCaches, ControllerCaches
from devcluster.controllers.stateful_sets import StatefulSets
from multikueue.kube.runtime.events import EventRecorder
from tests.simulation.world.federation import ADMIN, Process
from tests.simulation.world.network import Link, SimClient
from tests.simulation.world.virtual_time import SimClock

CONTROLLERS: Final = "controllers"
"""The name of the process."""


def controller(hub: Link, clock: SimClock, random: Random) -> Process:
    """Its process."""

    async def body(number: int) -> None:
        async with SimClient(hub, ADMIN, clock=clock, random=random) as client:
            caches = AppCaches(client, ControllerCaches(client, clock=clock), clock=clock)
            recorder = EventRecorder(client, "statefulset-controller", clock=clock)
            made = StatefulSets(client, caches, recorder=recorder, clock=clock)
            async with anyio.create_task_group() as tasks:
                for informer in (caches.pods, caches.revisions, caches.stateful_sets):
                    tasks.start_soon(informer.run)
                tasks.start_soon(recorder.run)
                tasks.start_soon(made.run)

    return Process(CONTROLLERS, [hub], body)
