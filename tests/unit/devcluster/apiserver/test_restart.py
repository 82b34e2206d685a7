# SPDX-License-Identifier: Apache-2.0
"""A restart on the same data, after a crash at any write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from devcluster.apiserver.storage.durable import SqliteJournal
from tests.support.embedded import Caller, api_server, config_map

MAPS = "/api/v1/namespaces/default/configmaps"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DEFINITION: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.example.test"},
    "spec": {
        "group": "example.test",
        "scope": "Cluster",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}


class Crash(Exception):
    """The process crashes here."""


class Dying(SqliteJournal):
    """Keeps some more objects, then crashes."""

    left = 1 << 30

    def put(self, collection: str, entry: object) -> None:
        if self.left == 0:
            raise Crash
        self.left -= 1
        super().put(collection, entry)  # type: ignore[arg-type]


async def test_a_new_default_of_stored_objects_survives_a_restart(tmp_path: Path) -> None:
    first = Caller(api_server(journal=SqliteJournal(tmp_path / "db")))
    await first.create(DEFINITIONS, DEFINITION)
    thing = {"apiVersion": "example.test/v1", "kind": "Thing", "metadata": {"name": "a"}}
    made = await first.create("/apis/example.test/v1/things", thing)
    schema = {"type": "object", "properties": {"color": {"type": "string", "default": "blue"}}}
    patch = {"spec": {"versions": [{**DEFINITION["spec"]["versions"][0], "schema": {"openAPIV3Schema": schema}}]}}
    await first.merge(f"{DEFINITIONS}/things.example.test", patch)
    found = (await first.get("/apis/example.test/v1/things/a")).body
    assert found == {**made.body, "color": "blue"}
    await first.api.close()

    second = Caller(api_server(journal=SqliteJournal(tmp_path / "db")))
    assert (await second.get("/apis/example.test/v1/things/a")).body == found
    await second.api.close()


async def test_a_restart_has_every_object(tmp_path: Path) -> None:
    first = Caller(api_server(journal=SqliteJournal(tmp_path / "db")))
    await first.create(DEFINITIONS, DEFINITION)
    thing = {"apiVersion": "example.test/v1", "kind": "Thing", "metadata": {"name": "a"}}
    await first.create("/apis/example.test/v1/things", thing)
    made = await first.create(MAPS, config_map("a", x="1"))
    await first.create(MAPS, config_map("b"))
    await first.delete(f"{MAPS}/b")
    last = first.api.context.store.version
    await first.api.close()

    second = Caller(api_server(journal=SqliteJournal(tmp_path / "db")))
    assert second.api.context.store.version == last
    assert (await second.get(f"{MAPS}/a")).body == made.body
    assert (await second.get(f"{MAPS}/b")).status == 404
    assert (await second.get("/apis/example.test/v1/things/a")).status == 200
    watch = second.watch(MAPS, resourceVersion=str(last))
    written = await second.merge(f"{MAPS}/a", {"data": {"x": "2"}})
    assert int(written.version) == last + 1
    assert await watch.said() == [("MODIFIED", "a")]
    watch.stop()
    old = await second.get(MAPS, watch="true", resourceVersion=made.version)
    assert old.body["object"]["reason"] == "Expired"
    await second.api.close()


@pytest.mark.parametrize("left", [0, 1, 3, 70], ids="a crash after {} writes of the first start is repaired".format)
async def test_a_crash_during_the_first_start_is_repaired(tmp_path: Path, left: int) -> None:
    journal = Dying(tmp_path / "db")
    journal.left = left
    with pytest.raises(Crash):
        api_server(journal=journal)
    journal.close()
    again = Caller(api_server(journal=SqliteJournal(tmp_path / "db")))
    whole = Caller(api_server())
    for path in ("/api/v1/namespaces", "/apis/rbac.authorization.k8s.io/v1/clusterroles"):
        found, wanted = await again.get(path), await whole.get(path)
        assert [item["metadata"]["name"] for item in found.body["items"]] == [
            item["metadata"]["name"] for item in wanted.body["items"]
        ]
    await again.api.close()
    await whole.api.close()


async def test_a_crash_between_a_definition_and_its_acceptance_is_repaired(tmp_path: Path) -> None:
    journal = Dying(tmp_path / "db")
    first = Caller(api_server(journal=journal))
    journal.left = 1
    with pytest.raises(Crash):
        await first.create(DEFINITIONS, DEFINITION)
    journal.close()
    again = Caller(api_server(journal=SqliteJournal(tmp_path / "db")))
    seen = await again.get(f"{DEFINITIONS}/things.example.test")
    assert [entry["type"] for entry in seen.body["status"]["conditions"]] == ["NamesAccepted", "Established"]
    assert (await again.get("/apis/example.test/v1/things")).status == 200
    await again.api.close()
