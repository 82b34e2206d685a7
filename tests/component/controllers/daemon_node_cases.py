# SPDX-License-Identifier: Apache-2.0
"""What a cluster does with DaemonSets when nodes change. They have nodes of their own, which repel others."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio

from devcluster.kubelet.node import NodeSpec
from devcluster.kubelet.virtual_nodes import VirtualNodes
from multikueue.api.objects import JsonObject
from multikueue.api.resource import NODES
from tests.component.controllers.app_stage import GATED, template, version
from tests.component.controllers.cluster_cases import Case, Place, case
from tests.component.controllers.daemon_cases import DaemonStage

DAEMON_NODE_CASES: Final[list[Case]] = []
_OWN: Final = "example.com/place"


@asynccontextmanager
async def _own_nodes(place: Place, count: int) -> AsyncIterator[list[str]]:
    """Nodes for the pods of this namespace only."""
    names = [f"{place.namespace}-{number}" for number in range(1, count + 1)]
    taint = {"key": _OWN, "value": place.namespace, "effect": "NoSchedule"}
    nodes = [NodeSpec(name=name, labels={_OWN: place.namespace}, taints=[taint]) for name in names]
    failure = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(VirtualNodes(place.client, nodes=nodes).run)

        async def usable() -> bool:
            found = [await place.look(NODES, name) for name in names]
            return all(node is not None and len(node["spec"].get("taints") or ()) == 1 for node in found)

        try:
            await place.until(usable, "with nodes of its own")
            yield names
        except AssertionError as error:
            failure = error  # raised below, since a task group would wrap it
        tasks.cancel_scope.cancel()
    for name in names:
        if await place.look(NODES, name) is not None:
            await place.client.delete(NODES, name)
    if failure is not None:
        raise failure


def _on_own_nodes(place: Place, **more: Any) -> JsonObject:
    """A template of pods for the nodes of this namespace."""
    tolerated = {"key": _OWN, "operator": "Equal", "value": place.namespace}
    return template(nodeSelector={_OWN: place.namespace}, tolerations=[tolerated], **more)


async def _taint(place: Place, node: str, effect: str | None) -> None:
    """Give a node a second taint; None takes it away."""
    own = {"key": _OWN, "value": place.namespace, "effect": "NoSchedule"}
    second = [{"key": "example.com/second", "effect": effect}] if effect is not None else []
    await place.client.patch(NODES, node, {"spec": {"taints": [own, *second]}})


async def _labelled(place: Place, node: str, value: str | None) -> None:
    await place.client.patch(NODES, node, {"metadata": {"labels": {_OWN: value}}})


_CHANGES: Final[dict[str, tuple[Callable[[Place, str], Any], Callable[[Place, str], Any], int, dict[str, int]]]] = {
    "a taint that keeps new pods away": (
        lambda place, node: _taint(place, node, "NoSchedule"),
        lambda place, node: _taint(place, node, None),
        2,
        {"desiredNumberScheduled": 1, "numberMisscheduled": 1},
    ),
    "a taint that only asks": (
        lambda place, node: _taint(place, node, "PreferNoSchedule"),
        lambda place, node: _taint(place, node, None),
        2,
        {"desiredNumberScheduled": 2, "numberMisscheduled": 0},
    ),
    "a taint that stops pods": (
        lambda place, node: _taint(place, node, "NoExecute"),
        lambda place, node: _taint(place, node, None),
        1,
        {"desiredNumberScheduled": 1, "numberMisscheduled": 0},
    ),
    "another label": (
        lambda place, node: _labelled(place, node, "other"),
        lambda place, node: _labelled(place, node, place.namespace),
        1,
        {"desiredNumberScheduled": 1, "numberMisscheduled": 0},
    ),
}
for _title, (_do, _undo, _pods, _counts) in _CHANGES.items():

    async def _changed(
        place: Place,
        do: Callable[[Place, str], Any] = _do,
        undo: Callable[[Place, str], Any] = _undo,
        pods: int = _pods,
        counts: dict[str, int] = _counts,
    ) -> Any:
        stage = DaemonStage(place)
        async with _own_nodes(place, 2) as nodes:
            await stage.create(template=_on_own_nodes(place))
            await stage.ready(2)
            await do(place, nodes[0])
            await stage.shows(pods, **counts)
            during = await stage.outcome()
            await undo(place, nodes[0])
            await stage.ready(2)
            return [during, await stage.outcome()]

    case(f"a node of a DaemonSet gets {_title}, and loses it", DAEMON_NODE_CASES)(_changed)


@case("a DaemonSet runs a pod on a cordoned node, and replaces it there", DAEMON_NODE_CASES)
async def _(place: Place) -> Any:
    stage = DaemonStage(place)
    async with _own_nodes(place, 1) as nodes:
        await place.client.patch(NODES, nodes[0], {"spec": {"unschedulable": True}})
        await stage.create(template=_on_own_nodes(place))
        await stage.ready(1)
        await stage.change(**version(2))
        await stage.ready(1)
        return await stage.outcome()


@case("a DaemonSet follows nodes that come and go", DAEMON_NODE_CASES)
async def _(place: Place) -> Any:
    stage = DaemonStage(place)
    await stage.create(template=_on_own_nodes(place, **GATED))
    await stage.shows(0)
    none = await stage.outcome()
    async with _own_nodes(place, 1):
        await stage.shows(1, desiredNumberScheduled=1)
        one = await stage.outcome()
    # The real controller looks at nodes that are gone only when something else changes.
    await stage.change(minReadySeconds=1)
    await stage.shows(0, desiredNumberScheduled=0)
    return [none, one, await stage.outcome()]
