# SPDX-License-Identifier: Apache-2.0
"""A real API server with all our definitions, and a conversion webhook that is nothing but `api.conversion`."""

from __future__ import annotations

import base64
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import orjson
import pytest
import trustme

from devcluster.cluster import Cluster
from devcluster.providers.binaries.provider import BinariesProvider
from devcluster.providers.provider import ClusterSpec
from multikueue.api.conversion import convert
from multikueue.api.crds import ConversionWebhook, manifests
from multikueue.kube.rest.client import KubeClient
from multikueue.testing.plugin import binaries_provider, kube_binaries

__all__ = ["binaries_provider", "kube_binaries"]


class _Convert(BaseHTTPRequestHandler):
    # HTTP/1.0 ends the connection with the answer, so that no test leaves one open.
    def do_POST(self) -> None:
        review = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = review["request"]
        converted = [convert(obj, request["desiredAPIVersion"]) for obj in request["objects"]]
        review["response"] = {
            "uid": request["uid"],
            "convertedObjects": converted,
            "result": {"status": "Success"},
        }
        del review["request"]
        body = orjson.dumps(review)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing; pytest shows what failed."""


@pytest.fixture(scope="package")
def conversion_webhook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConversionWebhook]:
    """A conversion webhook by URL."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Convert)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, name="conversion-webhook")
    thread.start()
    bundle = base64.b64encode(authority.cert_pem.bytes()).decode()
    yield ConversionWebhook(url=f"https://127.0.0.1:{server.server_port}/convert", ca_bundle=bundle)
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="package")
async def api_cluster(
    binaries_provider: BinariesProvider,
    conversion_webhook: ConversionWebhook,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Cluster]:
    """An API server alone, with our definitions."""
    spec = ClusterSpec(controllers=False, scheduler=False, manifests=manifests(webhook=conversion_webhook))
    folder: Path = tmp_path_factory.mktemp("api")
    cluster = await binaries_provider.create("api", folder=folder, spec=spec)
    async with cluster:
        yield cluster


@pytest.fixture
async def client(api_cluster: Cluster) -> AsyncIterator[KubeClient]:
    """An administrator of that API server."""
    async with api_cluster.client() as client:
        yield client
