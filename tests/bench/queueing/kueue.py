# SPDX-License-Identifier: Apache-2.0
"""Kueue's own manager on the hub of a run, for the same figures on the same machine.

Its binary is given (`go install sigs.k8s.io/kueue/cmd/kueue@v0.17.0`), and nothing of it is part of this repository. It
has the webhooks and the conversion that Kueue installs (`docs/spec/kueue-api.md §3`), a client without limits, and
no jobs. It does not start without a certificate for its metrics in `/etc/kueue/metrics/certs`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import orjson
import yaml

from devcluster import probes
from devcluster.cluster import Cluster
from devcluster.pki import Authority
from devcluster.ports import LOOPBACK, PortRegistry
from devcluster.processes.process import Process, ProcessSpec
from manager.webhooks.configurations import (
    KUEUE_HOOKS,
    WebhookClientConfig,
    configurations,
    conversion_patch,
    job_hooks,
)
from multikueue.api.crds import CONVERTED_KINDS
from multikueue.api.resource import CLUSTER_ROLE_BINDINGS, CUSTOM_RESOURCE_DEFINITIONS, KUEUE_RESOURCES
from multikueue.jobs.framework.registry import JobRegistry, known_integrations
from tests.support.service_accounts import service_account

_SYSTEM: Final = ("kube-system", "kueue-system")
_NO_LIMIT: Final = 10_000
_POD: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_FIELD_MANAGER: Final = "bench"


@dataclass(frozen=True, slots=True)
class StartedManager:
    """A manager of either kind."""

    process: Process
    metrics: str
    """The URL of its metrics; Kueue's wants a token of a user who may read them."""
    visibility: str = ""
    """The URL of its visibility API, if it is served."""


@asynccontextmanager
async def running_kueue(
    cluster: Cluster,
    binary: Path,
    *,
    folder: Path,
    ports: PortRegistry,
    configuration: Mapping[str, Any] | None = None,
    visibility: bool = False,
) -> AsyncIterator[StartedManager]:
    """The manager, with its webhooks installed on the cluster, and these sections of its configuration.

    With `visibility` it serves pending workloads, too, and `FileExistsError` says that this machine is a pod.
    """
    webhooks, metrics, health = (ports.take() for _ in range(3))
    shows = ports.take() if visibility else 0
    certificates = folder / "certificates"
    certificates.mkdir()
    authority = Authority.create("kueue")
    authority.serving("kueue", hosts=[LOOPBACK]).write(certificates, name="tls")
    given = dict(configuration or {})
    measured = given.get("metrics") or {}
    file = folder / "kueue.json"
    file.write_bytes(
        orjson.dumps(
            {
                "apiVersion": "config.kueue.x-k8s.io/v1beta2",
                "kind": "Configuration",
                "namespace": "kueue-system",
                "health": {"healthProbeBindAddress": f"{LOOPBACK}:{health}"},
                "metrics": {"bindAddress": f"{LOOPBACK}:{metrics}", **measured},
                "webhook": {"host": LOOPBACK, "port": webhooks, "certDir": str(certificates)},
                "leaderElection": {"leaderElect": False},
                "internalCertManagement": {"enable": False},
                "clientConnection": {"qps": _NO_LIMIT, "burst": _NO_LIMIT},
                "integrations": {"frameworks": []},
                **({"visibilityServer": {"bindAddress": LOOPBACK, "bindPort": shows}} if visibility else {}),
                **{key: value for key, value in given.items() if key != "metrics"},
                "featureGates": {"VisibilityOnDemand": visibility, **(given.get("featureGates") or {})},
            }
        )
    )
    ready = f"http://{LOOPBACK}:{health}/readyz"
    environment = {"KUBECONFIG": str(cluster.kubeconfig)}

    async def is_ready() -> bool:
        return await probes.answers_ok(ready)

    async with AsyncExitStack() as stack:
        if visibility:
            environment |= await stack.enter_async_context(_in_cluster(cluster))
        process = Process(
            ProcessSpec(
                name="manager",
                arguments=[
                    str(binary),
                    f"--config={file}",
                ],
                folder=folder,
                log=folder / "kueue.log",
                environment=environment,
                ready=is_ready,
            )
        )
        stack.push_async_callback(process.stop)
        await process.start()
        frameworks = (given.get("integrations") or {}).get("frameworks") or ()
        await _install_webhooks(cluster, f"https://{LOOPBACK}:{webhooks}", authority, frameworks=frameworks)
        yield StartedManager(process, f"https://{LOOPBACK}:{metrics}/metrics", f"https://{LOOPBACK}:{shows}")


@asynccontextmanager
async def _in_cluster(cluster: Cluster) -> AsyncIterator[dict[str, str]]:
    """What its visibility API takes for that of a pod, to review tokens, whatever its kubeconfig is.

    The files are removed afterwards; those of a real pod are left alone, with `FileExistsError`.
    """
    token_file, authority_file = _POD / "token", _POD / "ca.crt"
    if token_file.exists() or authority_file.exists():
        message = f"{_POD} holds the credentials of a pod: run the comparison outside a cluster, or remove what is left"
        raise FileExistsError(message)
    named = {"kind": "ServiceAccount", "name": "kueue", "namespace": "kueue-system"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "kueue"},
    }
    async with cluster.client() as client:
        token = await service_account(client, "kueue", namespace="kueue-system")
        await client.create(CLUSTER_ROLE_BINDINGS, {**binding, "roleRef": role, "subjects": [named]})
        given = yaml.safe_load(await anyio.Path(cluster.kubeconfig).read_text())
    _POD.mkdir(parents=True, exist_ok=True)
    try:
        token_file.write_text(token)
        authority_file.write_bytes(b64decode(given["clusters"][0]["cluster"]["certificate-authority-data"]))
        server = urlsplit(cluster.server)
        yield {"KUBERNETES_SERVICE_HOST": str(server.hostname), "KUBERNETES_SERVICE_PORT": str(server.port)}
    finally:
        token_file.unlink(missing_ok=True)
        authority_file.unlink(missing_ok=True)


async def _install_webhooks(cluster: Cluster, url: str, authority: Authority, *, frameworks: Iterable[str]) -> None:
    target = WebhookClientConfig(url=url, ca_bundle=b64encode(authority.certificate).decode())
    converted = [each.qualified for each in KUEUE_RESOURCES if each.kind in CONVERTED_KINDS]
    jobs = job_hooks(JobRegistry(frameworks, known=known_integrations()))
    # Kueue asks for every write of its kinds.
    hooks = [replace(hook, conditions=(), not_by_us=False) for hook in (*KUEUE_HOOKS, *jobs)]
    async with cluster.client() as client:
        for name in converted:
            await client.patch(CUSTOM_RESOURCE_DEFINITIONS, name, conversion_patch(target), manager=_FIELD_MANAGER)
        for resource, configuration in configurations(hooks, target, excluded=_SYSTEM):
            await client.create(resource, configuration)
