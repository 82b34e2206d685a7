# SPDX-License-Identifier: Apache-2.0
"""`python -m devcluster.kubelet FILE`: runs the virtual nodes of several clusters until SIGTERM."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from pathlib import Path

import anyio

from devcluster.kubelet.configuration import NodesConfiguration, NodesOfCluster
from devcluster.kubelet.journal import Journal
from devcluster.kubelet.virtual_nodes import VirtualNodes
from multikueue.core.log_lines import log_to_stderr
from multikueue.kube.errors import KubeError
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.rest.tls_buffers import limit_tls_buffers

log = logging.getLogger("devcluster.kubelet")

_RETRY_SECONDS = 1.0


async def serve(configuration: NodesConfiguration) -> None:
    """Run all nodes until SIGTERM or SIGINT."""
    journal = Journal(configuration.journal)
    try:
        async with anyio.create_task_group() as tasks:
            for cluster in configuration.clusters:
                tasks.start_soon(_serve_cluster, cluster, journal)
            with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
                async for _ in signals:
                    break
            tasks.cancel_scope.cancel()
    finally:
        journal.close()


async def _serve_cluster(cluster: NodesOfCluster, journal: Journal) -> None:
    async with KubeClient(credentials.load(cluster.kubeconfig)) as client:
        while True:
            nodes = VirtualNodes(
                client, nodes=cluster.nodes, cluster=cluster.cluster, logs=cluster.logs, record=journal.write
            )
            try:
                await nodes.run()
            except KubeError as error:  # only the first request can fail; later ones are retried by the client
                log.warning("virtual nodes not started, retrying cluster=%s error=%s", cluster.cluster, error)
                await anyio.sleep(_RETRY_SECONDS)


def main() -> int:
    """Read the configuration and run the nodes."""
    parser = argparse.ArgumentParser(description="Runs the virtual nodes of local clusters.")
    parser.add_argument("configuration", type=Path)
    options = parser.parse_args()
    log_to_stderr()
    limit_tls_buffers()
    anyio.run(serve, NodesConfiguration.model_validate_json(options.configuration.read_bytes()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
