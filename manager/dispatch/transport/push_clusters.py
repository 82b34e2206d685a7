# SPDX-License-Identifier: Apache-2.0
"""The clusters that the manager connects to itself: which they are, with what kubeconfig, and their connections.

A hosted mailbox and its agent exist from a usable kubeconfig until that is removed. A cluster whose MultiKueueCluster
was deleted is served until it is empty, so that what runs there ends in order; one whose kubeconfig was removed is not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from manager.context import ManagerContext
from manager.dispatch.transport.cluster_profiles import JudgedKubeconfig
from manager.dispatch.transport.job_slices import JobSlices
from manager.dispatch.transport.push_hosts import PushHosts, PushSettings
from manager.dispatch.transport.push_transport import PushTransport
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ClusterReason
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.hub.health import LinkFacts
from multikueue.dispatch.protocol.kubeconfigs import KubeconfigProblem
from multikueue.kube.rest import credentials
from multikueue.kube.rest.credentials import ClusterConfig

_log = logging.getLogger(__name__)


class PushClusters:
    """Push, as the rest of dispatch uses it."""

    def __init__(
        self,
        context: ManagerContext,
        *,
        settings: PushSettings,
        changed: Callable[[str], None],
        workload_changed: Callable[[Key], None],
    ) -> None:
        """`changed` is called with a cluster whose link or report changed."""
        self._context = context
        self._changed = changed
        self._slices = JobSlices(context.caches)
        self.transport = PushTransport(
            manager_uid=context.manager_uid,
            workload_uid=self._workload_uid,
            changed=workload_changed,
            reported=changed,
        )
        self.hosts = PushHosts(context, self.transport, settings=settings, changed=changed)
        self._configs: dict[str, tuple[str, ClusterConfig | KubeconfigProblem]] = {}

    def serves(self, cluster: str) -> bool:
        """Whether the manager connects to the cluster itself."""
        return self.transport.serves(cluster)

    def link(self, cluster: str) -> LinkFacts:
        """The state of its connection."""
        return self.hosts.link(cluster)

    def connecting(self, cluster: str) -> bool:
        """Whether the first attempt of this process has not ended yet."""
        link = self.link(cluster)
        return self.hosts.has(cluster) and not link.connected and link.lost_since is None

    def report(self, cluster: str) -> JsonObject:
        """The status of its last report."""
        return self.transport.mailbox(cluster).report.get("status") or {}

    def ask(self, cluster: str, *, quotas: bool) -> None:
        """Set what its agent is to report in addition, once there is one."""
        self.transport.mailbox(cluster).request_quotas(quotas=quotas)

    def serve(self, cluster: str, found: JudgedKubeconfig | KubeconfigProblem) -> KubeconfigProblem | None:
        """Connect to the cluster with this kubeconfig, or not at all; returns what is wrong with it."""
        self.transport.mailbox(cluster)
        if isinstance(found, KubeconfigProblem):
            self.hosts.leave(cluster)
            return found
        config = self._config(cluster, found)
        if isinstance(config, KubeconfigProblem):
            self.hosts.leave(cluster)
            return config
        self.hosts.serve(cluster, found, config)
        return None

    def removed(self, cluster: str) -> bool:
        """Serve a cluster without MultiKueueCluster until it is empty; whether it still is not."""
        if not self.serves(cluster):
            return False
        if any(True for _ in self.transport.workloads(cluster)) or not self.hosts.empty(cluster):
            return True
        _log.info("cluster is empty and no longer served cluster=%s", cluster)
        self._forget(cluster)
        return False

    def replaced_by_agent(self, cluster: str) -> None:
        """An agent beside the cluster serves it from now on."""
        if self.serves(cluster):
            self._forget(cluster)

    def _config(self, cluster: str, access: JudgedKubeconfig) -> ClusterConfig | KubeconfigProblem:
        known = self._configs.get(cluster)
        if known is not None and known[0] == access.digest:
            return known[1]
        try:
            config: ClusterConfig | KubeconfigProblem = self._load(access)
        except BadInput as error:
            config = KubeconfigProblem(ClusterReason.BAD_KUBE_CONFIG, str(error))
        self._configs[cluster] = (access.digest, config)
        return config

    def _load(self, access: JudgedKubeconfig) -> ClusterConfig:
        """Raises `BadInput` for invalid key material here and not at the first request."""
        config = credentials.from_dict(access.kubeconfig, clock=self._context.clock)
        if config.server.startswith("https:"):
            config.tls.context()
        return config

    def _workload_uid(self, key: Key) -> str:
        return self._slices.uid_of(key)

    def _forget(self, cluster: str) -> None:
        self._configs.pop(cluster, None)
        self.hosts.leave(cluster)
        self.transport.drop(cluster)
