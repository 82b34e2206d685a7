# SPDX-License-Identifier: Apache-2.0
"""Mutating policies beside mutating webhooks: their order, and what runs again after whose change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Exchange, Side
from tests.conformance.policies.mutating import MAPS, Json, add, apply, begin, config_map, label, mutating, rule
from tests.conformance.webhooks import hookserver
from tests.conformance.webhooks.hookserver import MUTATING, HookServer, hook, patch, serving

pytestmark = pytest.mark.binaries

Scene = Callable[[HookServer, Side], Awaitable[None]]
SCENES: Final[dict[str, Scene]] = {}
NEEDED: Final[Json] = {"reinvocationPolicy": "IfNeeded"}
COUNTED: Final = apply(
    "Object{metadata: Object.metadata{annotations: "
    "{'count': object.metadata.?annotations[?'count'].orValue('') + 'x'}}}"
)


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HookServer]:
    """A running webhook."""
    with serving(tmp_path_factory.mktemp("webhooks")) as server:
        yield server


def scene(name: str) -> Callable[[Scene], Scene]:
    """A case that needs the webhook."""

    def keep(play: Scene) -> Scene:
        SCENES[name] = play
        return play

    return keep


def data(key: str, value: str) -> dict[str, Any]:
    return {"op": "add", "path": f"/data/{key}", "value": value}


async def install(server: HookServer, side: Side, *policies: Json, hook_policy: str = "Never") -> None:
    """Put policies and one webhook in force."""
    for number, spec in enumerate(policies):
        await add(side, spec, suffix=f".{number}")
    await begin(side)
    rules = rule("CREATE", "UPDATE")
    one = hook(server, side, "hook", rules, reinvocationPolicy=hook_policy)
    await hookserver.install(server, side, MUTATING, one)
    server.called(side)


@scene("webhooks see what policies have changed")
async def _(server: HookServer, side: Side) -> None:
    server.react(side, lambda _name, _request: patch(data("hook", "1")))
    await install(server, side, mutating(label("seen", "string(has(object.data.hook))")))
    await side.post(MAPS, config_map())
    seen = [request["object"]["metadata"]["labels"] for _, request in server.called(side)]
    side.note("seen", seen)
    await side.patch("merge", f"{MAPS}/a", {"data": {"l": "w"}})


@scene("a policy runs again after the change of a webhook")
async def _(server: HookServer, side: Side) -> None:
    server.react(side, lambda _name, _request: patch(data("hook", "1")))
    again = mutating(label("again", "string(has(object.data.hook))"), **NEEDED)
    never = mutating(label("never", "string(has(object.data.hook))"))
    await install(server, side, again, never, mutating(COUNTED))
    await side.post(MAPS, config_map())
    side.note("calls", [name for name, _ in server.called(side)])


@scene("a webhook is called again after the second run of a policy")
async def _(server: HookServer, side: Side) -> None:
    server.react(side, lambda _name, _request: patch(data("hook", "1")))
    await install(server, side, mutating(COUNTED, **NEEDED), hook_policy="IfNeeded")
    await side.post(MAPS, config_map())
    side.note("calls", [request["object"]["metadata"]["annotations"] for _, request in server.called(side)])


@scene("a webhook that changes nothing lets no policy run again, but a policy does")
async def _(server: HookServer, side: Side) -> None:
    server.react(side, lambda _name, _request: hookserver.allow())
    idle = mutating(label("idle", "'yes'"), matchConditions=[{"name": "n", "expression": "false"}], **NEEDED)
    await install(server, side, idle, hook_policy="IfNeeded")
    await side.post(MAPS, config_map())
    side.note("calls", [name for name, _ in server.called(side)])


@scene("mutating webhooks see a new object without the name and the uid that it gets")
async def _(server: HookServer, side: Side) -> None:
    server.react(side, lambda _name, _request: hookserver.allow())
    await install(server, side)
    await side.post(MAPS, config_map())
    generated = config_map()
    generated["metadata"] = {"generateName": "generated-"}
    await side.post(MAPS, generated)
    requests = [request for _, request in server.called(side)]
    side.note("metadata", [sorted(request["object"]["metadata"]) for request in requests])
    side.note("names", [request.get("name") for request in requests])


@pytest.mark.parametrize("name", SCENES)
async def test_policies_and_webhooks_change_writes_as_on_a_real_server(
    judge: Judge, hooks: HookServer, name: str
) -> None:
    """In the same order, with the same effect."""

    async def play(side: Side) -> None:
        try:
            await SCENES[name](hooks, side)
        finally:
            await side.server.send(Exchange("DELETE", f"{MUTATING}/{side.id}"))

    await judge(Case("policies-and-webhooks", name, play))
