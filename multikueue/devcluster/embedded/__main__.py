# SPDX-License-Identifier: Apache-2.0
"""`python -m multikueue.devcluster.embedded`: one cluster as one process, until SIGTERM."""

from __future__ import annotations

import argparse
import gc
import logging
import secrets
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from multikueue.devcluster import kubeconfigs
from multikueue.devcluster.apiserver.listener import Listener, Serving
from multikueue.devcluster.apiserver.requests import User
from multikueue.devcluster.apiserver.server import ApiServer
from multikueue.devcluster.apiserver.storage.durable import SqliteJournal
from multikueue.devcluster.cluster import ADMIN_GROUP, CONTROLLER_MANAGER
from multikueue.devcluster.embedded.layout import Layout
from multikueue.devcluster.embedded.pod_logs import PodLogs
from multikueue.devcluster.pki import Authority, front_proxy

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
    api.logs = PodLogs(api.world, pki=pki)
    serving = Serving(pki / "apiserver.crt", pki / "apiserver.key", pki / "ca.crt")
    async with Listener(api, port=layout.port, serving=serving), anyio.create_task_group() as tasks:
        if controllers:
            tasks.start_soon(partial(_control, layout, api, token=token, scheduler=scheduler))
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                break
        tasks.cancel_scope.cancel()


async def _control(layout: Layout, api: ApiServer, *, token: str, scheduler: bool) -> None:
    # Imported beside the first requests: the API server is ready before its controllers are.
    from multikueue.devcluster.controllers.app import Controllers, Options
    from multikueue.kube import credentials
    from multikueue.kube.client import KubeClient

    # A port of their own without TLS: a handshake for each of their fifty watches is most of what they cost.
    inner = Listener(api)
    await inner.start()
    try:
        config = credentials.from_dict(
            kubeconfigs.with_token(cluster=layout.name, server=inner.url, user=_CONTROLLERS_USER, token=token)
        )
        authority = Authority.load_or_create(layout.pki, name=f"{layout.name}-ca")
        async with KubeClient(config, user_agent=f"kube-{CONTROLLER_MANAGER}") as client:
            made = Controllers(client, Options(scheduler=scheduler, authority=authority))
            gc.freeze()
            await made.run()
    finally:
        with anyio.CancelScope(shield=True):
            await inner.stop()


def main() -> int:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="embedded", description="One Kubernetes cluster in pure Python.")
    parser.add_argument("--name", required=True)
    parser.add_argument("--folder", type=Path, required=True, help="its keys, certificates and data")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--no-controllers", dest="controllers", action="store_false")
    parser.add_argument(
        "--no-scheduler", dest="scheduler", action="store_false", help="leave pods to another scheduler"
    )
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    layout = Layout(name=chosen.name, folder=chosen.folder, port=chosen.port)
    anyio.run(lambda: serve(layout, controllers=chosen.controllers, scheduler=chosen.scheduler))
    return 0


if __name__ == "__main__":
    sys.exit(main())
