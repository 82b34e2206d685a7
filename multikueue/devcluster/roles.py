# SPDX-License-Identifier: Apache-2.0
"""How our own processes are run in a federation: the manager, the agents, the virtual nodes.

Owns their command lines and configuration files, nothing of their life.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from multikueue.api import constants
from multikueue.api.meta import JsonObject
from multikueue.devcluster import probes, programs
from multikueue.devcluster.cluster import KUBELET_CLIENT, Cluster
from multikueue.devcluster.nodes.node import LEASE_SECONDS
from multikueue.devcluster.ports import LOOPBACK
from multikueue.devcluster.processes.process import ProcessSpec

if TYPE_CHECKING:
    from multikueue.devcluster.federation import WorkerSpec

MANAGER: Final = "manager"
AGENT: Final = "agent"
NODES: Final = "nodes"
# One identity for all managers of a federation, of which one runs at a time: the next one leads at once after a crash
# instead of waiting for the lease of its predecessor to run out.
_IDENTITY: Final = "devcluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerPorts:
    """Where the manager listens: for webhooks where the API server reaches it, else on the loopback interface."""

    host: str = LOOPBACK
    webhooks: int
    metrics: int
    health: int


def journal_path(folder: Path) -> Path:
    """Where the virtual nodes of a federation tell what ran."""
    return folder / "journal.jsonl"


def manager_configuration(overlay: Mapping[str, object]) -> JsonObject:
    """The manager's Configuration; each section of the overlay is laid over ours."""
    base: JsonObject = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": constants.DEFAULT_NAMESPACE,
        "integrations": {"frameworks": ["batch/job"]},
    }
    for section, value in overlay.items():
        old = base.get(section)
        base[section] = {**old, **value} if isinstance(old, dict) and isinstance(value, Mapping) else value
    return base


def manager(
    folder: Path, *, kubeconfig: Path, configuration: Path, ports: ManagerPorts, extra: Sequence[str]
) -> ProcessSpec:
    """The manager, beside the hub."""

    async def ready() -> bool:
        return await probes.answers_ok(f"http://{LOOPBACK}:{ports.health}/readyz")

    return ProcessSpec(
        name=MANAGER,
        arguments=[
            *_python(programs.MANAGER),
            f"--config={configuration}",
            f"--kubeconfig={kubeconfig}",
            f"--namespace={constants.DEFAULT_NAMESPACE}",
            f"--webhook-url=https://{ports.host}:{ports.webhooks}",
            f"--webhook-bind={ports.host}:{ports.webhooks}",
            f"--metrics-bind={LOOPBACK}:{ports.metrics}",
            f"--health-bind={LOOPBACK}:{ports.health}",
            f"--identity={_IDENTITY}",
            *extra,
        ],
        folder=folder,
        log=folder / "logs" / "manager.log",
        ready=ready,
    )


def agent(cluster: Cluster, *, hub_kubeconfig: Path, health_port: int, extra: Sequence[str]) -> ProcessSpec:
    """The agent beside a worker."""

    async def ready() -> bool:
        return await probes.answers_ok(f"http://{LOOPBACK}:{health_port}/healthz")

    return ProcessSpec(
        name=AGENT,
        owner=cluster.name,
        arguments=[
            *_python(programs.AGENT),
            f"--cluster={cluster.name}",
            f"--hub-kubeconfig={hub_kubeconfig}",
            f"--kubeconfig={cluster.kubeconfig}",
            f"--health-bind={LOOPBACK}:{health_port}",
            *extra,
        ],
        folder=cluster.folder,
        log=cluster.folder / "logs" / "agent.log",
        ready=ready,
    )


def nodes(folder: Path, clusters: Mapping[str, Cluster], specs: Sequence[WorkerSpec]) -> ProcessSpec:
    """The one process of all virtual nodes; writes its configuration."""
    from multikueue.devcluster.nodes.configuration import NodesConfiguration, NodesOfCluster
    from multikueue.devcluster.nodes.virtual_nodes import LogServing

    served = []
    for spec in specs:
        cluster = clusters[spec.name]
        pki = cluster.folder / "pki"
        serving = LogServing(
            ca=pki / "ca.crt", certificate=pki / "kubelet.crt", key=pki / "kubelet.key", caller=KUBELET_CLIENT
        )
        logs = serving if serving.certificate.exists() else None
        served.append(
            NodesOfCluster(cluster=spec.name, kubeconfig=cluster.kubeconfig, nodes=list(spec.nodes), logs=logs)
        )
    configuration = folder / "nodes.json"
    configuration.write_text(NodesConfiguration(journal=journal_path(folder), clusters=served).model_dump_json())
    return ProcessSpec(
        name=NODES,
        arguments=[*_python(programs.NODES), str(configuration)],
        folder=folder,
        log=folder / "logs" / "nodes.log",
        ready_within=LEASE_SECONDS,
    )


def _python(module: str) -> list[str]:
    return [sys.executable, "-m", module]
