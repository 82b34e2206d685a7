# SPDX-License-Identifier: Apache-2.0
"""`python -m manager`: options, logs, signals, and the exit code.

0 after SIGINT or SIGTERM, 1 for an external error, 2 for a wrong option or Configuration. An error is one line on
standard error, never a traceback.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

import anyio

from manager import logs, options
from manager.app import Dispatch, Manager
from manager.dispatch.controller import DispatchController
from manager.options import ManagerOptions
from multikueue.api import configuration_file
from multikueue.api.configuration_rules import without_effect
from multikueue.api.constants import DEFAULT_NAMESPACE
from multikueue.core.clock import SystemClock
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.dispatch.dispatchers.registry import dispatcher
from multikueue.jobs.framework.registry import framework_problems
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.tls_buffers import limit_tls_buffers

_log = logging.getLogger("manager")

_EXIT_SECONDS: Final = (
    4.5  # the lease is given back and connections are closed in far less; a hang must not outlive 5 s
)


def main(arguments: Sequence[str] | None = None, *, dispatch: Dispatch = DispatchController) -> int:
    """Run the manager; the exit code. `dispatch` makes what sends admitted workloads to workers."""
    given = options.parse(sys.argv[1:] if arguments is None else arguments)
    logs.configure(style=given.log_format, level=given.log_level)
    limit_tls_buffers()
    try:
        return asyncio.run(_run(given, dispatch))
    except BadInput as error:
        _log.error("%s", error)
        return 2
    except MultikueueError as error:
        _log.error("%s", error)
        return 1
    except BaseExceptionGroup as group:
        expected, rest = group.split(MultikueueError)
        if rest is not None:
            raise rest from None
        assert expected is not None
        _log.error("%s", "; ".join(str(error) for error in _leaves(expected)))
        return 1


def _leaves(group: BaseExceptionGroup[MultikueueError]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


async def _run(given: ManagerOptions, dispatch: Dispatch) -> int:
    source = Path(given.config) if given.config else ""
    settings = configuration_file.load(
        source, namespace=given.namespace or DEFAULT_NAMESPACE, frameworks=framework_problems
    )
    for field in without_effect(settings):
        _log.warning("configuration field has no effect field=%s", field)
    dispatcher(settings.multikueue.dispatcher_name)  # an unknown name is an error here, with one line
    clock = SystemClock()
    cluster = credentials.load(given.kubeconfig, context=given.context, clock=clock)
    limits = settings.client_connection if "client_connection" in settings.model_fields_set else None
    client = KubeClient(
        cluster,
        clock=clock,
        qps=None if limits is None else limits.qps,
        burst=None if limits is None else limits.burst,
        user_agent="mk-manager",
    )
    manager = Manager(
        settings,
        client,
        options=given,
        clock=clock,
        random=Random(),
        dispatch=dispatch,
        own_process=True,
    )
    async with anyio.create_task_group() as tasks, client:
        tasks.start_soon(_until_signalled, tasks.cancel_scope)
        await manager.run()
    return 0


async def _until_signalled(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            _log.info("stopping signal=%s", signal.Signals(number).name)
            asyncio.get_running_loop().call_later(_EXIT_SECONDS, os._exit, 1)
            scope.cancel()
            return


if __name__ == "__main__":
    sys.exit(main())
