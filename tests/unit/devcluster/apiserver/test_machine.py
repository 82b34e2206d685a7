# SPDX-License-Identifier: Apache-2.0
"""Random writes by several clients against a model: reads are linear, watches complete and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from devcluster.apiserver.http.faults import Fault
from devcluster.apiserver.http.requests import Answer
from tests.support.embedded import Caller, Seen, Watching, api_server, config_map

MAPS = "/api/v1/namespaces/default/configmaps"
NAMES = st.sampled_from(["a", "b", "c", "d"])
COLOURS = st.sampled_from(["red", "blue"])
CLIENTS = st.sampled_from(["ann", "bob", "cem"])

State = tuple[str, int]
"""Colour and number: the content of an object."""


@dataclass
class Follower:
    """A watch, and its expected events, computed from the model's history."""

    watch: Watching
    colour: str
    seen: list[tuple[str, str, State, int]] = field(default_factory=list)
    wanted: list[tuple[str, str, State, int]] = field(default_factory=list)

    def expect(self, name: str, old: State | None, new: State | None, version: int) -> None:
        """A change was made."""
        was = old is not None and self.colour in ("", old[0])
        now = new is not None and self.colour in ("", new[0])
        if now and new is not None:
            self.wanted.append(("MODIFIED" if was else "ADDED", name, new, version))
        elif was and old is not None:
            self.wanted.append(("DELETED", name, old, version))


def state_of(value: dict[str, Any]) -> State:
    return value["metadata"]["labels"]["colour"], int(value["data"]["n"])


def version_of(value: dict[str, Any]) -> int:
    return int(value["metadata"]["resourceVersion"])


class Cluster(RuleBasedStateMachine):
    """Writes, reads and watches of one resource."""

    watches = Bundle("watches")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.api = api_server()
        self.clients = {
            name: Caller(self.api, headers={"impersonate-user": name, "impersonate-group": "system:masters"})
            for name in ("ann", "bob", "cem")
        }
        self.model: dict[str, tuple[State, int]] = {}
        self.history: list[tuple[str, State | None, State | None, int]] = []
        self.newest = self.oldest = 0
        self.followers: list[Follower] = []
        self.count = 0

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def body(self, name: str, colour: str) -> dict[str, Any]:
        self.count += 1
        return config_map(name, labels={"colour": colour}, n=str(self.count))

    def changed(self, name: str, new: State | None, version: int) -> None:
        """Take an acknowledged change into the model."""
        assert version > self.newest, "versions grow"
        old = self.model[name][0] if name in self.model else None
        self.newest = version
        self.history.append((name, old, new, version))
        if new is None:
            del self.model[name]
        else:
            self.model[name] = (new, version)
        for follower in self.followers:
            follower.expect(name, old, new, version)

    @initialize()
    def begin(self) -> None:
        self.newest = self.oldest = self.api.context.store.version

    # writes

    @rule(client=CLIENTS, name=NAMES, colour=COLOURS)
    def create(self, client: str, name: str, colour: str) -> None:
        seen = self.run(self.clients[client].create(MAPS, self.body(name, colour)))
        if name in self.model:
            assert (seen.status, seen.body["reason"]) == (409, "AlreadyExists")
        else:
            assert seen.status == 201
            self.changed(name, state_of(seen.body), version_of(seen.body))

    @rule(client=CLIENTS, name=NAMES, colour=COLOURS, age=st.integers(0, 2))
    def replace(self, client: str, name: str, colour: str, age: int) -> None:
        body = self.body(name, colour)
        current = self.model[name][1] if name in self.model else 1
        body["metadata"]["resourceVersion"] = str(max(1, current - age))
        seen = self.run(self.clients[client].ask("PUT", f"{MAPS}/{name}", body))
        if name not in self.model:
            assert seen.status in (404, 409)
        elif age:
            assert (seen.status, seen.body["reason"]) == (409, "Conflict")
        else:
            assert seen.status == 200
            self.changed(name, state_of(seen.body), version_of(seen.body))

    @rule(client=CLIENTS, name=NAMES, colour=COLOURS)
    def patch(self, client: str, name: str, colour: str) -> None:
        body = self.body(name, colour)
        change = {"metadata": {"labels": body["metadata"]["labels"]}, "data": body["data"]}
        seen = self.run(self.clients[client].merge(f"{MAPS}/{name}", change))
        if name not in self.model:
            assert seen.status == 404
        else:
            assert seen.status == 200
            self.changed(name, state_of(seen.body), version_of(seen.body))

    @rule(client=CLIENTS, name=NAMES)
    def change_nothing(self, client: str, name: str) -> None:
        seen = self.run(self.clients[client].merge(f"{MAPS}/{name}", {"metadata": {"annotations": None}}))
        if name in self.model:
            assert version_of(seen.body) == self.model[name][1]

    @rule(client=CLIENTS, name=NAMES)
    def delete(self, client: str, name: str) -> None:
        seen = self.run(self.clients[client].delete(f"{MAPS}/{name}"))
        assert seen.status == (200 if name in self.model else 404)
        if name in self.model:
            self.changed(name, None, self.api.context.store.version)

    @rule(name=NAMES, colours=st.lists(COLOURS, min_size=2, max_size=4))
    def race(self, name: str, colours: list[str]) -> None:
        """Several clients replace the same version at once: one wins."""
        if name not in self.model:
            return
        base = self.model[name][1]
        bodies = [self.body(name, colour) for colour in colours]
        for body in bodies:
            body["metadata"]["resourceVersion"] = str(base)

        async def together() -> list[Seen]:
            self.api.faults.rules = [Fault(hang=True, method="PUT")]
            asking = [
                asyncio.create_task(self.clients[client].ask("PUT", f"{MAPS}/{name}", body))
                for client, body in zip(("ann", "bob", "cem", "ann"), bodies, strict=False)
            ]
            await asyncio.sleep(0)
            self.api.faults.rules = []
            return await asyncio.gather(*asking)

        answers = self.run(together())
        assert sorted(seen.status for seen in answers) == [200] + [409] * (len(answers) - 1)
        (won,) = (seen for seen in answers if seen.status == 200)
        self.changed(name, state_of(won.body), version_of(won.body))

    # reads

    @rule(client=CLIENTS, name=NAMES)
    def get(self, client: str, name: str) -> None:
        seen = self.run(self.clients[client].get(f"{MAPS}/{name}"))
        if name in self.model:
            assert (state_of(seen.body), version_of(seen.body)) == self.model[name]
        else:
            assert seen.status == 404

    @rule(client=CLIENTS, colour=st.sampled_from(["", "red", "blue"]))
    def list_now(self, client: str, colour: str) -> None:
        query = {"labelSelector": f"colour={colour}"} if colour else {}
        seen = self.run(self.clients[client].get(MAPS, **query))
        assert self.told(seen) == {k: v for k, v in self.model.items() if colour in ("", v[0][0])}
        assert version_of(seen.body) == self.newest

    @rule(client=CLIENTS, back=st.integers(0, 12))
    def list_then(self, client: str, back: int) -> None:
        at = max(1, self.newest - back)
        seen = self.run(self.clients[client].get(MAPS, resourceVersion=at, resourceVersionMatch="Exact"))
        if at < self.oldest:
            assert (seen.status, seen.body["reason"]) == (410, "Expired")
        else:
            assert self.told(seen) == self.state_at(at)

    @rule(client=CLIENTS, limit=st.integers(1, 3), name=NAMES, colour=COLOURS)
    def list_pages(self, client: str, limit: int, name: str, colour: str) -> None:
        """A write between the pages is not seen in them."""
        at, wanted = self.newest, dict(self.model)
        found: dict[str, tuple[State, int]] = {}
        token = ""
        while True:
            query = {"continue": token} if token else {}
            seen = self.run(self.clients[client].get(MAPS, limit=limit, **query))
            found |= self.told(seen)
            assert version_of(seen.body) == at
            token = seen.body["metadata"].get("continue", "")
            if not token:
                break
            self.patch(client, name, colour)
        assert found == wanted

    # watches

    @rule(target=watches, client=CLIENTS, colour=st.sampled_from(["", "red", "blue"]), back=st.integers(0, 12))
    def watch(self, client: str, colour: str, back: int) -> Any:
        at = max(1, self.newest - back)
        query = {"labelSelector": f"colour={colour}"} if colour else {}
        if at < self.oldest:

            async def refused() -> Any:
                return self.clients[client].begin("GET", MAPS, watch="true", resourceVersion=at, **query)

            answer = self.run(refused())
            assert isinstance(answer, Answer)
            assert b'"reason":"Expired"' in answer.body
            return multiple()

        async def begin() -> Watching:
            return self.clients[client].watch(MAPS, resourceVersion=at, **query)

        follower = Follower(self.run(begin()), colour)
        for name, old, new, version in self.history:
            if version > at:
                follower.expect(name, old, new, version)
        self.followers.append(follower)
        return follower

    @rule(follower=consumes(watches))
    def stop(self, follower: Follower) -> None:
        follower.watch.stop()
        if follower in self.followers:
            self.followers.remove(follower)

    @rule()
    def compact(self) -> None:
        self.run(self.drain())

        async def compact() -> None:
            self.api.compact()

        self.run(compact())
        self.oldest = self.newest
        for follower in self.followers:
            (last,) = self.run(follower.watch.events())
            assert (last["type"], last["object"]["code"]) == ("ERROR", 410)
            assert follower.watch.closed
        self.followers.clear()

    @invariant()
    def watches_say_every_change_once_and_in_order(self) -> None:
        self.run(self.drain())
        for follower in self.followers:
            assert follower.seen == follower.wanted

    async def drain(self) -> None:
        for follower in self.followers:
            follower.seen += [
                (
                    event["type"],
                    event["object"]["metadata"]["name"],
                    state_of(event["object"]),
                    version_of(event["object"]),
                )
                for event in await follower.watch.events()
            ]

    # the model

    def state_at(self, version: int) -> dict[str, tuple[State, int]]:
        found: dict[str, tuple[State, int]] = {}
        for name, _, new, at in self.history:
            if at <= version:
                found.pop(name, None)
                if new is not None:
                    found[name] = (new, at)
        return found

    @staticmethod
    def told(seen: Seen) -> dict[str, tuple[State, int]]:
        assert seen.status == 200, seen.body
        names = [item["metadata"]["name"] for item in seen.body["items"]]
        assert names == sorted(names)
        return {item["metadata"]["name"]: (state_of(item), version_of(item)) for item in seen.body["items"]}

    def teardown(self) -> None:
        self.run(self.api.close())
        self.run(self.loop.shutdown_asyncgens())
        self.loop.close()


TestCluster = Cluster.TestCase
TestCluster.settings = settings(
    max_examples=50, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck), database=None
)
