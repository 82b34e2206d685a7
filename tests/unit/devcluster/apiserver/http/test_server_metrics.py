# SPDX-License-Identifier: Apache-2.0
"""`/metrics` of the API server: what is counted, and what a client cannot make it keep."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.support.embedded import Caller, api_server, config_map

MAPS = "/api/v1/namespaces/default/configmaps"


async def scraped(admin: Caller) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Each sample by name and labels."""
    answer = await admin.get("/metrics")
    assert answer.status == 200
    families = text_string_to_metric_families(answer.body)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def requests(samples: dict[tuple[str, frozenset[tuple[str, str]]], float]) -> dict[tuple[str, str, str], float]:
    """The counted requests by verb, resource and code."""
    found: dict[tuple[str, str, str], float] = {}
    for (name, labels), value in samples.items():
        if name == "apiserver_request_total":
            named = dict(labels)
            found[named["verb"], named["resource"], named["code"]] = value
    return found


async def test_requests_watches_and_objects_are_counted() -> None:
    admin = Caller(api_server())
    await admin.create(MAPS, config_map("a"))
    await admin.merge(f"{MAPS}/a", {"data": {"x": "1"}})
    await admin.get(f"{MAPS}/a")
    await admin.get(f"{MAPS}/none")
    await admin.get(MAPS)
    watch = admin.watch(MAPS)
    samples = await scraped(admin)
    watch.stop()
    await admin.api.close()
    assert requests(samples) == {
        ("POST", "configmaps", "201"): 1,
        ("PATCH", "configmaps", "200"): 1,
        ("GET", "configmaps", "200"): 1,
        ("GET", "configmaps", "404"): 1,
        ("LIST", "configmaps", "200"): 1,
        ("WATCH", "configmaps", "200"): 1,
    }
    place = {("group", ""), ("version", "v1"), ("resource", "configmaps")}
    assert samples["apiserver_registered_watchers", frozenset(place)] == 1
    assert samples["apiserver_resource_objects", frozenset({("group", ""), ("resource", "configmaps")})] >= 1
    assert any(name == "process_resident_memory_bytes" for name, _ in samples)


async def test_paths_and_methods_that_clients_invent_have_no_labels_of_their_own() -> None:
    admin = Caller(api_server())
    for number in range(20):
        await admin.get(f"/apis/group-{number}.example.com/v1/things")
        await admin.get(f"{MAPS}/a/subresource-{number}")
        await admin.get(f"/nothing/{number}")
        await admin.ask(f"METHOD{number}", "/version")
    samples = await scraped(admin)
    await admin.api.close()
    counted = [value for (name, _), value in samples.items() if name == "apiserver_request_total"]
    assert sorted(counted) == [20, 20, 40]


async def test_only_users_with_the_right_may_read_them() -> None:
    api = api_server()
    answer = await Caller(api, headers={"impersonate-user": "jane"}).get("/metrics")
    await api.close()
    assert answer.status == 403
