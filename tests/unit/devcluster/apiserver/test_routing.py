# SPDX-License-Identifier: Apache-2.0
"""Which request is answered with which status."""

from __future__ import annotations

import pytest

from tests.support.embedded import Caller, config_map

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        pytest.param("GET", "/nowhere", 404, None, id="an unknown path is not found"),
        pytest.param("GET", "/apis/none.example/v1", 404, None, id="an unknown group is not found"),
        pytest.param(
            "GET", "/apis/none.example/v1/things", 404, None, id="a resource of an unknown group is not found"
        ),
        pytest.param("GET", "/api/v1/things", 404, "NotFound", id="an unknown resource is not found"),
        pytest.param("GET", f"{MAPS}/none", 404, "NotFound", id="an unknown object is not found"),
        pytest.param("GET", f"{MAPS}/none/status", 404, "NotFound", id="an unknown subresource is not found"),
        pytest.param("DELETE", f"{MAPS}/none", 404, "NotFound", id="deleting an unknown object is not found"),
        pytest.param("PUT", MAPS, 405, "MethodNotAllowed", id="a collection cannot be replaced"),
        pytest.param("PATCH", MAPS, 405, "MethodNotAllowed", id="a collection cannot be patched"),
        pytest.param("POST", f"{MAPS}/name", 405, "MethodNotAllowed", id="an object cannot be posted to"),
        pytest.param("POST", "/api/v1/configmaps", 405, "MethodNotAllowed", id="a namespaced object needs a namespace"),
        pytest.param("POST", MAPS, 400, "BadRequest", id="a create without an object is a bad request"),
        pytest.param("GET", "/healthz", 200, None, id="the server is healthy"),
        pytest.param("GET", "/livez/ping", 200, None, id="one check can be asked for"),
        pytest.param("GET", "/readyz/none", 404, None, id="a check that does not exist is not found"),
        pytest.param("GET", "/version", 200, None, id="the server tells its version"),
        pytest.param("GET", "/", 200, None, id="the root lists paths"),
        pytest.param("GET", "/api", 200, None, id="the legacy group has versions"),
        pytest.param("GET", "/apis", 200, None, id="the groups are listed"),
        pytest.param("GET", "/apis/batch", 200, None, id="a group is described"),
        pytest.param("GET", "/apis/batch/v1", 200, None, id="the resources of a version are listed"),
        pytest.param("GET", "/healthz/", 404, None, id="health has no slash at its end"),
        pytest.param("GET", "/openapi/v2/", 404, None, id="a document has no slash at its end"),
        pytest.param("GET", "/readyz/etcd", 200, None, id="the check of the storage has its usual name"),
        pytest.param("GET", "/api/v1//namespaces", 404, "NotFound", id="an empty segment names no resource"),
        pytest.param("GET", "/openapi/v3", 200, None, id="the documents are indexed"),
    ],
)
async def test_a_request_is_answered_with_its_status(
    admin: Caller, method: str, path: str, status: int, reason: str | None
) -> None:
    seen = await admin.ask(method, path)
    assert seen.status == status, seen.body
    if reason is not None:
        assert (seen.body["kind"], seen.body["code"], seen.body["reason"]) == ("Status", status, reason)


@pytest.mark.parametrize("path", ["/api", "/apis", "/api/v1", "/apis/batch", "/apis/batch/v1", "/version", MAPS])
async def test_a_slash_at_the_end_changes_nothing(admin: Caller, path: str) -> None:
    plain, slashed = await admin.get(path), await admin.get(f"{path}/")
    assert (slashed.status, slashed.body) == (plain.status, plain.body)
    assert plain.status == 200


async def test_every_verb_on_an_object(admin: Caller) -> None:
    created = await admin.create(MAPS, config_map("one", a="1"))
    assert created.status == 201
    again = await admin.create(MAPS, config_map("one"))
    assert (again.status, again.body["reason"]) == (409, "AlreadyExists")
    read = await admin.get(f"{MAPS}/one")
    assert (read.status, read.body) == (200, created.body)
    read.body["data"] = {"a": "2"}
    replaced = await admin.ask("PUT", f"{MAPS}/one", read.body)
    assert (replaced.status, int(replaced.version)) == (200, int(created.version) + 1)
    stale = await admin.ask("PUT", f"{MAPS}/one", read.body)
    assert (stale.status, stale.body["reason"]) == (409, "Conflict")
    patched = await admin.merge(f"{MAPS}/one", {"data": {"b": "3"}})
    assert (patched.status, patched.body["data"]) == (200, {"a": "2", "b": "3"})
    deleted = await admin.delete(f"{MAPS}/one")
    assert (deleted.status, deleted.body["status"]) == (200, "Success")
    assert (await admin.get(f"{MAPS}/one")).status == 404


async def test_a_write_without_changes_is_not_stored(admin: Caller) -> None:
    created = await admin.create(MAPS, config_map("one", a="1"))
    again = await admin.merge(f"{MAPS}/one", {"data": {"a": "1"}})
    assert again.version == created.version


async def test_a_dry_run_answers_and_stores_nothing(admin: Caller) -> None:
    before = admin.api.context.store.version
    created = await admin.create(MAPS, config_map("one"), dryRun="All")
    assert (created.status, created.body["metadata"]["name"]) == (201, "one")
    assert (await admin.get(f"{MAPS}/one")).status == 404
    assert admin.api.context.store.version == before

    kept = await admin.create(MAPS, config_map("two", a="1"))
    patched = await admin.merge(f"{MAPS}/two", {"data": {"a": "2"}}, dryRun="All")
    assert patched.body["data"] == {"a": "2"}
    deleted = await admin.delete(f"{MAPS}/two", dryRun="All")
    assert deleted.status == 200
    assert (await admin.get(f"{MAPS}/two")).body == kept.body


async def test_a_dry_run_of_another_kind_is_refused(admin: Caller) -> None:
    seen = await admin.create(MAPS, config_map("one"), dryRun="Some")
    assert seen.status == 422


async def test_a_request_without_credentials_is_anonymous_with_few_rights(admin: Caller) -> None:
    admin.api.authentication.insecure = None
    seen = await admin.get(MAPS)
    assert (seen.status, seen.body["reason"]) == (403, "Forbidden")
    assert (await admin.get("/readyz")).status == 200


async def test_a_user_without_a_role_is_forbidden(admin: Caller) -> None:
    stranger = Caller(admin.api, headers={"impersonate-user": "jane"})
    seen = await stranger.get(MAPS)
    assert (seen.status, seen.body["reason"]) == (403, "Forbidden")
    assert seen.body["message"] == (
        'configmaps is forbidden: User "jane" cannot list resource "configmaps" in API group "" in the namespace '
        '"default"'
    )


async def test_a_head_request_is_answered_as_a_get(admin: Caller) -> None:
    await admin.create(MAPS, config_map("one"))
    assert (await admin.ask("HEAD", f"{MAPS}/one")).status == 200


async def test_an_unknown_method_is_not_allowed(admin: Caller) -> None:
    assert (await admin.ask("BREW", f"{MAPS}/one")).status == 405


async def test_a_grace_period_beyond_the_calendar_ends_in_a_century(admin: Caller) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await admin.create("/api/v1/namespaces/default/serviceaccounts", account)
    pods = "/api/v1/namespaces/default/pods"
    spec = {"nodeName": "n", "terminationGracePeriodSeconds": 2**62, "containers": [{"name": "c", "image": "i"}]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    assert (await admin.create(pods, body)).status == 201
    deleted = await admin.delete(f"{pods}/p")
    assert (deleted.status, deleted.body["metadata"]["deletionGracePeriodSeconds"]) == (200, 2**62)
    assert deleted.body["metadata"]["deletionTimestamp"] > "2100"
