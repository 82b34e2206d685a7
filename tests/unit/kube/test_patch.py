# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from multikueue.api.resource import JOBS
from multikueue.kube.patch import apply_unless_same, merge_diff, patch_unless_same
from tests.support.stub_api import json_answer, stub_api


@pytest.mark.parametrize(
    ("old", "new", "want"),
    [
        pytest.param({"a": 1}, {"a": 1}, None, id="the same is nothing"),
        pytest.param({"a": 1}, {"a": 2}, {"a": 2}, id="a changed value"),
        pytest.param({"a": 1, "b": 2}, {"a": 1}, {"b": None}, id="a removed key is null"),
        pytest.param(
            {"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"a": {"c": 3}}, id="only the leaf that differs"
        ),
        pytest.param({"a": [1]}, {"a": [1, 2]}, {"a": [1, 2]}, id="a list is replaced whole"),
        pytest.param({}, {"a": {}}, {"a": {}}, id="an empty map is a value"),
    ],
)
def test_merge_diff(old: dict[str, Any], new: dict[str, Any], want: dict[str, Any] | None) -> None:
    assert merge_diff(old, new) == want


def owned(fields: dict[str, Any], **status: Any) -> dict[str, Any]:
    entry = {"manager": "kueue-admission", "operation": "Apply", "subresource": "status", "fieldsV1": fields}
    return {"metadata": {"name": "w", "namespace": "ns", "managedFields": [entry]}, "status": status}


WANTED = {"metadata": {"name": "w", "namespace": "ns"}, "status": {"clusterName": "one"}}


@pytest.mark.parametrize(
    ("current", "want_sent"),
    [
        pytest.param(owned({"f:status": {"f:clusterName": {}}}, clusterName="one", more=1), False, id="all is said"),
        pytest.param(owned({"f:status": {"f:clusterName": {}}}, clusterName="two"), True, id="a value differs"),
        pytest.param(
            owned({"f:status": {"f:clusterName": {}, "f:admission": {}}}, clusterName="one", admission={}),
            True,
            id="we own a field that we no longer list",
        ),
        pytest.param(
            owned(
                {"f:status": {"f:clusterName": {}, "f:conditions": {'k:{"type":"Admitted"}': {"f:status": {}}}}},
                clusterName="one",
                conditions=[{"type": "Admitted", "status": "True"}],
            ),
            True,
            id="we own an item of a list that we no longer list",
        ),
        pytest.param({"metadata": {"name": "w"}, "status": {"clusterName": "one"}}, True, id="we own nothing yet"),
        pytest.param(None, True, id="there is no object yet"),
    ],
)
async def test_an_apply_is_sent_only_when_it_changes_something(current: dict[str, Any] | None, want_sent: bool) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return json_answer({})

    async with stub_api(answer) as api, api.client() as client:
        sent = await apply_unless_same(
            client, JOBS, WANTED, current=current, manager="kueue-admission", subresource="status"
        )
        assert (sent is not None, len(api.seen)) == (want_sent, int(want_sent))


async def test_a_guarded_patch_carries_the_version_that_was_compared() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        return json_answer({})

    current = {"metadata": {"name": "j", "namespace": "ns", "resourceVersion": "7"}, "spec": {"suspend": True}}
    async with stub_api(answer) as api, api.client() as client:
        assert await patch_unless_same(client, JOBS, current, dict(current)) is None
        await patch_unless_same(client, JOBS, current, {**current, "spec": {"suspend": False}}, guarded=True)
        assert api.bodies == [b'{"spec":{"suspend":false},"metadata":{"resourceVersion":"7"}}']
