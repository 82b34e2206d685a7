# SPDX-License-Identifier: Apache-2.0
"""`python -m worker_agent`, also installed as `mk-worker-agent`."""

from __future__ import annotations

import gc
import logging
import signal
import sys
from contextlib import AsyncExitStack
from random import SystemRandom

import anyio
from prometheus_client import CollectorRegistry

from multikueue.core.clock import SystemClock
from multikueue.core.errors import MultikueueError
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.tls_buffers import limit_tls_buffers
from multikueue.kube.runtime.quarantine import Quarantine, QuarantineMetrics
from multikueue.kube.runtime.supervisor import Supervisor
from multikueue.kube.serving.serve import serving
from worker_agent import logs, options
from worker_agent.app import Agent
from worker_agent.hub import joining
from worker_agent.hub.enrolment import Renewer, cluster_uid
from worker_agent.options import AgentOptions
from worker_agent.service import application

_log = logging.getLogger(__name__)

_NO_SERVER = "0"


async def serve(given: AgentOptions) -> None:
    """Run the agent until SIGINT or SIGTERM. Raises `BadInput` for a kubeconfig that cannot be used."""
    async with AsyncExitStack() as stack:
        worker = await stack.enter_async_context(
            KubeClient(credentials.load(given.kubeconfig, context=given.context), user_agent="multikueue-agent")
        )
        clock = SystemClock()
        store = joining.identity_store(given, worker)
        config = await joining.hub_config(given, worker, store, clock=clock)
        hub = await stack.enter_async_context(
            KubeClient(config, user_agent="multikueue-agent", qps=given.hub_qps, burst=given.hub_burst)
        )
        registry = CollectorRegistry()
        agent = Agent(
            hub,
            worker,
            cluster=given.cluster,
            origin=given.origin,
            intervals=given.intervals,
            quarantine=Quarantine(clock=clock, metrics=QuarantineMetrics(registry)),
            supervisor=Supervisor(clock=clock, registry=registry),
            rules=lambda: (given.policy,),
            integrations=given.integrations,
        )
        renewer = Renewer(
            hub,
            cluster=given.cluster,
            uid=lambda: cluster_uid(worker),
            store=store,
            clock=clock,
            random=SystemRandom(),  # the names of certificate requests must not be predictable
            renewal=given.renewal,
        )
        if given.health_bind != _NO_SERVER:
            await stack.enter_async_context(
                serving(application(agent, hub=hub, worker=worker, registry=registry), given.health_bind)
            )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_stop_on_signal, tasks.cancel_scope)
            tasks.start_soon(agent.run)
            tasks.start_soon(renewer.run)


async def _stop_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            _log.info("stopping; running jobs are left as they are signal=%s", signal.Signals(number).name)
            scope.cancel()
            return


def main() -> None:
    """The console script."""
    try:
        given = options.parse()
        logs.configure(style=given.log_format, level=given.log_level, cluster=given.cluster)
        # Modules live as long as the process; full collections need not walk them.
        gc.freeze()
        limit_tls_buffers()
        anyio.run(serve, given)
    except MultikueueError as error:
        sys.exit(f"mk-worker-agent: {error}")


if __name__ == "__main__":
    main()
