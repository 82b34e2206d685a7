# SPDX-License-Identifier: Apache-2.0
"""Fields of a running job that may change: its user changes them on the hub, and the remote job follows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from devcluster.providers.provider import ClusterSpec
from multikueue.api.constants import QUEUE_NAME_LABEL
from multikueue.api.crds import manifests
from multikueue.testing.plugin import kube_binaries
from tests.support.both_providers import BOTH_PROVIDERS, provider_of, push_apart
from tests.support.crds import kinds
from tests.support.kind_federations import NAMESPACE, KindFederation, Seen, kind_federation, open_queue, queue_of
from tests.support.managers import Object, is_true
from tests.support.operators.played_kinds import PLAYED_KINDS
from tests.support.sites import Transport

__all__ = ["kube_binaries"]

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]

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


@pytest.fixture(scope="module", params=BOTH_PROVIDERS)
async def federation(
    anyio_backend: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[KindFederation]:
    folder = tmp_path_factory.mktemp(f"forwarded-{request.param}")
    places = [str(each) for each in Transport]
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(provider_of(request, folder))
        made = []
        for name in ("hub", *places):
            spec = ClusterSpec(controllers=True, scheduler=True, manifests=manifests() if name == "hub" else ())
            cluster = await provider.create(name, folder=folder / name, spec=spec)
            made.append(await stack.enter_async_context(cluster))
        hub, *workers = made
        async with kind_federation(hub, dict(zip(places, workers, strict=True)), [SERVICE], local=False) as found:
            for place in places:
                await open_queue(found.hub, SERVICE, place)
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
