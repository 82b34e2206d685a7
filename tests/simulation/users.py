# SPDX-License-Identifier: Apache-2.0
"""What users do to their work in a seed, and another client to what runs of it on a worker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from multikueue.api.constants import PRIORITY_CLASS_LABEL
from tests.simulation.federation import GROUP, NAMESPACE, PRIORITIES, call
from tests.simulation.scenario import Mishap, Trouble

if TYPE_CHECKING:
    from tests.simulation.play import Play


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
                    work.delete(worker, found, propagation="Background" if work.is_group else "Foreground")

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
