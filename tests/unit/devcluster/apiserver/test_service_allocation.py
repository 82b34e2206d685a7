# SPDX-License-Identifier: Apache-2.0
"""Addresses and node ports of Services: what is kept, and what a client that asks for all of them gets."""

from __future__ import annotations

import pytest

from devcluster.apiserver import service_allocation
from tests.support.embedded import Caller, api_server

SERVICES = "/api/v1/namespaces/default/services"


def service(name: str, **spec: object) -> dict[str, object]:
    given = {"ports": [{"port": 80}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": given}


async def test_a_service_that_was_stored_with_an_address_of_another_range_can_be_changed() -> None:
    admin = Caller(api_server())
    await admin.create(SERVICES, service("s"))
    stored = admin.api.context.get("services", "default/s")
    assert stored is not None
    stored["spec"].update({"clusterIP": "192.168.1.1", "clusterIPs": ["192.168.1.1"]})
    admin.api.context.store.put("services", "default/s", stored)
    changed = await admin.merge(f"{SERVICES}/s", {"spec": {"sessionAffinity": "ClientIP"}})
    await admin.api.close()
    assert (changed.status, changed.body["spec"]["clusterIP"]) == (200, "192.168.1.1")


async def test_a_client_that_takes_all_node_ports_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_allocation, "_PORTS", range(30_000, 30_002))
    admin = Caller(api_server())
    seen = [await admin.create(SERVICES, service(f"s{number}", type="NodePort")) for number in range(3)]
    await admin.api.close()
    assert [each.status for each in seen] == [201, 201, 500]
    assert "failed to allocate a nodePort: range is full" in seen[2].body["message"]


async def test_a_chosen_node_port_is_none_that_the_service_asks_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_allocation, "_PORTS", range(30_000, 30_002))
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81, "nodePort": 30_000}]
    admin = Caller(api_server())
    made = await admin.create(SERVICES, service("s", type="NodePort", ports=ports))
    await admin.api.close()
    assert [port["nodePort"] for port in made.body["spec"]["ports"]] == [30_001, 30_000]
