# SPDX-License-Identifier: Apache-2.0
"""`python -m worker_agent`, also installed as `mk-worker-agent`."""

from __future__ import annotations

import gc
import logging
import signal
import sys
from contextlib import AsyncExitStack

import anyio

from multikueue.core.errors import MultikueueError
from multikueue.kube import credentials
from multikueue.kube.client import KubeClient
from multikueue.kube.serve import serving
from worker_agent import logs, options
from worker_agent.app import Agent
from worker_agent.options import Options
from worker_agent.service import application

_log = logging.getLogger(__name__)

_NO_SERVER = "0"


async def serve(given: Options) -> None:
    """Run the agent until SIGINT or SIGTERM. Raises `BadInput` for a kubeconfig that cannot be used."""
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(
            KubeClient(credentials.load(given.hub_kubeconfig, context=given.hub_context), user_agent="multikueue-agent")
        )
        worker = await stack.enter_async_context(
            KubeClient(credentials.load(given.kubeconfig, context=given.context), user_agent="multikueue-agent")
        )
        agent = Agent(hub, worker, cluster=given.cluster, origin=given.origin, rhythm=given.rhythm)
        if given.health_bind != _NO_SERVER:
            await stack.enter_async_context(serving(application(agent, hub=hub, worker=worker), given.health_bind))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_on_signal, tasks.cancel_scope)
            tasks.start_soon(agent.run)


async def _stop_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            _log.info("stopping on %s; what runs goes on running", signal.Signals(number).name)
            scope.cancel()
            return


def main() -> None:
    """The console script."""
    try:
        given = options.parse()
        logs.configure(style=given.log_format, level=given.log_level, cluster=given.cluster)
        # What was imported lives as long as the process; walking it in each full collection is for nothing.
        gc.freeze()
        anyio.run(serve, given)
    except MultikueueError as error:
        sys.exit(f"mk-worker-agent: {error}")


if __name__ == "__main__":
    main()
