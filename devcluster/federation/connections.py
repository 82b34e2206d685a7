# SPDX-License-Identifier: Apache-2.0
"""Waits until the workers of a federation are enrolled and connected, as reported on its hub."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Final

import anyio

from devcluster.errors import TimedOut
from multikueue.api import constants
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import LEASES, MULTIKUEUE_CLUSTERS
from multikueue.core.timestamps import parse_time

if TYPE_CHECKING:
    from multikueue.kube.rest.client import KubeClient

CONNECTED_WITHIN: Final = 60.0
_POLL_SECONDS: Final = 0.05


async def wait_until_enrolled(
    client: KubeClient, workers: Iterable[str], *, within: float = CONNECTED_WITHIN, hint: str = ""
) -> None:
    """Wait until the manager has created every worker's mailbox; an agent that starts earlier is refused and backs off.

    Raises `TimedOut` with the workers without a mailbox.
    """
    left = list(workers)
    with anyio.move_on_after(within):
        while True:
            left = [name for name in left if await _lease(client, name) is None]
            if not left:
                return
            await anyio.sleep(_POLL_SECONDS)
    raise TimedOut(f"no mailbox after {within:.0f} s for {', '.join(left)}{'; ' if hint else ''}{hint}")


async def wait_until_connected(
    client: KubeClient, workers: Iterable[str], *, since: datetime, within: float = CONNECTED_WITHIN, hint: str = ""
) -> None:
    """Wait until every MultiKueueCluster is active and every agent has renewed its lease after `since`.

    Raises `TimedOut` with the status of the others; `hint` says where to find more.
    """
    problems = dict.fromkeys(workers, "not checked")
    with anyio.move_on_after(within):
        while True:
            problems = {name: await _problem(client, name, since=since) for name in problems}
            if not any(problems.values()):
                return
            await anyio.sleep(_POLL_SECONDS)
    detail = "; ".join(f"{name}: {problem}" for name, problem in problems.items() if problem)
    raise TimedOut(f"not connected after {within:.0f} s: {detail}{'; ' if hint else ''}{hint}")


async def _problem(client: KubeClient, name: str, *, since: datetime) -> str:
    """Why a worker is not connected; empty when it is."""
    cluster = await client.get_object(MULTIKUEUE_CLUSTERS, name)
    conditions = {each["type"]: each for each in cluster.get("status", {}).get("conditions") or []}
    active = conditions.get("Active")
    if active is None:
        return "the manager has not reported its status"
    if active["status"] != "True":
        return f"{active['reason']}: {active['message']}"
    # A restarted federation finds the condition of its previous run.
    lease = await _lease(client, name)
    if lease is None:
        return "it has no mailbox"
    renewed = lease["spec"].get("renewTime")
    return "" if renewed and parse_time(renewed) >= since else "its agent has not renewed its lease"


async def _lease(client: KubeClient, name: str) -> JsonObject | None:
    from multikueue.kube.errors import NotFound

    try:
        return await client.get_object(LEASES, constants.MAILBOX_OBJECT_NAME, namespace=mailbox_namespace(name))
    except NotFound:
        return None
