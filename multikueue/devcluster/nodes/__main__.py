# SPDX-License-Identifier: Apache-2.0
"""`python -m multikueue.devcluster.nodes FILE`: the virtual nodes of several clusters, until SIGTERM."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from pathlib import Path

import anyio

from multikueue.devcluster.nodes.configuration import NodesConfiguration, NodesOfCluster
from multikueue.devcluster.nodes.journal import Journal
from multikueue.devcluster.nodes.virtual_nodes import VirtualNodes
from multikueue.kube import credentials
from multikueue.kube.client import KubeClient
from multikueue.kube.errors import KubeError

log = logging.getLogger("multikueue.devcluster.nodes")

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
            except KubeError as error:  # only the first request can fail: what follows is retried inside
                log.warning("%s: %s", cluster.cluster, error)
                await anyio.sleep(_RETRY_SECONDS)


def main() -> int:
    """Read the configuration and serve."""
    parser = argparse.ArgumentParser(description="virtual nodes for local clusters")
    parser.add_argument("configuration", type=Path)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    anyio.run(serve, NodesConfiguration.model_validate_json(options.configuration.read_bytes()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
