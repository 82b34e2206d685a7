# SPDX-License-Identifier: Apache-2.0
"""A management cluster that is lost with all it knew, and filled again from what its workers run.

Owns what the administrator does by docs/operations/recover.md, with the code of `mkctl cluster recover`: hold the
queues, adopt from one worker after the other as they can be asked, release the queues, and discard what nobody goes on
with. The server that comes in the place of the lost one was built before, with another identity. What users submit
again meanwhile is theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from devcluster.apiserver.server import ApiServer
from multikueue.cli.cluster.recovering import RecoveryAction, recover
from multikueue.core.errors import BadInput
from multikueue.jobs.framework.recovery import OrphanAction
from multikueue.kube.errors import KubeError
from multikueue.kube.rest.client import KubeClient
from tests.simulation.world.federation import GROUP, call

QUEUE: Final = f"{GROUP}/clusterqueues/queue"
_PATIENCE: Final = 20.0
_AGAIN: Final = 3.0
_UNDECIDED: Final = frozenset({OrphanAction.CREATE, OrphanAction.BIND, OrphanAction.WAIT})


def hold(hub: ApiServer, *, held: bool) -> None:
    """Let nothing start that may run on a worker already; let it start again."""
    call(hub, "PATCH", QUEUE, {"spec": {"stopPolicy": "Hold" if held else "None"}})


class Administrator:
    """Who fills a new hub."""

    def __init__(self, client: KubeClient, workers: Sequence[str], *, tell: Callable[[str], None]) -> None:
        self._client = client
        self._workers = workers
        self._tell = tell

    async def adopt(self) -> None:
        """Go on with what each worker runs for the lost hub."""
        for worker in self._workers:
            await self._ask(worker, RecoveryAction.ADOPT)

    async def clear(self) -> None:
        """Discard what is left on each worker when nothing is about to be taken over any more."""
        for worker in self._workers:
            # What was evicted before it was granted has to be bound again.
            while any(action in _UNDECIDED for action in await self._ask(worker, RecoveryAction.ADOPT)):
                await asyncio.sleep(_AGAIN)
            while await self._ask(worker, RecoveryAction.DISCARD):
                await asyncio.sleep(_AGAIN)

    async def _ask(self, worker: str, wanted: RecoveryAction) -> list[str]:
        """What was done about each remote job; asked again for as long as the worker or the hub does not answer."""
        while True:
            try:
                found = await recover(self._client, worker, action=wanted, patience=_PATIENCE)
            except (BadInput, KubeError):
                await asyncio.sleep(_AGAIN)
                continue
            for entry in found.entries:
                self._tell(
                    f"administrator: {worker} {entry['name']} {entry['phase']}: {entry['action']} {entry['why']}"
                )
            return [entry["action"] for entry in found.entries]
