# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.bench.manager.counted_hub DATABASE PORT COUNTS`: an embedded API server that counts requests.

Each tenth of a second in which something was asked is a line of COUNTS: the time and how much. Watches count once.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from time import time

from devcluster.apiserver.http.listener import Listener
from devcluster.apiserver.http.requests import Reply, Request
from devcluster.apiserver.server import ApiServer
from devcluster.apiserver.storage.durable import SqliteJournal
from tests.support.embedded import ADMIN, signing_key

TICKS = 10


class CountedServer(ApiServer):
    """Counts by tenth of a second, in total and for the manager alone."""

    counted: Counter[tuple[int, str]]

    def handle(self, request: Request) -> Reply | Coroutine[object, object, Reply | None]:
        """As any server."""
        agent = request.headers.get("user-agent", "").partition("/")[0]
        self.counted[int(time() * TICKS), agent] += 1
        return super().handle(request)


async def _serve(database: Path, port: int, counts: Path) -> None:
    api = CountedServer(signing_key=signing_key(), journal=SqliteJournal(database))
    api.counted = Counter()
    api.authentication.insecure = ADMIN
    async with Listener(api, port=port):
        with counts.open("a") as lines:
            while True:
                await asyncio.sleep(0.5)
                counted, api.counted = api.counted, Counter()
                lines.writelines(f"{tick} {agent or '-'} {count}\n" for (tick, agent), count in counted.items())
                lines.flush()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
