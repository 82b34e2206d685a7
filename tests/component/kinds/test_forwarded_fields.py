# SPDX-License-Identifier: Apache-2.0
"""Fields of a running job that may change: its user changes them on the hub, and the remote job follows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import orjson
import pytest

from devcluster.providers.provider import ClusterSpec
from multikueue.api.constants import QUEUE_NAME_LABEL
from multikueue.api.crds import manifests
from multikueue.api.remoteassignment import mailbox_namespace
from multikueue.api.resource import REMOTE_ASSIGNMENTS, WORKLOADS
from multikueue.dispatch.policy.dispatch_policy import PolicyRules, agent_rules
from multikueue.testing.plugin import kube_binaries
from tests.support.both_providers import BOTH_PROVIDERS, provider_of, push_apart
from tests.support.crds import kinds
from tests.support.kind_federations import NAMESPACE, KindFederation, Seen, kind_federation, open_queue, queue_of
from tests.support.managers import Object, eventually, is_true
from tests.support.operators.played_kinds import PLAYED_KINDS
from tests.support.sites import Transport

__all__ = ["kube_binaries"]

pytestmark = pytest.mark.anyio

SERVICE = next(each for each in PLAYED_KINDS if each.resource == kinds.RAY_SERVICES)


@dataclass(frozen=True)
class Service:
    """A RayService that runs on a worker."""

    federation: KindFederation
    name: str
    place: str

    async def until(self, what: str, holds: Callable[[Seen], bool]) -> Seen:
        return await self.federation.until(SERVICE, self.name, self.place, what, holds)

    async def change(self, **fields: object) -> None:
        """Its user changes its spec."""
        await self.federation.hub.patch(SERVICE.resource, self.name, {"spec": fields}, namespace=NAMESPACE)


FORBIDDEN: list[str] = []
"""Namespaces that the agent's own policy forbids now."""
GATES = {"on": "", "off": "MultiKueueRemoteSpecSync: false"}


def rules() -> tuple[PolicyRules, ...]:
    """The policy of the agent, which its administrator changes while it runs."""
    return (agent_rules(denied_namespaces=tuple(FORBIDDEN)),)


@asynccontextmanager
async def made(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, *, gate: str
) -> AsyncIterator[KindFederation]:
    """A federation with the gate on, and workers of both transports; or with the gate off, and an agent."""
    folder = tmp_path_factory.mktemp(f"forwarded-{gate}-{request.param}")
    places = [str(each) for each in Transport if gate == "on" or each is Transport.PULL]
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(provider_of(request, folder))
        clusters = []
        for name in ("hub", *places):
            spec = ClusterSpec(controllers=True, scheduler=True, manifests=manifests() if name == "hub" else ())
            cluster = await provider.create(name, folder=folder / name, spec=spec)
            clusters.append(await stack.enter_async_context(cluster))
        hub, *workers = clusters
        of_places = dict(zip(places, workers, strict=True))
        federation = kind_federation(hub, of_places, [SERVICE], local=False, gates=GATES[gate], rules=rules)
        async with federation as found:
            for place in places:
                await open_queue(found.hub, SERVICE, place)
            yield found


@pytest.fixture(scope="module", params=BOTH_PROVIDERS)
async def federation(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[KindFederation]:
    async with made(request, tmp_path_factory, gate="on") as found:
        yield found


@pytest.fixture(params=BOTH_PROVIDERS)
async def without_gate(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[KindFederation]:
    async with made(request, tmp_path_factory, gate="off") as found:
        yield found


@asynccontextmanager
async def running(federation: KindFederation, transport: Transport, name: str) -> AsyncIterator[Service]:
    """A service that runs on the worker, with a configuration."""
    service = Service(federation, f"{transport}-{name}", str(transport))
    body = SERVICE.sample(service.name, {"multikueue.io/run-for": "forever"})
    body["metadata"] |= {"namespace": NAMESPACE, "labels": {QUEUE_NAME_LABEL: queue_of(SERVICE, service.place)}}
    body["spec"]["serveConfigV2"] = "applications: [one]"
    await federation.submit(SERVICE, body)

    def runs(seen: Seen) -> bool:
        pods = seen.remote_pods
        return len(pods) == SERVICE.pods and all(is_true(each, "Ready") for each in pods)

    await service.until("runs", runs)
    yield service
    await federation.hub.delete(SERVICE.resource, service.name, namespace=NAMESPACE)
    await service.until("is gone", lambda seen: seen.remote is None and not seen.remote_pods)


def config_of(seen: Seen) -> object:
    spec: Object = (seen.remote or {}).get("spec") or {}
    return spec.get("serveConfigV2")


@push_apart
async def test_f13_x20_a_changed_serve_config_of_a_running_service_is_forwarded_and_its_pods_run_on(
    federation: KindFederation, transport: Transport
) -> None:
    async with running(federation, transport, "serves") as service:
        before = await service.until("has its configuration", lambda seen: config_of(seen) == "applications: [one]")
        await service.change(serveConfigV2="applications: [one, two]")
        after = await service.until("is changed", lambda seen: config_of(seen) == "applications: [one, two]")
        assert before.remote is not None
        assert after.remote is not None
        assert after.remote["metadata"]["uid"] == before.remote["metadata"]["uid"]
        assert {each["metadata"]["uid"] for each in after.remote_pods} == {
            each["metadata"]["uid"] for each in before.remote_pods
        }
        assert is_true(after.workload, "Admitted")
        await service.change(serveConfigV2=None)
        await service.until("has none", lambda seen: seen.remote is not None and config_of(seen) is None)


@push_apart
async def test_no_other_field_of_a_running_service_is_forwarded(
    federation: KindFederation, transport: Transport
) -> None:
    async with running(federation, transport, "fixed") as service:
        before = await service.until("runs", lambda seen: seen.remote is not None)
        await service.change(serviceUnhealthySecondThreshold=7, serveConfigV2="applications: [three]")
        after = await service.until("is changed", lambda seen: config_of(seen) == "applications: [three]")
        assert before.remote is not None
        assert after.remote is not None
        assert after.remote["spec"] == {**before.remote["spec"], "serveConfigV2": "applications: [three]"}


def refusal(seen: Seen) -> str:
    """The condition of the Workload that shows a change that is not made."""
    conditions = ((seen.workload or {}).get("status") or {}).get("conditions") or []
    shown = [each for each in conditions if each["type"] == "ChangeForwarded"]
    return " ".join(f"{each['status']} {each['reason']}: {each['message']}" for each in shown)


async def test_a_change_that_only_the_agent_refuses_is_shown_on_the_hub_until_it_is_made(
    federation: KindFederation,
) -> None:
    async with running(federation, Transport.PULL, "refused") as service:
        FORBIDDEN.append(NAMESPACE)
        try:
            await service.change(serveConfigV2="applications: [two]")
            seen = await service.until("shows the refusal", lambda seen: "ForbiddenByPolicy" in refusal(seen))
            assert refusal(seen).startswith(
                'False ForbiddenByPolicy: A change of the job is not forwarded to worker cluster "pull": '
            )
            assert config_of(seen) == "applications: [one]"
            assert is_true(seen.workload, "Admitted"), "what runs is not touched"
            await service.change(serveConfigV2="applications: [one]")
            await service.until("shows none, since it was taken back", lambda seen: not refusal(seen))
            await service.change(serveConfigV2="applications: [three]")
            await service.until("shows the next refusal", lambda seen: bool(refusal(seen)))
        finally:
            FORBIDDEN.clear()
        await service.change(serveConfigV2="applications: [four]")
        await service.until(
            "is changed, and shows none",
            lambda seen: config_of(seen) == "applications: [four]" and not refusal(seen),
        )


async def sent_assignment(federation: KindFederation, service: Service) -> Object:
    """The assignment of the service in its mailbox."""
    page = await federation.hub.list_all(REMOTE_ASSIGNMENTS, namespace=mailbox_namespace(service.place))
    found: list[Object] = [orjson.loads(raw) for raw in page.items]
    return next(each for each in found if each["spec"]["job"]["name"] == service.name)


async def test_with_the_gate_off_a_changed_field_does_not_go_along_with_a_new_priority(
    without_gate: KindFederation,
) -> None:
    async with running(without_gate, Transport.PULL, "kept") as service:
        before = await service.until("has a Workload", lambda seen: seen.workload is not None)
        assert before.workload is not None
        await service.change(serveConfigV2="applications: [two]")
        priority = {"spec": {"priority": 7}}
        await without_gate.hub.patch(WORKLOADS, before.workload["metadata"]["name"], priority, namespace=NAMESPACE)
        sent = await eventually(
            lambda: sent_assignment(without_gate, service),
            what="the priority is sent",
            until=lambda found: found["spec"].get("priority") == 7,
        )
        assert sent["spec"]["job"]["manifest"]["spec"]["serveConfigV2"] == "applications: [one]"
        after = await service.until("runs on", lambda seen: is_true(seen.workload, "Admitted"))
        assert config_of(after) == "applications: [one]"
