# SPDX-License-Identifier: Apache-2.0
"""What the assignment of a running job keeps when it is written anew, while the feature gate of forwarding is off."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from manager.context import ManagerContext
from manager.dispatch.assignments import as_sent
from manager.dispatch.transport.mailbox_transport import MailboxTransport
from manager.dispatch.transport.push_transport import PushTransport
from multikueue.core.keys import Key
from multikueue.core.merge_patch import apply_merge_patch
from multikueue.jobs.framework.capabilities import ForwardingKind
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from multikueue.kube.errors import AlreadyExists, Details
from tests.unit.jobs.declared.builders import widget, widget_kind

Object = dict[str, Any]
FORWARDED = widget_kind(remote={"forwarded": ["$.spec.config", "$.spec.serve.routes"]})
WITHHELD = FORWARDED.without_forwarding()
WORKLOAD = {"namespace": "team", "name": "w", "uid": "u"}
KEY = Key("team", "w")


def body(manifest: Object, *, priority: int = 0, **fields: Any) -> Object:
    """An assignment of a widget that is to run."""
    job = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "manifest": manifest}
    spec = {"workload": WORKLOAD, "epoch": 1, "intent": "Run", "managerUID": "m", "job": job, "priority": priority}
    metadata = {"name": "w", "namespace": "mk-east", "labels": {}, "annotations": {}}
    return {"metadata": metadata, "spec": {**spec, **fields}}


SENT = body(widget(config="one", size=1))
CHANGED = body(widget(config="two", size=2, serve={"routes": ["a"], "port": 80}), priority=7)
KEPT = body(widget(config="one", size=2, serve={"port": 80}), priority=7)


def test_a_running_job_keeps_these_fields_and_no_others() -> None:
    assert as_sent(CHANGED, SENT, WITHHELD) == KEPT


def test_a_kind_that_forwards_them_and_one_without_such_fields_send_what_the_job_has() -> None:
    for kind in (FORWARDED, widget_kind(), widget_kind().without_forwarding(), BATCH_JOB, None):
        assert as_sent(CHANGED, SENT, kind) == CHANGED


@pytest.mark.parametrize(
    "former",
    [
        pytest.param(body(widget(config="one"), intent="Reserve"), id="what does not run yet"),
        pytest.param(body(widget(config="one"), epoch=0), id="the dispatch before"),
        pytest.param(body(widget(config="one"), workload={**WORKLOAD, "uid": "x"}), id="another Workload of the name"),
    ],
)
def test_nothing_is_kept_of(former: Object) -> None:
    assert as_sent(CHANGED, former, WITHHELD) == CHANGED


@pytest.mark.parametrize("hostile", [None, "x", 5, [], {"serve": "no object"}, {"config": {"deep": [None]}}])
def test_what_was_restored_from_a_job_of_any_shape_is_read(hostile: Any) -> None:
    kept = as_sent(CHANGED, body({**widget(), "spec": hostile}), WITHHELD)
    assert "routes" not in kept["spec"]["job"]["manifest"]["spec"]["serve"]
    without = {**SENT, "spec": {**SENT["spec"], "job": None}}
    assert "config" not in as_sent(CHANGED, without, WITHHELD)["spec"]["job"]["manifest"]["spec"]


def test_the_kind_is_still_one_of_forwarding_that_forwards_nothing() -> None:
    assert isinstance(WITHHELD, ForwardingKind)
    assert not WITHHELD.forwards()
    assert WITHHELD.forwarded_digest(widget(config="one")) == ""


class Mailbox:
    """An API server with one assignment."""

    def __init__(self) -> None:
        self.stored = {**SENT, "metadata": {**SENT["metadata"], "uid": "a", "resourceVersion": "1"}}

    async def create(self, resource: object, body: Object, *, namespace: str) -> bytes:
        raise AlreadyExists(request="r", status=409, reason="", message="", details=Details())

    async def get_object(self, resource: object, name: str, *, namespace: str) -> Object:
        return self.stored

    async def patch(self, resource: object, name: str, body: Any, *, namespace: str, kind: object) -> bytes:
        self.stored = apply_merge_patch(self.stored, body)
        return orjson.dumps(self.stored)


@pytest.mark.anyio
async def test_by_pull_the_assignment_is_written_with_the_fields_as_they_were_sent() -> None:
    mailbox = Mailbox()
    view = SimpleNamespace(subscribe=lambda take: None, on_write=lambda answer: None)
    context = SimpleNamespace(client=mailbox, caches=SimpleNamespace(view=lambda resource: view))
    transport = MailboxTransport(cast(ManagerContext, context), changed=lambda key: None)
    await transport.assign("east", KEY, CHANGED, kept=partial(as_sent, kind=WITHHELD))
    assert mailbox.stored["spec"] == KEPT["spec"]
    await transport.assign("east", KEY, CHANGED)
    assert mailbox.stored["spec"] == CHANGED["spec"]


@pytest.mark.anyio
async def test_by_push_the_assignment_is_written_with_the_fields_as_they_were_sent() -> None:
    transport = PushTransport(
        manager_uid="m", workload_uid=lambda key: "u", changed=lambda key: None, reported=lambda cluster: None
    )
    await transport.assign("east", KEY, SENT)
    await transport.assign("east", KEY, CHANGED, kept=partial(as_sent, kind=WITHHELD))
    found = transport.mailbox("east").get("w")
    assert found is not None
    assert found["spec"] == KEPT["spec"]
