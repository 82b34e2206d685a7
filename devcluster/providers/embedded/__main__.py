# SPDX-License-Identifier: Apache-2.0
"""`python -m devcluster.providers.embedded`: runs one cluster until SIGTERM."""

from __future__ import annotations

import argparse
import gc
import secrets
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from devcluster import kubeconfigs
from devcluster.apiserver.http.listener import Listener, Serving
from devcluster.apiserver.http.requests import User
from devcluster.apiserver.server import ApiServer
from devcluster.apiserver.storage.durable import SqliteJournal
from devcluster.cluster import ADMIN_GROUP, CONTROLLER_MANAGER
from devcluster.pki import Authority, front_proxy
from devcluster.providers.embedded.kubelets import KubeletConnections
from devcluster.providers.embedded.layout import Layout
from multikueue.core.log_lines import log_to_stderr
from multikueue.kube.rest.tls_buffers import limit_tls_buffers

_CONTROLLERS_USER: Final = "system:kube-controller-manager"


async def serve(layout: Layout, *, controllers: bool, scheduler: bool) -> None:
    """Serve until SIGTERM or SIGINT."""
    pki = layout.pki
    token = secrets.token_urlsafe(32)
    api = ApiServer(
        signing_key=layout.signing_key.read_bytes(),
        journal=SqliteJournal(layout.data),
        static_tokens={token: User(_CONTROLLERS_USER, groups=(ADMIN_GROUP,))},
        client_ca=pki / "ca.crt",
        proxy=front_proxy(pki),
    )
    api.connect_kubelets(KubeletConnections(api.context, pki=pki))
    serving = Serving(pki / "apiserver.crt", pki / "apiserver.key", pki / "ca.crt")
    api.publish_address(layout.port)
    async with Listener(api, port=layout.port, serving=serving), anyio.create_task_group() as tasks:
        if controllers:
            tasks.start_soon(partial(_control, layout, api, token=token, scheduler=scheduler))
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                break
        tasks.cancel_scope.cancel()


async def _control(layout: Layout, api: ApiServer, *, token: str, scheduler: bool) -> None:
    # Imported while the first requests are served: the API server is ready before its controllers.
    from devcluster.controllers.app import ControllerOptions, Controllers
    from multikueue.kube.rest import credentials
    from multikueue.kube.rest.client import KubeClient

    # A separate port without TLS: most of the cost of their fifty watches would be handshakes.
    inner = Listener(api)
    await inner.start()
    try:
        config = credentials.from_dict(
            kubeconfigs.with_token(cluster=layout.name, server=inner.url, user=_CONTROLLERS_USER, token=token)
        )
        authority = Authority.load_or_create(layout.pki, name=f"{layout.name}-ca")
        async with KubeClient(config, user_agent=f"kube-{CONTROLLER_MANAGER}") as client:
            made = Controllers(client, ControllerOptions(scheduler=scheduler, authority=authority))
            gc.freeze()
            await made.run()
    finally:
        with anyio.CancelScope(shield=True):
            await inner.stop()


def main() -> int:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="embedded", description="One Kubernetes cluster in pure Python.")
    parser.add_argument("--name", required=True)
    parser.add_argument("--folder", type=Path, required=True, help="folder of its keys, certificates and data")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--no-controllers", dest="controllers", action="store_false")
    parser.add_argument("--no-scheduler", dest="scheduler", action="store_false", help="do not run the scheduler")
    chosen = parser.parse_args()
    log_to_stderr()
    layout = Layout(name=chosen.name, folder=chosen.folder, port=chosen.port)
    limit_tls_buffers()
    anyio.run(lambda: serve(layout, controllers=chosen.controllers, scheduler=chosen.scheduler))
    return 0


if __name__ == "__main__":
    sys.exit(main())
