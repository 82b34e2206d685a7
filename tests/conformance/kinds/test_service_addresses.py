# SPDX-License-Identifier: Apache-2.0
"""Which addresses a Service may be given, and that it keeps them."""

from __future__ import annotations

import re
from typing import Any, Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side

pytestmark = pytest.mark.binaries

CASES = Cases("service addresses")
Document = dict[str, Any]

_SERVICES: Final = "/api/v1/namespaces/{ns}/services"
_MERGE: Final = "application/merge-patch+json"
_CHOSEN: Final = re.compile(r"10\.\d+\.\d+\.\d+(?!\S*/)")
"""An address that a server has chosen; its range has a slash behind it."""


def _service(**spec: Any) -> Document:
    given = {"selector": {"a": "b"}, "ports": [{"port": 80}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": given}


async def _note(side: Side, what: str, exchange: Exchange) -> Document:
    """The answer with each chosen address as one text."""
    found = await side.server.send(side.filled(exchange))
    body = found.body
    spec = {name: body.get("spec", {}).get(name) for name in ("type", "clusterIP", "clusterIPs", "ipFamilies")}
    causes = [[each["field"], each["reason"]] for each in body.get("details", {}).get("causes", ())]
    shown = [found.status, body.get("message"), causes, spec]
    side.note(what, _without_addresses(shown))
    return dict(body)


def _without_addresses(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_addresses(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_without_addresses(entry) for entry in value]
    return _CHOSEN.sub("CHOSEN", value) if isinstance(value, str) else value


_MADE: Final[dict[str, Document]] = {
    "an address outside of the range": {"clusterIP": "192.168.1.1"},
    "no address": {"clusterIP": "nonsense"},
    "an empty address": {"clusterIP": ""},
    "None": {"clusterIP": "None"},
    "None in the list": {"clusterIPs": ["None"]},
    "a list that disagrees": {"clusterIP": "None", "clusterIPs": ["10.0.0.9"]},
    "two addresses of one family": {"clusterIPs": ["10.0.0.8", "10.0.0.9"]},
    "an address of an external name": {"type": "ExternalName", "externalName": "a.b", "clusterIP": "10.0.0.9"},
    "a headless node port": {"type": "NodePort", "clusterIP": "None"},
    "a headless load balancer": {"type": "LoadBalancer", "clusterIP": "None"},
    "an IPv6 family": {"ipFamilies": ["IPv6"]},
    "an unknown family": {"ipFamilies": ["IPv5"]},
    "a family twice": {"ipFamilies": ["IPv4", "IPv4"]},
    "an unknown policy": {"ipFamilyPolicy": "Both"},
    "an external address": {"externalIPs": ["1.2.3.4"]},
    "an external address that is none": {"externalIPs": ["nonsense"]},
    "a loopback as external address": {"externalIPs": ["127.0.0.1"]},
    "an unknown traffic policy": {"type": "NodePort", "externalTrafficPolicy": "Some"},
    "a traffic policy within the cluster": {"externalTrafficPolicy": "Local"},
    "a source range": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0/8"]},
    "a source range that is none": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["nonsense"]},
    "a source range of a node port": {"type": "NodePort", "loadBalancerSourceRanges": ["10.0.0.0/8"]},
    "a class of a load balancer": {"loadBalancerClass": "a.b/c"},
    "an unspecified external address": {"externalIPs": ["0.0.0.0"]},
    "a local external address": {"externalIPs": ["169.254.0.1"]},
    "a node port outside of the range": {"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]},
}
_CHANGED: Final[dict[str, tuple[Document, Document]]] = {
    "a chosen address to None": ({}, {"clusterIP": "None"}),
    "a chosen address to another": ({}, {"clusterIP": "10.0.0.222"}),
    "a chosen address and the list to None": ({}, {"clusterIP": "None", "clusterIPs": ["None"]}),
    "a chosen address to nothing": ({}, {"clusterIP": None}),
    "a chosen list to nothing": ({}, {"clusterIPs": None}),
    "both to nothing": ({}, {"clusterIP": None, "clusterIPs": None}),
    "None to an address": ({"clusterIP": "None"}, {"clusterIP": "10.0.0.222"}),
    "None to nothing": ({"clusterIP": "None"}, {"clusterIP": None}),
    "the family": ({}, {"ipFamilies": ["IPv6"]}),
    "the policy to two families": ({}, {"ipFamilyPolicy": "PreferDualStack"}),
    "the policy to require two families": ({}, {"ipFamilyPolicy": "RequireDualStack"}),
    "None to a node port": ({"clusterIP": "None"}, {"type": "NodePort"}),
    "the class of a load balancer": (
        {"type": "LoadBalancer", "loadBalancerClass": "a.b/c"},
        {"loadBalancerClass": "a.b/d"},
    ),
}

for _name, _spec in _MADE.items():

    @CASES.case(f"made with {_name}")
    async def _(side: Side, spec: Document = _spec) -> None:
        await _note(side, "made", Exchange("POST", _SERVICES, _service(**spec)))


for _name, (_before, _patch) in _CHANGED.items():

    @CASES.case(f"{_name} is refused or kept")
    async def _(side: Side, before: Document = _before, patch: Document = _patch) -> None:
        await _note(side, "made", Exchange("POST", _SERVICES, _service(**before)))
        exchange = Exchange("PATCH", f"{_SERVICES}/s", {"spec": patch}, content_type=_MERGE)
        await _note(side, "changed", exchange)


@CASES.case("an address is given to one Service")
async def _(side: Side) -> None:
    made = await _note(side, "made", Exchange("POST", _SERVICES, _service()))
    second = _service(clusterIP=made["spec"]["clusterIP"])
    second["metadata"]["name"] = "t"
    await _note(side, "second", Exchange("POST", _SERVICES, second))
    await side.quietly(Exchange("DELETE", f"{_SERVICES}/s"))
    await _note(side, "after it is deleted", Exchange("POST", _SERVICES, second))


@CASES.case("a node port is given to one Service")
async def _(side: Side) -> None:
    made = await _note(side, "made", Exchange("POST", _SERVICES, _service(type="NodePort")))
    port = made["spec"]["ports"][0]["nodePort"]
    second = _service(type="NodePort", ports=[{"port": 80, "nodePort": port}])
    second["metadata"]["name"] = "t"
    found = await side.server.send(side.filled(Exchange("POST", _SERVICES, second)))
    side.note("second", [found.status, str(found.body.get("message")).replace(str(port), "PORT")])


@pytest.mark.parametrize("case", CASES.params())
async def test_a_service_gets_an_address_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """What is refused, and what is chosen."""
    await judge(case)
