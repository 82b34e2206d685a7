# SPDX-License-Identifier: Apache-2.0
"""The controllers on the hub of what serves there: those of the embedded clusters, in virtual time."""

from __future__ import annotations

from random import Random
from typing import Final

import anyio

from devcluster.controllers.caches import AppCaches, ControllerCaches
from devcluster.controllers.deployments import Deployments
from devcluster.controllers.replica_sets import ReplicaSets
from devcluster.controllers.stateful_sets import StatefulSets
from devcluster.operators.operated_kinds import kind_of
from devcluster.operators.templated import TemplatedOperator
from multikueue.api.resource import Resource
from multikueue.kube.runtime.events import EventRecorder
from tests.simulation.world.federation import ADMIN, Process
from tests.simulation.world.network import Link, SimClient
from tests.simulation.world.virtual_time import SimClock

CONTROLLERS: Final = "controllers"
"""The name of the process."""


def controllers(hub: Link, clock: SimClock, random: Random, *, operated: Resource | None) -> Process:
    """The process of those of StatefulSets and Deployments, and of the operator of one more kind."""

    async def body(number: int) -> None:
        async with SimClient(hub, ADMIN, clock=clock, random=random) as client:
            caches = AppCaches(client, ControllerCaches(client, clock=clock), clock=clock)
            recorder = EventRecorder(client, "controllers", clock=clock)
            async with anyio.create_task_group() as tasks:
                for informer in (caches.pods, *caches.informers):
                    tasks.start_soon(informer.run)
                tasks.start_soon(recorder.run)
                for made in (StatefulSets, Deployments, ReplicaSets):
                    tasks.start_soon(made(client, caches, recorder=recorder, clock=clock).run)
                if operated is not None:
                    tasks.start_soon(TemplatedOperator(client, kind_of(operated), clock=clock).run)

    return Process(CONTROLLERS, [hub], body)
