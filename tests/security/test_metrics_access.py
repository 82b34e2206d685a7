# SPDX-License-Identifier: Apache-2.0
"""/metrics only for users who may get it, if the manager is configured so."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import orjson
import pytest
import trustme
from aiohttp import web
from prometheus_client import CollectorRegistry

from devcluster.cluster import API_SERVER, Cluster
from devcluster.providers.provider import ClusterSpec
from manager.metrics_serving import MetricsServing, certificate_of
from manager.options import parse
from multikueue.api import configuration_file
from multikueue.api.codec import documents
from multikueue.api.crds import manifests
from multikueue.api.resource import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from multikueue.core.clock import ManualClock
from multikueue.core.errors import BadInput
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.serving.page_access import PageAccess
from multikueue.kube.serving.reviews import ALLOWED_SECONDS
from multikueue.kube.serving.serve import add_metrics, serving
from tests.support.managers import connections_closed, make_namespace, running_manager
from tests.support.service_accounts import service_account
from tests.support.stub_api import StubApi, json_answer, status_answer, stub_api

pytestmark = pytest.mark.anyio

RBAC = Path(__file__).parents[2] / "deploy" / "rbac"
MANAGER = "system:serviceaccount:kueue-system:kueue-controller-manager"
RESOURCES = {
    found.kind: found for found in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, ROLES, ROLE_BINDINGS, SERVICE_ACCOUNTS)
}
SECURE = "metrics: {secureServing: true, authorization: true}"


class Page:
    """A page of metrics, its API server, and its clock."""

    def __init__(self, api: StubApi, url: str, clock: ManualClock) -> None:
        self.api = api
        self.url = url
        self.clock = clock

    async def status(self, token: str | None = "scraper") -> int:
        """Of an answer to who shows that token."""
        return await scraped(self.url, token)


async def scraped(url: str, token: str | None, *, trust: ssl.SSLContext | None = None) -> int:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        async with session.get(f"{url}/metrics", ssl=trust or True) as answer:
            body = await answer.text()
            assert (answer.status == 200) == ("# HELP" in body or body == "")
            return answer.status


async def reviews(request: web.Request) -> web.StreamResponse:
    """An API server that knows two tokens, one of which may read."""
    spec = orjson.loads(await request.read())["spec"]
    if request.path.endswith("tokenreviews"):
        known = spec["token"] in ("scraper", "stranger")
        return json_answer({"status": {"authenticated": known, "user": {"username": spec["token"], "groups": ["g"]}}})
    assert spec["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
    assert spec["groups"] == ["g"]
    return json_answer({"status": {"allowed": spec["user"] == "scraper"}})


@asynccontextmanager
async def page(answer: Callable[[web.Request], object] = reviews) -> AsyncIterator[Page]:
    clock = ManualClock()
    async with stub_api(answer) as api, api.client() as client:  # type: ignore[arg-type]
        app = web.Application()
        add_metrics(app, CollectorRegistry(), access=PageAccess(client, "/metrics", clock=clock))
        async with serving(app, "127.0.0.1:0") as port:
            yield Page(api, f"http://127.0.0.1:{port}", clock)


@pytest.mark.parametrize(
    ("token", "status"),
    [
        pytest.param(None, 401, id="no token"),
        pytest.param("", 401, id="an empty token"),
        pytest.param("made-up", 401, id="an unknown token"),
        pytest.param("stranger", 403, id="a user without the right"),
        pytest.param("scraper", 200, id="a user with it"),
    ],
)
async def test_only_users_who_may_get_metrics_are_served(token: str | None, status: int) -> None:
    async with page() as metrics:
        assert await metrics.status(token) == status


async def test_without_a_token_the_api_server_is_not_asked() -> None:
    async with page() as metrics:
        assert await metrics.status(None) == 401
        assert metrics.api.seen == []


async def test_an_answer_is_kept_for_a_minute() -> None:
    async with page() as metrics:
        assert [await metrics.status() for _ in range(3)] == [200] * 3
        assert len(metrics.api.seen) == 2
        metrics.clock.advance(ALLOWED_SECONDS)
        assert await metrics.status() == 200
        assert len(metrics.api.seen) == 4


async def test_a_right_that_was_taken_away_ends_with_the_kept_answer() -> None:
    async with page() as metrics:
        assert await metrics.status() == 200

        async def none(request: web.Request) -> web.StreamResponse:
            return json_answer({"status": {}})

        metrics.api.answer = none
        metrics.clock.advance(ALLOWED_SECONDS)
        assert await metrics.status() == 401


async def test_an_api_server_that_is_away_is_a_503() -> None:
    async def away(request: web.Request) -> web.StreamResponse:
        return status_answer(500, "InternalError")

    async with page(away) as metrics:
        assert await metrics.status() == 503
        metrics.api.answer = reviews
        assert await metrics.status() == 200


@pytest.mark.parametrize("body", [{}, {"status": {}}, {"status": {"authenticated": "true", "user": "x"}}])
async def test_a_review_without_a_clear_yes_is_a_no(body: object) -> None:
    async def vague(request: web.Request) -> web.StreamResponse:
        return json_answer(body)

    async with page(vague) as metrics:
        assert await metrics.status() == 401


async def test_unknown_tokens_take_no_memory() -> None:
    async with page() as metrics:
        for number in range(300):
            assert await metrics.status(f"made-up-{number}") == 401
        asked = len(metrics.api.seen)
        assert await metrics.status("made-up-299") == 401
        assert len(metrics.api.seen) == asked
        assert await metrics.status("made-up-0") == 401
        assert len(metrics.api.seen) == asked + 1


@pytest.mark.parametrize(
    ("flags", "settings", "serving"),
    [
        pytest.param([], "", MetricsServing(address=":8080"), id="open and plain by default"),
        pytest.param(
            [], "metrics: {secureServing: true}", MetricsServing(address=":8443", secure=True), id="over TLS on 8443"
        ),
        pytest.param(
            ["--metrics-secure", "--metrics-authorization", "--metrics-bind=:9090"],
            "",
            MetricsServing(address=":9090", secure=True, authorized=True),
            id="flags alone",
        ),
        pytest.param(
            ["--no-metrics-authorization", "--metrics-cert-dir=/tls"],
            SECURE,
            MetricsServing(address=":8443", secure=True, certificate_folder="/tls"),
            id="flags win",
        ),
    ],
)
def test_flags_and_configuration_say_how_metrics_are_served(
    flags: list[str], settings: str, serving: MetricsServing
) -> None:
    assert MetricsServing.of(parse(flags), configuration_file.load(settings)) == serving


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--metrics-authorization"], "tokens would be sent in the clear"),
        (["--metrics-cert-dir=/tls"], "needs metrics.secureServing"),
        (["--metrics-secure", "--no-webhooks"], "needs metrics.certDir"),
    ],
)
def test_what_makes_no_sense_is_refused_at_the_start(flags: list[str], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        MetricsServing.of(parse(flags), configuration_file.load(""))


@pytest.mark.parametrize("settings", ["{authorization: true}", "{certDir: /tls}"])
def test_a_configuration_that_makes_no_sense_is_refused(settings: str) -> None:
    with pytest.raises(BadInput, match="needs secureServing"):
        configuration_file.load(f"metrics: {settings}")


async def test_a_certificate_of_files_is_served(tmp_path: Path) -> None:
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1")
    (tmp_path / "tls.crt").write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
    (tmp_path / "tls.key").write_bytes(leaf.private_key_pem.bytes())
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    app = web.Application()
    add_metrics(app, CollectorRegistry())
    async with certificate_of(str(tmp_path)) as certificate:
        async with serving(app, "127.0.0.1:0", certificate=certificate) as port:
            assert await scraped(f"https://127.0.0.1:{port}", None, trust=trust) == 200


async def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"metrics.certDir: cannot read .*tls.crt: No such file"):
        async with certificate_of(str(tmp_path)):
            pass


@pytest.fixture(params=["embedded", pytest.param("binaries", marks=pytest.mark.binaries)])
async def hub(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    """A management cluster with our definitions and the manager's role, and no more rights than that."""
    from devcluster.providers.binaries.provider import BinariesProvider
    from devcluster.providers.embedded.provider import EmbeddedProvider

    async with connections_closed():
        made = (
            EmbeddedProvider(folder=tmp_path)
            if request.param == "embedded"
            else BinariesProvider(binaries=request.getfixturevalue("kube_binaries"), folder=tmp_path)
        )
        async with made as provider:
            spec = ClusterSpec(controllers=True, scheduler=False, manifests=manifests())
            async with await provider.create("hub", folder=tmp_path / "hub", spec=spec) as cluster:
                yield cluster


async def install_roles(client: KubeClient) -> None:
    await make_namespace(client, "kueue-system")
    await make_namespace(client, "monitoring")
    for manifest in ("manager.yaml", "users.yaml"):
        for obj in documents((RBAC / manifest).read_text()):
            metadata = obj["metadata"]
            await client.apply(
                RESOURCES[obj["kind"]], metadata["name"], obj, namespace=metadata.get("namespace"), manager="test"
            )
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "prometheus-reads-kueue"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kueue-metrics-reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}],
    }
    await client.create(CLUSTER_ROLE_BINDINGS, binding)


async def trusting(client: KubeClient) -> ssl.SSLContext:
    """What a Prometheus has that knows the CA of the webhooks."""
    secret = await client.get_object(SECRETS, "kueue-webhook-server-cert", namespace="kueue-system")
    return ssl.create_default_context(cadata=base64.b64decode(secret["data"]["ca.crt"]).decode())


async def test_a_manager_serves_metrics_to_whom_the_cluster_lets_in(hub: Cluster) -> None:
    async with hub.client() as client:
        await install_roles(client)
        reader, stranger = [
            await service_account(client, name, namespace="monitoring") for name in ("prometheus", "stranger")
        ]
        async with running_manager(hub, settings=SECURE, user=MANAGER) as manager:
            url, trust = f"https://127.0.0.1:{manager.metrics_port}", await trusting(client)
            assert await scraped(url, reader, trust=trust) == 200
            assert await scraped(url, stranger, trust=trust) == 403
            assert await scraped(url, "made-up", trust=trust) == 401
            assert await scraped(url, None, trust=trust) == 401
            await hub.kill(API_SERVER)
            assert await scraped(url, f"{reader}x", trust=trust) == 503
            await hub.start(API_SERVER)
