# SPDX-License-Identifier: Apache-2.0
"""`python -m multikueue.devcluster.controllers`: the controllers of one cluster as a process, until SIGTERM."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from pathlib import Path

import anyio

from multikueue.devcluster.controllers.app import Controllers, Options
from multikueue.devcluster.pki import Authority, KeyPair
from multikueue.kube import credentials
from multikueue.kube.client import KubeClient

USER_AGENT = "kube-controller-manager"
"""The field manager that a real cluster shows for these writes."""


async def serve(kubeconfig: Path, options: Options) -> None:
    """Run until SIGTERM or SIGINT."""
    client = KubeClient(credentials.load(kubeconfig), user_agent=USER_AGENT)
    async with client, anyio.create_task_group() as tasks:
        tasks.start_soon(Controllers(client, options).run)
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                break
        tasks.cancel_scope.cancel()


def main() -> int:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(prog="controllers", description="The built-in controllers of a local cluster.")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="of an administrator")
    parser.add_argument("--ca-cert", type=Path, help="PEM file of the cluster's CA")
    parser.add_argument("--ca-key", type=Path, help="its key: sign approved certificate requests")
    parser.add_argument("--no-scheduler", action="store_true", help="leave pods to another scheduler")
    chosen = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    certificate = chosen.ca_cert.read_bytes() if chosen.ca_cert is not None else None
    if chosen.ca_key is not None and certificate is None:
        parser.error("--ca-key needs --ca-cert")
    authority = Authority(KeyPair(certificate, chosen.ca_key.read_bytes())) if certificate and chosen.ca_key else None
    options = Options(scheduler=not chosen.no_scheduler, authority=authority, root_ca=certificate)
    anyio.run(serve, chosen.kubeconfig, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
