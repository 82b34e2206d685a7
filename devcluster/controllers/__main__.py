# SPDX-License-Identifier: Apache-2.0
"""`python -m devcluster.controllers`: runs the controllers of one cluster until SIGTERM."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

import anyio

from devcluster.controllers.app import ControllerOptions, Controllers
from devcluster.pki import Authority, KeyPair
from multikueue.core.log_lines import log_to_stderr
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.tls_buffers import limit_tls_buffers

USER_AGENT = "kube-controller-manager"
"""The field manager that a real cluster has for these writes."""


async def serve(kubeconfig: Path, options: ControllerOptions) -> None:
    """Run until SIGTERM or SIGINT."""
    client = KubeClient(credentials.load(kubeconfig), user_agent=USER_AGENT)
    async with client, anyio.create_task_group() as tasks:
        tasks.start_soon(Controllers(client, options).run)
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                break
        tasks.cancel_scope.cancel()


def main() -> int:
    """Parse the command line and run the controllers."""
    parser = argparse.ArgumentParser(prog="controllers", description="The built-in controllers of a local cluster.")
    parser.add_argument("--kubeconfig", type=Path, required=True, help="kubeconfig of an administrator")
    parser.add_argument("--ca-cert", type=Path, help="PEM file of the cluster's CA")
    parser.add_argument("--ca-key", type=Path, help="PEM file of the CA's key; signs approved certificate requests")
    parser.add_argument("--no-scheduler", action="store_true", help="do not run the scheduler")
    chosen = parser.parse_args()
    log_to_stderr()
    certificate = chosen.ca_cert.read_bytes() if chosen.ca_cert is not None else None
    if chosen.ca_key is not None and certificate is None:
        parser.error("--ca-key needs --ca-cert")
    authority = Authority(KeyPair(certificate, chosen.ca_key.read_bytes())) if certificate and chosen.ca_key else None
    options = ControllerOptions(scheduler=not chosen.no_scheduler, authority=authority, root_ca=certificate)
    limit_tls_buffers()
    anyio.run(serve, chosen.kubeconfig, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
