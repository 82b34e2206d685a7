# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from multikueue.api.resource import JOBS
from multikueue.kube.rest.patch import apply_unless_same
from tests.support.stub_api import json_answer, stub_api


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
