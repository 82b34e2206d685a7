# SPDX-License-Identifier: Apache-2.0
"""What users do to their work in a seed, and another client to what runs of it on a worker."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

from multikueue.api.constants import PRIORITY_CLASS_LABEL
from tests.simulation.seeds.scenario import Mishap, Trouble, Work
from tests.simulation.world.federation import GROUP, NAMESPACE, PRIORITIES, USER_JOBS, call
from tests.simulation.world.group_pods import PODS

if TYPE_CHECKING:
    from tests.simulation.seeds.play import Play


_MOST_SIZES: Final = 4
_LARGEST: Final = 4  # as many cpu as a worker has


class Users:
    """The users of one seed."""

    def __init__(self, play: Play) -> None:
        self._play = play

    async def act(self, mishap: Mishap) -> None:
        """Do what the mishap says; a deactivated Workload is activated again in the end."""
        play, work, name = self._play, self._play.work, mishap.whom[-1]
        await play.hub_is_up()
        hub = play.servers["hub"].api
        match mishap.what:
            case Trouble.DELETE_JOB:
                play.deleted.add(name)
                await self._delete(name)
            case Trouble.RECREATE_JOB:
                if not work.of(hub, name):
                    return
                play.watcher.anew.add(name)
                await self._delete(name)
                while work.of(hub, name):
                    await asyncio.sleep(0.1)
                if name not in play.deleted:
                    await play.submit(next(each for each in play.scenario.jobs if each.name == name))
            case Trouble.EDIT_PRIORITY:
                work.label(hub, name, {PRIORITY_CLASS_LABEL: play.random.choice(tuple(PRIORITIES))})
            case Trouble.DEACTIVATE:
                paths = self._workloads_of(name)
                for path in paths:
                    call(hub, "PATCH", path, {"spec": {"active": False}})
                await asyncio.sleep(mishap.seconds)
                for path in paths:
                    call(hub, "PATCH", path, {"spec": {"active": True}})
            case Trouble.DELETE_WORKLOAD:
                for path in self._workloads_of(name):
                    call(hub, "DELETE", path)
            case _:
                worker = play.servers[mishap.whom[0]].api
                for found in work.of(worker, name)[:1]:
                    work.delete(worker, found, propagation="Background" if work.collection == PODS else "Foreground")

    async def resize(self, work: Work) -> None:
        """Give an elastic Job other sizes while it waits or runs; a Job that is gone has none."""
        own = Random(f"{self._play.scenario.seed} sizes of {work.name}")
        await asyncio.sleep(work.at)
        for _ in range(own.randint(1, _MOST_SIZES)):
            await asyncio.sleep(own.choice((own.uniform(0.0, 2.0), own.uniform(0.0, 30.0))))
            await self._play.hub_is_up()
            size = own.randint(1, _LARGEST)
            if self._play.work.of(self._play.servers["hub"].api, work.name):
                self._play.watcher.tell(f"user gives {work.name} the size {size}")
                call(
                    self._play.servers["hub"].api, "PATCH", f"{USER_JOBS}/{work.name}", {"spec": {"parallelism": size}}
                )

    async def _delete(self, name: str) -> None:
        """Delete the objects of a work, and of a group also the Workload, now and then: it is not needed."""
        play = self._play
        hub = play.servers["hub"].api
        for found in play.work.of(hub, name):
            play.work.delete(hub, found, propagation="Background")
        if play.work.is_group and play.random.random() < 0.5:
            await asyncio.sleep(play.random.choice((0.0, play.random.uniform(0.0, 5.0))))
            await play.hub_is_up()
            for path in self._workloads_of(name):
                call(hub, "DELETE", path)

    def _workloads_of(self, name: str) -> list[str]:
        """The paths of the Workloads of a work."""
        play = self._play
        return [
            f"{GROUP}/namespaces/{NAMESPACE}/workloads/{found['metadata']['name']}"
            for found in play.servers["hub"].api.context.objects("workloads.kueue.x-k8s.io", namespace=NAMESPACE)
            if any(play.work.name_of(owner["name"]) == name for owner in found["metadata"].get("ownerReferences") or ())
        ]
