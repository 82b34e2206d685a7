# SPDX-License-Identifier: Apache-2.0
"""The command lines and files of kube-apiserver, kube-controller-manager and kube-scheduler of one cluster.

Disabled is what a local cluster does not need: leader election, priority and fairness, cloud and volume controllers.
Authentication, authorization and admission are those of a real cluster.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from devcluster import cluster, kubeconfigs, probes
from devcluster.pki import FRONT_PROXY, Authority, front_proxy, new_key, write_private
from devcluster.ports import LOOPBACK, SERVICE_ADDRESS, SERVICE_RANGE
from devcluster.processes.process import ProcessSpec
from devcluster.providers.binaries import etcd, release
from devcluster.providers.binaries.release import Binaries

_ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
_CONTROLLERS: Final = (
    "certificatesigningrequest-approving-controller",
    "certificatesigningrequest-cleaner-controller",
    "certificatesigningrequest-signing-controller",
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
)
# The defaults of 20 to 50 requests per second protect a shared API server; here they would be the bottleneck.
_QPS, _BURST = 500, 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneLayout:
    """The paths of one cluster's files, and the port of its API server."""

    name: str
    folder: Path
    etcd_folder: Path
    port: int

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return f"https://{LOOPBACK}:{self.port}"

    @property
    def etcd_prefix(self) -> str:
        """The prefix of its data in the shared etcd; includes the folder, as a later cluster may have the same name."""
        relative = os.path.relpath(self.folder.resolve(), self.etcd_folder.resolve())
        return f"/{self.name}-{hashlib.sha256(relative.encode()).hexdigest()[:12]}"

    @property
    def pki(self) -> Path:
        """The folder of keys and certificates."""
        return self.folder / "pki"

    def log(self, component: str) -> Path:
        """The path of a component's log."""
        return self.folder / "logs" / f"{component}.log"


def prepare(layout: ControlPlaneLayout, authority: Authority, *, hosts: Sequence[str] = ()) -> None:
    """Write the cluster's missing keys, certificates, kubeconfigs and configuration files."""
    layout.log("any").parent.mkdir(parents=True, exist_ok=True)
    if not (layout.pki / "service-accounts.key").exists():
        write_private(layout.pki / "service-accounts.key", new_key())
    if not (layout.pki / "apiserver.crt").exists():
        names = [LOOPBACK, "::1", "localhost", SERVICE_ADDRESS, "kubernetes", "kubernetes.default.svc", *hosts]
        authority.serving("kube-apiserver", hosts=names).write(layout.pki, name="apiserver")
        authority.client(cluster.KUBELET_CLIENT).write(layout.pki, name="kubelet-client")
        authority.serving("kubelet", hosts=[LOOPBACK, "localhost"]).write(layout.pki, name="kubelet")
    for component, user, groups in (
        (cluster.CONTROLLER_MANAGER, "system:kube-controller-manager", [cluster.ADMIN_GROUP]),
        (cluster.SCHEDULER, "system:kube-scheduler", []),
    ):
        path = layout.folder / f"{component}.kubeconfig"
        if not path.exists() or layout.server not in path.read_text():
            pair = authority.client(user, groups=groups)
            config = kubeconfigs.kubeconfig(
                cluster=layout.name, server=layout.server, ca=authority.certificate, user=user, pair=pair
            )
            kubeconfigs.write(config, path)
    (layout.folder / "scheduler.yaml").write_text(yaml.safe_dump(_scheduler_configuration(layout)))


_NO_LIMITS: Final = (
    "--enable-priority-and-fairness=false",
    "--max-requests-inflight=3000",
    "--max-mutating-requests-inflight=1000",
)


def api_server(binaries: Binaries, layout: ControlPlaneLayout, *, ca: bytes, fairness: bool = False) -> ProcessSpec:
    """The API server; with `fairness` it limits requests as the defaults of Kubernetes do."""
    pki = layout.pki
    proxy = front_proxy(pki)

    async def ready() -> bool:
        return await probes.answers_ok(f"{layout.server}/readyz", ca=ca)

    return ProcessSpec(
        name=cluster.API_SERVER,
        owner=layout.name,
        arguments=[
            str(binaries.path(release.API_SERVER)),
            f"--etcd-servers={etcd.SERVERS}",
            f"--etcd-prefix={layout.etcd_prefix}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={layout.port}",
            f"--tls-cert-file={pki / 'apiserver.crt'}",
            f"--tls-private-key-file={pki / 'apiserver.key'}",
            f"--client-ca-file={pki / 'ca.crt'}",
            f"--requestheader-client-ca-file={proxy.authority}",
            f"--requestheader-allowed-names={FRONT_PROXY}",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-uid-headers=X-Remote-Uid",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={proxy.certificate}",
            f"--proxy-client-key-file={proxy.key}",
            "--authorization-mode=RBAC",
            f"--service-account-issuer={_ISSUER}",
            f"--service-account-key-file={pki / 'service-accounts.key'}",
            f"--service-account-signing-key-file={pki / 'service-accounts.key'}",
            f"--service-cluster-ip-range={SERVICE_RANGE}",
            f"--kubelet-certificate-authority={pki / 'ca.crt'}",
            f"--kubelet-client-certificate={pki / 'kubelet-client.crt'}",
            f"--kubelet-client-key={pki / 'kubelet-client.key'}",
            "--kubelet-preferred-address-types=InternalIP",
            # A loopback address is not allowed as the endpoint of the kubernetes Service, and no pod would use it.
            "--endpoint-reconciler-type=none",
            *(() if fairness else _NO_LIMITS),
            "--profiling=false",
        ],
        folder=layout.etcd_folder,
        log=layout.log(cluster.API_SERVER),
        ready=ready,
    )


def controller_manager(binaries: Binaries, layout: ControlPlaneLayout) -> ProcessSpec:
    """The built-in controllers."""
    pki = layout.pki
    return ProcessSpec(
        name=cluster.CONTROLLER_MANAGER,
        owner=layout.name,
        arguments=[
            str(binaries.path(release.CONTROLLER_MANAGER)),
            f"--kubeconfig={layout.folder / f'{cluster.CONTROLLER_MANAGER}.kubeconfig'}",
            f"--service-account-private-key-file={pki / 'service-accounts.key'}",
            f"--root-ca-file={pki / 'ca.crt'}",
            f"--cluster-signing-cert-file={pki / 'ca.crt'}",
            f"--cluster-signing-key-file={pki / 'ca.key'}",
            f"--controllers={','.join(_CONTROLLERS)}",
            "--concurrent-job-syncs=10",
            "--leader-elect=false",
            f"--kube-api-qps={_QPS}",
            f"--kube-api-burst={_BURST}",
            "--secure-port=0",
        ],
        folder=layout.folder,
        log=layout.log(cluster.CONTROLLER_MANAGER),
    )


def scheduler(binaries: Binaries, layout: ControlPlaneLayout) -> ProcessSpec:
    """The scheduler."""
    return ProcessSpec(
        name=cluster.SCHEDULER,
        owner=layout.name,
        arguments=[
            str(binaries.path(release.SCHEDULER)),
            f"--config={layout.folder / 'scheduler.yaml'}",
            "--secure-port=0",
        ],
        folder=layout.folder,
        log=layout.log(cluster.SCHEDULER),
    )


def _scheduler_configuration(layout: ControlPlaneLayout) -> dict[str, object]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {
            "kubeconfig": str(layout.folder / f"{cluster.SCHEDULER}.kubeconfig"),
            "qps": _QPS,
            "burst": _BURST,
        },
    }
