# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from manager.context import ManagerContext
from manager.dispatch.transport.mailbox_transport import Transport
from manager.dispatch.transport.object_sending import ObjectSending
from multikueue.api.constants import SEND_OBJECTS_ANNOTATION, SENT_VERSION_ANNOTATION
from multikueue.api.resource import MULTIKUEUE_CLUSTERS, Resource
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.kube.cache.store import read_row
from multikueue.kube.errors import (
    ApiError,
    Details,
    Forbidden,
    InternalError,
    KubeError,
    NotFound,
    TooManyRequests,
    Unreachable,
)

pytestmark = pytest.mark.anyio

Object = dict[str, Any]
KEY = Key("team", "w")
FAILURES = [
    pytest.param(TooManyRequests, 429, id="429"),
    pytest.param(InternalError, 500, id="500"),
    pytest.param(None, 0, id="no answer"),
]


def failure(kind: type[ApiError] | None, status: int) -> KubeError:
    if kind is None:
        return Unreachable("no answer")
    return kind(request="r", status=status, reason="", message="no", details=Details())


class Mailboxes:
    """A transport that remembers what is stored and listed, by cluster."""

    def __init__(self) -> None:
        self.stored: dict[str, dict[str, Object]] = {}
        self.listed: dict[tuple[str, Key], list[Object]] = {}
        self.writes: list[str] = []
        self.failure: KubeError | None = None

    def workloads(self, cluster: str | None = None) -> list[Key]:
        return [key for name, key in self.listed if cluster in (None, name)]

    async def set_sent_objects(self, cluster: str, workload: Key, entries: list[Object]) -> None:
        self._write(f"list {cluster}")
        self.listed[cluster, workload] = entries

    async def put_sent_object(self, cluster: str, obj: Object) -> None:
        self._write(f"store {cluster}")
        self.stored.setdefault(cluster, {})[obj["metadata"]["name"]] = obj

    async def sent_versions(self, cluster: str) -> dict[str, str]:
        found = self.stored.get(cluster, {})
        return {name: obj["metadata"]["annotations"][SENT_VERSION_ANNOTATION] for name, obj in found.items()}

    async def drop_sent_object(self, cluster: str, name: str) -> None:
        self._write(f"drop {cluster}")
        del self.stored[cluster][name]

    def _write(self, what: str) -> None:
        self.writes.append(what)
        if self.failure is not None:
            raise self.failure


class Hub:
    """A hub with objects of one namespace, and clusters that objects may be sent to."""

    def __init__(self, *clusters: str) -> None:
        self.objects: dict[tuple[str, str], Object] = {}
        self.failure: KubeError | None = None
        self.reads = 0
        self.clock = ManualClock()
        self.mailboxes = Mailboxes()
        self.annotations = dict.fromkeys(clusters, "ConfigMap,Secret")
        self.kinds = ["ConfigMap", "Secret"]
        self.workload: Object | None = {}
        self.needs("db")
        self.sending = self.restarted()

    def restarted(self) -> ObjectSending:
        context = SimpleNamespace(
            client=self,
            clock=self.clock,
            caches=SimpleNamespace(view=self.view),
            seals=SimpleNamespace(key=b"key"),
        )
        return ObjectSending(
            cast(ManagerContext, context),
            cast(Transport, self.mailboxes),
            report=lambda cluster: {"sentKinds": self.kinds},
        )

    def needs(self, *secrets: str, optional: bool = False) -> None:
        volumes = [{"secret": {"secretName": name, "optional": optional}} for name in secrets]
        template = {"spec": {"containers": [], "volumes": volumes}}
        metadata = {"name": KEY.name, "namespace": KEY.namespace, "uid": "u", "resourceVersion": "1", "generation": 1}
        self.workload = {"metadata": metadata, "spec": {"podSets": [{"name": "main", "template": template}]}}

    def has(self, name: str, value: str, **fields: Any) -> None:
        self.objects["Secret", name] = {"type": "Opaque", "metadata": {"name": name}, "data": {"a": value}, **fields}

    def view(self, resource: Resource) -> Any:
        if resource is MULTIKUEUE_CLUSTERS:
            found = {
                Key("", name): {"metadata": {"name": name, "annotations": {SEND_OBJECTS_ANNOTATION: text}}}
                for name, text in self.annotations.items()
            }
            return SimpleNamespace(object=found.get, keys=lambda: list(found))
        row = None if self.workload is None else read_row(orjson.dumps(self.workload))
        return SimpleNamespace(get=lambda key: row)

    async def get_object(self, resource: Resource, name: str, *, namespace: str) -> Object:
        assert namespace == KEY.namespace
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        if (resource.kind, name) not in self.objects:
            raise failure(NotFound, 404)
        return self.objects[resource.kind, name]

    async def dispatch(self, cluster: str) -> list[Object]:
        """Assign; gives what the assignment lists."""
        assert self.workload is not None
        body = await self.sending.completed(cluster, KEY, self.workload, {"spec": {"epoch": 1}})
        listed: list[Object] = body["spec"].get("sentObjects") or []
        self.mailboxes.listed[cluster, KEY] = listed
        self.sending.written(cluster, KEY)
        return listed

    def contents(self, cluster: str) -> list[Object]:
        return [obj["data"] for obj in self.mailboxes.stored.get(cluster, {}).values()]


async def test_contents_are_stored_before_the_assignment_lists_them() -> None:
    hub = Hub("east")
    hub.has("db", "one")
    (listed,) = await hub.dispatch("east")
    assert (listed["kind"], listed["name"]) == ("Secret", "db")
    assert listed["version"]
    assert hub.contents("east") == [{"a": "one"}]


async def test_nothing_is_read_or_stored_for_a_cluster_where_it_is_not_allowed() -> None:
    hub = Hub("east")
    hub.has("db", "one")
    assert await hub.dispatch("west") == []
    await hub.sending.refresh()
    assert hub.reads == 0
    assert hub.mailboxes.writes == []


async def test_contents_that_are_there_are_not_stored_again() -> None:
    hub = Hub("east")
    hub.has("db", "one")
    for _ in range(3):
        await hub.dispatch("east")
        await hub.sending.refresh()
    assert hub.mailboxes.writes == ["store east"]


async def test_a_change_is_stored_and_listed_in_the_next_round_for_each_cluster() -> None:
    hub = Hub("east", "west")
    hub.has("db", "one")
    (before,) = await hub.dispatch("east")
    await hub.dispatch("west")
    hub.has("db", "two")
    await hub.sending.refresh()
    for cluster in ("east", "west"):
        assert hub.contents(cluster) == [{"a": "two"}]
        assert hub.mailboxes.listed[cluster, KEY][0]["version"] != before["version"]


async def test_what_no_assignment_lists_is_removed_in_the_next_round() -> None:
    hub = Hub("east")
    hub.has("db", "one")
    await hub.dispatch("east")
    hub.mailboxes.listed.clear()
    await hub.sending.refresh()
    assert hub.contents("east") == []


async def test_an_assignment_that_is_being_written_keeps_its_contents() -> None:
    hub = Hub("east")
    hub.has("db", "one")
    assert hub.workload is not None
    await hub.sending.completed("east", KEY, hub.workload, {"spec": {}})
    await hub.sending.refresh()
    assert hub.contents("east") == [{"a": "one"}]
    hub.clock.advance(120)  # it was not written
    await hub.sending.refresh()
    assert hub.contents("east") == []


async def test_a_cluster_where_it_is_not_allowed_any_more_keeps_no_contents() -> None:
    hub = Hub("east")
    hub.has("db", "one")
    await hub.dispatch("east")
    del hub.annotations["east"]
    await hub.sending.refresh()
    assert hub.contents("east") == []


async def test_an_object_that_is_deleted_on_the_hub_stays_as_it_was_sent() -> None:
    hub = Hub("east")
    hub.has("db", "one")
    listed = await hub.dispatch("east")
    hub.objects.clear()
    await hub.sending.refresh()
    assert hub.mailboxes.listed["east", KEY] == listed
    assert hub.contents("east") == [{"a": "one"}]


async def test_an_object_that_is_created_later_is_sent_then() -> None:
    hub = Hub("east")
    (listed,) = await hub.dispatch("east")
    assert listed["problem"] == "there is none on the hub"
    hub.has("db", "one")
    await hub.sending.refresh()
    assert hub.mailboxes.listed["east", KEY][0]["version"]
    assert hub.contents("east") == [{"a": "one"}]


async def test_what_is_optional_is_sent_as_soon_as_the_hub_has_it_and_not_listed_before() -> None:
    hub = Hub("east")
    hub.needs("db", optional=True)
    assert await hub.dispatch("east") == []
    await hub.sending.refresh()
    assert hub.mailboxes.writes == [], "an object that is not there costs no write"
    hub.has("db", "one")
    await hub.sending.refresh()
    assert hub.mailboxes.listed["east", KEY][0]["version"]
    assert hub.contents("east") == [{"a": "one"}]
    hub.objects.clear()
    await hub.sending.refresh()
    assert hub.contents("east") == [{"a": "one"}], "what runs keeps what it has"


async def test_an_optional_object_that_may_not_be_read_does_not_keep_the_job_from_the_cluster() -> None:
    hub = Hub("east")
    hub.needs("db", optional=True)
    hub.failure = failure(Forbidden, 403)
    assert await hub.dispatch("east") == []


async def test_a_restarted_manager_continues() -> None:
    hub = Hub("east")
    hub.has("db", "one")
    listed = await hub.dispatch("east")
    hub.sending = hub.restarted()
    await hub.sending.refresh()
    assert hub.mailboxes.listed["east", KEY] == listed
    hub.has("db", "two")
    await hub.sending.refresh()
    assert hub.contents("east") == [{"a": "two"}]


async def test_tokens_and_what_is_too_large_are_never_stored() -> None:
    hub = Hub("east")
    hub.needs("token", "huge", "small", *(f"part-{n}" for n in range(4)))
    hub.has("token", "t", type="kubernetes.io/service-account-token")
    hub.has("huge", "x" * 1_100_000)
    hub.has("small", "s")
    for n in range(4):
        hub.has(f"part-{n}", "y" * 400_000)
    listed = {each["name"]: each.get("problem", "") for each in await hub.dispatch("east")}
    assert "never sent" in listed["token"]
    assert "at most 1048576 are sent with one job" in listed["huge"]
    assert [name for name, problem in listed.items() if not problem] == ["small", "part-0", "part-1"]
    await hub.sending.refresh()
    assert len(hub.contents("east")) == 3


async def test_missing_rights_of_the_manager_are_a_reason_and_nothing_else() -> None:
    hub = Hub("east")
    hub.has("db", "one")
    hub.failure = failure(Forbidden, 403)
    (listed,) = await hub.dispatch("east")
    assert listed["problem"].startswith("the manager may not read Secrets in this namespace of the hub")
    hub.failure, hub.mailboxes.failure = None, failure(Forbidden, 403)
    (listed,) = await hub.dispatch("east")
    assert listed["problem"].startswith("the manager may not write Secrets in the mailbox of the cluster")


async def test_an_agent_without_the_rights_gets_no_contents() -> None:
    hub = Hub("east")
    hub.has("db", "one")
    hub.kinds = []
    (listed,) = await hub.dispatch("east")
    assert listed["problem"].startswith("the agent of the cluster may not write Secrets there")
    assert hub.mailboxes.writes == []
    hub.kinds = ["Secret"]
    await hub.sending.refresh()
    assert hub.contents("east") == [{"a": "one"}]


@pytest.mark.parametrize(("kind", "status"), FAILURES)
async def test_a_server_that_fails_at_a_dispatch_has_it_repeated(kind: type[ApiError] | None, status: int) -> None:
    hub = Hub("east")
    hub.has("db", "one")
    hub.failure = failure(kind, status)
    with pytest.raises(KubeError):
        await hub.dispatch("east")
    hub.failure, hub.mailboxes.failure = None, failure(kind, status)
    with pytest.raises(KubeError):
        await hub.dispatch("east")
    hub.mailboxes.failure = None
    await hub.dispatch("east")
    assert hub.contents("east") == [{"a": "one"}]


@pytest.mark.parametrize(("kind", "status"), FAILURES)
async def test_a_server_that_fails_in_a_round_changes_nothing_of_what_was_sent(
    kind: type[ApiError] | None, status: int
) -> None:
    hub = Hub("east")
    hub.has("db", "one")
    listed = await hub.dispatch("east")
    hub.has("db", "two")
    hub.failure = failure(kind, status)
    await hub.sending.refresh()
    assert hub.mailboxes.listed["east", KEY] == listed
    hub.failure, hub.mailboxes.failure = None, failure(kind, status)
    await hub.sending.refresh()
    assert hub.mailboxes.listed["east", KEY] == listed
    hub.mailboxes.failure = None
    await hub.sending.refresh()
    assert hub.contents("east") == [{"a": "two"}]
    assert hub.mailboxes.listed["east", KEY] != listed
