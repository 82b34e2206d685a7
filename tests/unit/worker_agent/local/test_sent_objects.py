# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from multikueue.api.resource import SECRETS, Resource
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.dispatch.sending.sent_copies import CopyMarks, owner_reference
from multikueue.dispatch.sending.sent_objects import (
    SentReference,
    contents_of,
    mailbox_body,
    mailbox_name,
)
from multikueue.dispatch.worker.dependencies import Dependency
from multikueue.kube.errors import (
    AlreadyExists,
    ApiError,
    Cause,
    Conflict,
    Details,
    Forbidden,
    InternalError,
    Invalid,
    KubeError,
    NotFound,
    TooManyRequests,
    Unreachable,
)
from multikueue.kube.rest.client import KubeClient
from worker_agent.hub.client import MailboxView
from worker_agent.local.assignment_spec import AssignmentSpec
from worker_agent.local.dependencies.sent_objects import SentObjects
from worker_agent.local.jobs import RemoteJobKey

pytestmark = pytest.mark.anyio

JOB = RemoteJobKey("Job.batch", Key("team", "j"))
OTHER = RemoteJobKey("Job.batch", Key("team", "k"))
DB = Dependency("Secret", "db")
OWNER = owner_reference(api_version="batch/v1", kind="Job", name="j", uid="uid-j")
OTHER_OWNER = owner_reference(api_version="batch/v1", kind="Job", name="k", uid="uid-k")


def answer(error: type[ApiError], status: int, *causes: Cause) -> ApiError:
    return error(request="r", status=status, reason="", message="no", details=Details(causes=causes))


class Worker:
    """An API server with Secrets of one namespace; `failures` are raised for a verb instead of an answer."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.failures: dict[str, KubeError] = {}
        self.calls: Counter[str] = Counter()
        self._version = 0

    def put(self, body: dict[str, Any]) -> bytes:
        """Store it, unless it is the same; gives the answer of the API server."""
        before = self.objects.get(body["metadata"]["name"])
        if before != body:
            self._version += 1
            metadata = {"uid": f"u{self._version}", **body["metadata"], "resourceVersion": str(self._version)}
            self.objects[metadata["name"]] = {**body, "metadata": metadata}
        return orjson.dumps(self.objects[body["metadata"]["name"]])

    def edit(self, **data: str) -> None:
        """A user of the worker changes the Secret."""
        self.put({**self.objects["db"], "data": data})

    async def get(self, resource: Resource, name: str, *, namespace: str, metadata_only: bool) -> bytes:
        assert metadata_only, "contents on the worker are never read"
        self._called("get")
        if name not in self.objects:
            raise answer(NotFound, 404)
        return orjson.dumps({"metadata": self.objects[name]["metadata"]})

    async def create(self, resource: Resource, body: dict[str, Any], *, namespace: str) -> bytes:
        self._called("create")
        assert "uid" not in body["metadata"]
        if body["metadata"]["name"] in self.objects:
            raise answer(AlreadyExists, 409)
        return self.put(body)

    async def replace(self, resource: Resource, name: str, body: dict[str, Any], *, namespace: str) -> bytes:
        self._called("replace")
        stored = self.objects[name]["metadata"]
        assert body["metadata"]["uid"] == stored["uid"]
        if body["metadata"]["resourceVersion"] != stored["resourceVersion"]:
            raise answer(Conflict, 409)
        return self.put(body)

    async def delete(self, resource: Resource, name: str, *, namespace: str, uid: str, resource_version: str) -> bytes:
        self._called("delete")
        assert (uid, resource_version) == tuple(
            self.objects[name]["metadata"][field] for field in ("uid", "resourceVersion")
        )
        del self.objects[name]
        return b""

    def _called(self, verb: str) -> None:
        self.calls[verb] += 1
        if verb in self.failures:
            raise self.failures[verb]


class Box:
    """The mailbox."""

    def __init__(self) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        self.failure: KubeError | None = None

    def store(self, version: str, *, source: str = "team/db", **data: str) -> None:
        contents = contents_of({"kind": "Secret", "type": "Opaque", "data": data})
        body = mailbox_body(
            contents, source=Key.parse(source), needed=DB, cluster="east", version=version, namespace="mk-east"
        )
        self.stored[mailbox_name("team", DB)] = body

    async def sent_object(self, resource: Resource, name: str) -> dict[str, Any]:
        assert resource is SECRETS
        if self.failure is not None:
            raise self.failure
        if name not in self.stored:
            raise answer(NotFound, 404)
        return self.stored[name]


class Site:
    def __init__(self) -> None:
        self.worker, self.box, self.clock = Worker(), Box(), ManualClock()
        self.allowed = True
        self.jobs = {"uid-j", "uid-k"}
        self.restart()

    def restart(self) -> None:
        self.sent = SentObjects(
            cast(KubeClient, self.worker),
            cast(MailboxView, self.box),
            marks=CopyMarks(cluster="east", origin="multikueue"),
            may_send=lambda resource: self.allowed,
            is_job_kind=lambda owner: owner.get("kind") == "Job",
            is_remote_job=lambda owner, namespace, manager_uid: owner.get("uid") in self.jobs,
            clock=self.clock,
            random=Random(1),
        )

    async def bring(
        self,
        version: str = "v1",
        *,
        job: RemoteJobKey = JOB,
        owner: dict[str, Any] = OWNER,
        listed: bool = True,
        optional: bool = False,
    ) -> str:
        """Bring what is sent with the job up to date; gives why its pods cannot start."""
        references = (SentReference(DB, version, optional=optional),) if listed else ()
        desired = SimpleNamespace(sent=references, named=job, job=job.job, manager_uid="m")
        await self.sent.bring(cast(AssignmentSpec, desired), [owner])
        problem = self.sent.problem(job)
        return "" if problem is None else f"{problem.reason}: {problem.message}"

    async def again(self, version: str = "v1", *, times: int = 1) -> str:
        """The same once the pause is over."""
        shown = ""
        for _ in range(times):
            self.clock.advance(self.sent.retry_after(JOB) or 0.0)
            shown = await self.bring(version)
        return shown

    @property
    def data(self) -> object:
        return self.worker.objects.get("db", {}).get("data")

    @property
    def owners(self) -> list[str]:
        return [each["name"] for each in self.worker.objects["db"]["metadata"]["ownerReferences"]]


@pytest.fixture
def site() -> Site:
    made = Site()
    made.box.store("v1", password="one")
    return made


async def test_it_is_created_with_the_job_as_owner_and_not_written_again(site: Site) -> None:
    assert await site.bring() == ""
    assert site.data == {"password": "one"}
    assert site.owners == ["j"]
    for _ in range(10):
        await site.again()
    assert (site.worker.calls["create"], site.worker.calls["replace"]) == (1, 0)


async def test_it_is_not_asked_for_between_two_looks(site: Site) -> None:
    await site.bring()
    for _ in range(10):
        await site.bring()
    assert site.worker.calls["get"] == 1


async def test_a_change_on_the_hub_replaces_the_contents_at_once(site: Site) -> None:
    await site.bring()
    site.box.store("v2", key="two")
    assert await site.bring("v2") == ""
    assert site.data == {"key": "two"}
    assert site.owners == ["j"]


async def test_a_second_job_shares_it(site: Site) -> None:
    await site.bring()
    await site.bring(job=OTHER, owner=OTHER_OWNER)
    assert site.owners == ["j", "k"]
    assert site.worker.calls["create"] == 1


async def test_one_that_was_deleted_is_created_again(site: Site) -> None:
    await site.bring()
    site.worker.objects.clear()
    await site.again()
    assert site.data == {"password": "one"}


async def test_one_that_was_edited_gets_the_contents_of_the_hub_again(site: Site) -> None:
    await site.bring()
    site.worker.edit(password="theirs", more="x")
    await site.bring()
    assert site.data == {"password": "theirs", "more": "x"}, "the next look is not due"
    await site.again()
    assert site.data == {"password": "one"}
    assert site.owners == ["j"]
    for _ in range(5):
        await site.again()
    assert site.worker.calls["replace"] == 1


async def test_an_edit_while_no_agent_ran_is_found_and_what_is_as_it_was_sent_stays_the_same(site: Site) -> None:
    await site.bring()
    version = site.worker.objects["db"]["metadata"]["resourceVersion"]
    site.restart()
    for _ in range(3):
        await site.again()
    assert site.worker.objects["db"]["metadata"]["resourceVersion"] == version
    assert site.worker.calls["replace"] == 1, "it is compared once, by a write that changes nothing"
    site.worker.edit(password="theirs")
    site.restart()
    await site.again()
    assert site.data == {"password": "one"}


async def test_one_that_others_edit_again_and_again_is_written_less_and_less_often(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    await site.bring()
    started = site.clock.monotonic()
    for _ in range(10):
        site.worker.edit(password="theirs")
        await site.again()
        assert site.data == {"password": "one"}
    assert site.worker.calls["replace"] == 10
    assert site.clock.monotonic() - started > 1000
    assert len([each for each in caplog.records if "changed again by others" in each.message]) == 1
    await site.again()
    site.worker.edit(password="theirs")
    before = site.clock.monotonic()
    await site.again()
    assert site.clock.monotonic() - before < 60, "once it was left alone, it is restored as before"


async def test_one_that_is_deleted_again_and_again_is_created_less_and_less_often(site: Site) -> None:
    await site.bring()
    started = site.clock.monotonic()
    for _ in range(10):
        site.worker.objects.clear()
        await site.again()
    assert site.worker.calls["create"] == 11
    assert site.clock.monotonic() - started > 1000


async def test_a_restoration_that_fails_is_tried_again_and_does_not_stop_the_job(site: Site) -> None:
    await site.bring()
    site.worker.edit(password="theirs")
    for failure in (answer(Conflict, 409), answer(TooManyRequests, 429), answer(InternalError, 500), Unreachable("no")):
        site.worker.failures["replace"] = failure
        assert await site.again() == ""
        assert site.data == {"password": "theirs"}
    site.worker.failures.clear()
    await site.again()
    assert site.data == {"password": "one"}


async def test_one_whose_place_others_have_taken_is_theirs(site: Site) -> None:
    await site.bring()
    site.worker.objects.clear()
    site.worker.put({"metadata": {"name": "db"}, "data": {"a": "b"}})
    await site.again(times=3)
    assert site.data == {"a": "b"}
    assert site.worker.calls["replace"] == 0


async def test_jobs_that_share_it_look_once_and_a_lost_owner_is_no_edit(site: Site) -> None:
    await site.bring()
    await site.bring(job=OTHER, owner=OTHER_OWNER)
    await site.again()
    before = Counter(site.worker.calls)
    for _ in range(4):
        site.clock.advance(site.sent.retry_after(JOB) or 0.0)
        await site.bring()
        await site.bring(job=OTHER, owner=OTHER_OWNER)
    assert site.worker.calls - before == Counter(get=4)
    metadata = site.worker.objects["db"]["metadata"]
    site.worker.put({**site.worker.objects["db"], "metadata": {**metadata, "ownerReferences": [OWNER]}})
    site.sent.forget(OTHER)
    await site.again(times=2)
    assert site.owners == ["j"]
    assert site.data == {"password": "one"}


async def test_a_job_whose_list_is_older_than_the_contents_does_not_write_them_again_and_again(site: Site) -> None:
    await site.bring()
    site.box.store("v2", password="two")
    await site.bring("v2")
    for _ in range(10):
        await site.bring("v1", job=OTHER, owner=OTHER_OWNER)
        await site.bring("v2")
    assert site.worker.calls["replace"] == 2, "the change, and the second owner"
    assert site.worker.calls["get"] <= 4
    assert site.data == {"password": "two"}


async def test_an_object_of_others_is_never_written(site: Site) -> None:
    theirs = {"metadata": {"name": "db", "ownerReferences": [OWNER]}, "data": {"a": "b"}}
    site.worker.put(theirs)
    await site.bring()
    assert "there are objects of others" in await site.again(times=3)
    assert site.data == {"a": "b"}
    assert site.worker.calls.keys() == {"get"}


async def test_what_is_optional_is_sent_and_its_failure_is_no_reason_why_pods_cannot_start(site: Site) -> None:
    site.worker.put({"metadata": {"name": "db"}, "data": {"a": "b"}})
    for _ in range(4):
        site.clock.advance(site.sent.retry_after(JOB) or 0.0)
        assert await site.bring(optional=True) == ""
    assert site.data == {"a": "b"}
    site.worker.objects.clear()
    site.clock.advance(site.sent.retry_after(JOB) or 0.0)
    await site.bring(optional=True)
    assert site.data == {"password": "one"}


async def test_one_that_goes_with_a_former_job_is_waited_for(site: Site) -> None:
    await site.bring()
    site.jobs = {"uid-k"}
    shown = ""
    for _ in range(3):
        site.clock.advance(site.sent.retry_after(OTHER) or 0.0)
        shown = await site.bring(job=OTHER, owner=OTHER_OWNER)
    assert shown == (
        'DependencyNotSent: Secret "db" could not be sent: it is being removed with the last of the jobs that it was'
        " sent with"
    )
    assert site.owners == ["j"]
    site.worker.objects.clear()
    site.clock.advance(site.sent.retry_after(OTHER) or 0.0)
    assert await site.bring(job=OTHER, owner=OTHER_OWNER) == ""
    assert site.owners == ["k"]


FAILURES = [
    pytest.param(answer(TooManyRequests, 429), id="429"),
    pytest.param(answer(InternalError, 500), id="500"),
    pytest.param(answer(Conflict, 409), id="409"),
    pytest.param(answer(Forbidden, 403), id="403 of a quota"),
    pytest.param(answer(Invalid, 422), id="422 of a policy"),
    pytest.param(Unreachable("no answer"), id="no answer"),
]


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("verb", ["get", "create"])
async def test_a_server_that_fails_is_tried_again_and_its_failure_is_shown(
    site: Site, verb: str, failure: KubeError
) -> None:
    site.worker.failures[verb] = failure
    assert await site.bring() == "", "most failures pass by themselves"
    assert (await site.again()).startswith('DependencyNotSent: Secret "db" could not be sent: ')
    site.worker.failures.clear()
    assert await site.again() == ""
    assert site.data == {"password": "one"}


@pytest.mark.parametrize("failure", FAILURES)
async def test_an_update_that_fails_leaves_what_is_there(site: Site, failure: KubeError) -> None:
    await site.bring()
    site.box.store("v2", password="two")
    site.worker.failures["replace"] = failure
    assert await site.bring("v2") == ""
    assert await site.again("v2", times=3) == "", "the pods have the former contents"
    assert site.data == {"password": "one"}
    assert not site.worker.calls["delete"]
    site.worker.failures.clear()
    await site.again("v2")
    assert site.data == {"password": "two"}


@pytest.mark.parametrize("failure", [*FAILURES, pytest.param(answer(NotFound, 404), id="404")])
async def test_a_hub_that_fails_is_asked_again(site: Site, failure: KubeError) -> None:
    site.box.failure = failure
    await site.bring()
    assert "could not be sent" in await site.again()
    site.box.failure = None
    assert await site.again() == ""


async def test_what_cannot_be_changed_is_made_anew(site: Site) -> None:
    await site.bring()
    site.box.store("v2", password="two")
    immutable = Cause(reason="FieldValueInvalid", message='Invalid value: "x": field is immutable', field="type")
    site.worker.failures["replace"] = answer(Invalid, 422, immutable)
    await site.bring("v2")
    assert site.data == {"password": "two"}
    assert site.owners == ["j"]


async def test_what_the_mailbox_has_of_another_namespace_is_not_used(site: Site) -> None:
    site.box.store("v1", source="other/db", password="stolen")
    await site.bring()
    assert 'the mailbox has "other/db" instead of Secret "db"' in await site.again()
    assert site.data is None


async def test_without_the_rights_nothing_is_requested(site: Site) -> None:
    site.allowed = False
    await site.bring()
    assert "the agent may not write secrets on this cluster" in await site.again()
    assert not site.worker.calls


async def test_what_is_not_listed_any_more_stays_and_is_not_looked_at(site: Site) -> None:
    await site.bring()
    await site.bring(listed=False)
    assert site.sent.retry_after(JOB) is None
    assert site.data == {"password": "one"}


async def test_a_job_that_is_gone_is_forgotten(site: Site) -> None:
    site.allowed = False
    await site.bring()
    await site.again()
    site.sent.forget(JOB)
    assert site.sent.problem(JOB) is None
    assert site.sent.retry_after(JOB) is None
