# SPDX-License-Identifier: Apache-2.0
"""What happens to a seed whose hub is lost, and is rebuilt or restored from a backup; or a worker, and is restored.

Owns the order of things by docs/operations/recover.md and restore.md: the managers end, another hub comes or the same
is restored to what it was, its administrator sees to it, and users submit again what is not there any more. What a
rebuilt hub is filled with is `rebuilding`'s, what a backup holds `restoring`'s.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

from devcluster.apiserver.server import ApiServer
from tests.simulation.seeds import rebuilding
from tests.simulation.seeds.invariants import Record
from tests.simulation.seeds.restoring import Backup
from tests.simulation.seeds.scenario import Work
from tests.simulation.world.app_controllers import CONTROLLERS
from tests.simulation.world.federation import ADMIN, GROUP, NAMESPACE, call
from tests.simulation.world.network import Link, SimClient

if TYPE_CHECKING:
    from tests.simulation.seeds.play import Play

_LEADER: Final = "/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases/c1f6bfd2.kueue.x-k8s.io"


class Losing:
    """What is done about the hub of one seed."""

    def __init__(self, play: Play, *, spare: ApiServer) -> None:
        self._play = play
        self._hub = play.servers["hub"]
        self._spare = spare
        self._backups: dict[str, tuple[Backup, dict[str, Record]]] = {}

    async def rebuild(self, seconds: float) -> None:
        """The hub is gone with its managers and all it knew; another one comes and is filled again."""
        play, hub = self._play, self._hub
        works = await self._lose(seconds)
        hub.replace(self._spare)
        play.watcher.lose()
        play.settle(hub)
        play.follow_hub(hub)
        rebuilding.hold(hub.api, held=True)
        hub.restart()
        play.processes["manager"].start()
        early = [work for work in works if play.random.random() < 0.5]
        for work in early:
            await self._submit_again(work)
        link = Link(hub, Random(play.random.getrandbits(64)), play.loop)
        async with SimClient(link, ADMIN, clock=play.clock("hub"), random=play.random) as client:
            administrator = rebuilding.Administrator(client, play.scenario.workers, tell=play.watcher.tell)
            await administrator.adopt()
            await play.hub_is_up()
            rebuilding.hold(hub.api, held=False)
            for work in works:
                await self._submit_again(work)
            await administrator.clear()

    def back_up(self, server: str) -> None:
        """Keep what the hub, or a worker, holds now."""
        self._backups[server] = Backup(self._play.servers[server].api.context.store), self._play.watcher.remember()

    async def restore(self, seconds: float) -> None:
        """The hub is restored from its backup; its managers restart, and lost objects are created again."""
        play, hub = self._play, self._hub
        bump = play.random.random() < 0.5
        works = await self._lose(seconds)
        backup, known = self._backups["hub"]
        backup.restore(hub.api.context.store, bump=bump)
        play.watcher.tell(f"the hub is restored, its versions {'far beyond' if bump else 'as they were'}")
        play.watcher.restore(known)
        hub.replace(hub.api)
        play.look_again()
        hub.restart()
        call(hub.api, "PATCH", f"{GROUP}/multikueueconfigs/all", {"spec": {"clusters": play.configured()}})
        if play.random.random() < 0.5:  # without waiting until the lease of the former manager expires
            call(hub.api, "DELETE", _LEADER)
        for name in ("manager", CONTROLLERS):
            if name in play.processes:
                play.processes[name].start()
        for work in works:
            await asyncio.sleep(play.random.uniform(0.0, 5.0))
            if work.name not in play.deleted:
                await self._submit_again(work)

    async def restore_worker(self, name: str, seconds: float) -> None:
        """A worker is restored from its backup. Its agent runs on, and so does the manager where that serves it."""
        play, worker = self._play, self._play.servers[name]
        worker.lose()
        await asyncio.sleep(seconds)
        backup, _ = self._backups[name]
        # Of versions that are used twice no watch of any client knows what it missed (docs/operations/restore.md).
        backup.restore(worker.api.context.store, bump=True)
        play.watcher.tell(f"{name} is restored, its versions far beyond")
        worker.replace(worker.api)
        worker.restart()
        play.watcher.pods[name].restored()
        if play.queued is not None:
            await play.queued.restored(name)

    async def _lose(self, seconds: float) -> list[Work]:
        """Until another hub may come; gives the works that were there. The managers go with it."""
        play, hub = self._play, self._hub
        hub.lose()
        objects = hub.api.context.objects(play.work.submitted, namespace=NAMESPACE)
        known = {play.work.name_of(found["metadata"]["name"]) for found in objects}
        await asyncio.sleep(seconds)
        for name in ("manager", "manager-2", CONTROLLERS):
            if name in play.processes:
                await play.processes[name].kill()
        return [work for work in play.scenario.jobs if work.name in known]

    async def _submit_again(self, work: Work) -> None:
        """Unless it is there again."""
        await self._play.hub_is_up()
        if not self._play.work.of(self._hub.api, work.name):
            await self._play.submit(work)
