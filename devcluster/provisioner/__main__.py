# SPDX-License-Identifier: Apache-2.0
"""`python -m devcluster.provisioner`: plays the cluster autoscaler of one cluster until SIGTERM."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

import anyio

from devcluster.provisioner.controller import Provisioner
from multikueue.core.log_lines import log_to_stderr
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient


async def serve(kubeconfig: Path) -> None:
    """Run until SIGTERM or SIGINT."""
    client = KubeClient(credentials.load(kubeconfig), user_agent="cluster-autoscaler")
    async with client, anyio.create_task_group() as tasks:
        tasks.start_soon(Provisioner(client).run)
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                break
        tasks.cancel_scope.cancel()


def main() -> int:
    """Parse the command line and provision."""
    parser = argparse.ArgumentParser(
        prog="provisioner", description="Answers ProvisioningRequests of a local cluster and adds virtual nodes."
    )
    parser.add_argument("--kubeconfig", type=Path, required=True, help="kubeconfig of an administrator")
    chosen = parser.parse_args()
    log_to_stderr()
    anyio.run(serve, chosen.kubeconfig)
    return 0


if __name__ == "__main__":
    sys.exit(main())
