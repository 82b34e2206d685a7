# SPDX-License-Identifier: Apache-2.0
"""The audit log has every request, answered or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from devcluster.apiserver.http.audit import AuditFile
from tests.support.embedded import Caller, api_server, config_map

MAPS = "/api/v1/namespaces/default/configmaps"


async def test_every_request_is_logged_once() -> None:
    noted: list[dict[str, Any]] = []
    admin = Caller(api_server(audit=noted.append), headers={"user-agent": "test"})
    await admin.create(MAPS, config_map("a"))
    await admin.get(f"{MAPS}/a", pretty="true")
    await admin.get(MAPS)
    await admin.get(f"{MAPS}/none")
    await admin.merge(f"{MAPS}/a", {"data": {"x": "1"}})
    watch = admin.watch(MAPS)
    await admin.delete(f"{MAPS}/a")
    await admin.delete(MAPS)
    await admin.get("/version")
    watch.stop()
    await admin.api.close()
    assert [(event["verb"], event["responseStatus"]["code"]) for event in noted] == [
        ("create", 201),
        ("get", 200),
        ("list", 200),
        ("get", 404),
        ("patch", 200),
        ("watch", 200),
        ("delete", 200),
        ("deletecollection", 200),
        ("get", 200),
    ]
    read = noted[1]
    assert read["requestURI"] == f"{MAPS}/a?pretty=true"
    assert read["objectRef"] == {"resource": "configmaps", "namespace": "default", "name": "a", "apiVersion": "v1"}
    assert (read["user"]["username"], read["userAgent"]) == ("admin", "test")
    assert noted[5]["stage"] == "ResponseStarted"
    assert len({event["auditID"] for event in noted}) == len(noted)


async def test_a_refused_request_is_logged() -> None:
    noted: list[dict[str, Any]] = []
    admin = Caller(api_server(audit=noted.append), headers={"impersonate-user": "jane"})
    await admin.get(MAPS)
    await admin.api.close()
    assert [(event["user"]["username"], event["responseStatus"]["code"]) for event in noted] == [("jane", 403)]


async def test_a_file_has_a_line_for_each_request(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / "audit.log")
    admin = Caller(api_server(audit=file))
    await admin.get(MAPS)
    await admin.get(f"{MAPS}/a")
    await admin.api.close()
    file.close()
    lines = (tmp_path / "audit.log").read_text().splitlines()
    assert [json.loads(line)["responseStatus"]["code"] for line in lines] == [200, 404]
