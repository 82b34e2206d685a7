# SPDX-License-Identifier: Apache-2.0
"""`python -m worker_agent`, also installed as `mk-worker-agent`."""

from __future__ import annotations

import gc
import logging
import signal
import sys
from contextlib import AsyncExitStack
from random import Random

import anyio

from multikueue.core.clock import SystemClock
from multikueue.core.errors import MultikueueError
from multikueue.kube import credentials
from multikueue.kube.client import KubeClient
from multikueue.kube.serve import serving
from worker_agent import joining, logs, options
from worker_agent.app import Agent
from worker_agent.enrolment import Renewer, cluster_uid
from worker_agent.options import Options
from worker_agent.service import application

_log = logging.getLogger(__name__)

_NO_SERVER = "0"


async def serve(given: Options) -> None:
    """Run the agent until SIGINT or SIGTERM. Raises `BadInput` for a kubeconfig that cannot be used."""
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(
            KubeClient(credentials.load(given.kubeconfig, context=given.context), user_agent="multikueue-agent")
        )
        clock = SystemClock()
        store = joining.home_of(given, worker)
        config = await joining.hub_of(given, worker, store, clock=clock)
        hub = await stack.enter_async_context(
            KubeClient(config, user_agent="multikueue-agent", qps=given.hub_qps, burst=given.hub_burst)
        )
        agent = Agent(hub, worker, cluster=given.cluster, origin=given.origin, rhythm=given.rhythm)
        renewer = Renewer(
            hub,
            cluster=given.cluster,
            uid=lambda: cluster_uid(worker),
            store=store,
            clock=clock,
            random=Random(),
            renewal=given.renewal,
        )
        if given.health_bind != _NO_SERVER:
            await stack.enter_async_context(serving(application(agent, hub=hub, worker=worker), given.health_bind))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_on_signal, tasks.cancel_scope)
            tasks.start_soon(agent.run)
            tasks.start_soon(renewer.run)


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
