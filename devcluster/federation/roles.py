# SPDX-License-Identifier: Apache-2.0
"""The command lines and configuration files of a federation's processes: manager, agents, virtual nodes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from devcluster import probes
from devcluster.cluster import KUBELET_CLIENT, Cluster
from devcluster.kubelet.node import LEASE_SECONDS
from devcluster.ports import LOOPBACK
from devcluster.processes import programs
from devcluster.processes.process import ProcessSpec
from multikueue.api import constants
from multikueue.api.meta import JsonObject

if TYPE_CHECKING:
    from devcluster.federation.spec import WorkerSpec

MANAGER: Final = "manager"
AGENT: Final = "agent"
NODES: Final = "nodes"
# All managers of a federation have the same identity, as one runs at a time: after a crash the next one leads at once
# instead of waiting until the lease of its predecessor expires.
_IDENTITY: Final = "devcluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerPorts:
    """The ports of the manager; API servers call `host`, and the others listen on the loopback interface."""

    host: str = LOOPBACK
    webhooks: int
    metrics: int
    health: int
    visibility: int = 0
    """0: the visibility API is not served."""


def journal_path(folder: Path) -> Path:
    """The journal of the virtual nodes."""
    return folder / "journal.jsonl"


def manager_configuration(overlay: Mapping[str, object]) -> JsonObject:
    """The manager's Configuration; each section of `overlay` is merged into the defaults."""
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


def agent_kinds(overlay: Mapping[str, object], *, folder: Path) -> list[str]:
    """The options by which an agent serves the kinds of a manager with that Configuration; writes a file of them."""
    configuration = manager_configuration(overlay)
    integrations: JsonObject = configuration["integrations"]
    external: list[JsonObject] = (configuration.get("multiKueue") or {}).get("externalFrameworks") or []
    options = [f"--frameworks={','.join(integrations['frameworks'])}"]
    if integrations.get("declarations"):
        file = folder / "job-kinds.json"
        file.write_bytes(orjson.dumps({"kind": "List", "items": integrations["declarations"]}))
        options.append(f"--job-kinds={file}")
    if external:
        names = (each["name"] + (f"={each['plural']}" if each.get("plural") else "") for each in external)
        options.append(f"--external-frameworks={','.join(names)}")
    return options


def metrics_url(overlay: Mapping[str, object], *, port: int) -> str:
    """The metrics URL of a manager with that Configuration."""
    section = overlay.get("metrics")
    secure = isinstance(section, Mapping) and section.get("secureServing") is True
    return f"{'https' if secure else 'http'}://{LOOPBACK}:{port}/metrics"


def manager(
    folder: Path,
    *,
    kubeconfig: Path,
    configuration: Path,
    ports: ManagerPorts,
    extra: Sequence[str],
    owner: str = "",
    webhook_url: str = "",
    visibility_url: str = "",
    identity: str = _IDENTITY,
    environment: Mapping[str, str] | None = None,
    log: str = "manager.log",
) -> ProcessSpec:
    """The manager of the hub, or of the worker in `owner`.

    `webhook_url` and `visibility_url` are addresses for the API server, if they differ from the ports.
    """

    health = f"http://{LOOPBACK}:{ports.health}/readyz"

    async def ready() -> bool:
        return await probes.answers_ok(health)

    return ProcessSpec(
        name=MANAGER,
        owner=owner,
        arguments=[
            *_python(programs.MANAGER),
            f"--config={configuration}",
            f"--kubeconfig={kubeconfig}",
            f"--namespace={constants.DEFAULT_NAMESPACE}",
            f"--webhook-url={webhook_url or f'https://{ports.host}:{ports.webhooks}'}",
            f"--webhook-bind={ports.host}:{ports.webhooks}",
            f"--visibility-bind={f'{ports.host}:{ports.visibility}' if ports.visibility else 0}",
            *([f"--visibility-url={visibility_url}"] if visibility_url else []),
            f"--metrics-bind={LOOPBACK}:{ports.metrics}",
            f"--health-bind={LOOPBACK}:{ports.health}",
            f"--identity={identity}",
            *extra,
        ],
        folder=folder,
        log=folder / "logs" / log,
        environment=environment or {},
        ready=ready,
        health=health,
    )


def agent(cluster: Cluster, *, hub_kubeconfig: Path, health_port: int, extra: Sequence[str]) -> ProcessSpec:
    """The agent of a worker."""

    health = f"http://{LOOPBACK}:{health_port}/healthz"

    async def ready() -> bool:
        return await probes.answers_ok(health)

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
        health=health,
    )


def nodes(folder: Path, clusters: Mapping[str, Cluster], specs: Sequence[WorkerSpec]) -> ProcessSpec:
    """The process of all virtual nodes; writes its configuration file."""
    from devcluster.kubelet.configuration import NodesConfiguration, NodesOfCluster
    from devcluster.kubelet.virtual_nodes import LogServing

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
