# SPDX-License-Identifier: Apache-2.0
"""The clusters that the manager reaches itself: which they are, by what kubeconfig, and how that goes.

Owns the life of a hosted mailbox and of the agent that serves it: it begins with a kubeconfig that may be used and
ends when that is taken away. A cluster whose MultiKueueCluster was deleted is served on until nothing of ours is left
on it, so that what runs there ends in good order; not so one whose kubeconfig is gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from manager.context import ManagerContext
from manager.dispatch.cluster_profiles import Access
from manager.dispatch.push_carrier import PushCarrier
from manager.dispatch.push_hosts import PushHosts, PushSettings
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import ClusterReason
from multikueue.api.resource import WORKLOADS
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.federation.cluster_health import LinkFacts
from multikueue.federation.kubeconfigs import KubeconfigProblem
from multikueue.kube import credentials
from multikueue.kube.credentials import ClusterConfig

_log = logging.getLogger(__name__)


class PushClusters:
    """Push as the rest of dispatch sees it."""

    def __init__(
        self,
        context: ManagerContext,
        *,
        settings: PushSettings,
        changed: Callable[[str], None],
        workload_changed: Callable[[Key], None],
    ) -> None:
        """`changed` hears of clusters whose link or report is another one now."""
        self._context = context
        self._changed = changed
        self.carrier = PushCarrier(
            manager_uid=context.manager_uid,
            workload_uid=self._workload_uid,
            changed=workload_changed,
            reported=changed,
        )
        self.hosts = PushHosts(context, self.carrier, settings=settings, changed=changed)
        self._configs: dict[str, tuple[str, ClusterConfig | KubeconfigProblem]] = {}

    def serves(self, cluster: str) -> bool:
        """Whether the cluster is reached this way."""
        return self.carrier.serves(cluster)

    def link(self, cluster: str) -> LinkFacts:
        """How it is reached now."""
        return self.hosts.link(cluster)

    def connecting(self, cluster: str) -> bool:
        """Whether the first attempt of this process has not ended yet."""
        link = self.link(cluster)
        return self.hosts.has(cluster) and not link.connected and link.lost_since is None

    def report(self, cluster: str) -> JsonObject:
        """The status of its last report."""
        return self.carrier.mailbox(cluster).report.get("status") or {}

    def ask(self, cluster: str, *, quotas: bool) -> None:
        """What its agent is to tell beside the rest, once there is one."""
        self.carrier.mailbox(cluster).ask(quotas=quotas)

    def serve(self, cluster: str, found: Access | KubeconfigProblem) -> KubeconfigProblem | None:
        """Reach the cluster by this kubeconfig, or not at all; gives what is wrong with it."""
        self.carrier.mailbox(cluster)
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
        """Its MultiKueueCluster is gone: serve it until it is empty; whether it still is not."""
        if not self.serves(cluster):
            return False
        if any(True for _ in self.carrier.workloads(cluster)) or not self.hosts.empty(cluster):
            return True
        _log.info("cluster %s: nothing of ours is left on it, it is served no more", cluster)
        self._forget(cluster)
        return False

    def replaced_by_agent(self, cluster: str) -> None:
        """An agent beside the cluster serves it from now on."""
        if self.serves(cluster):
            self._forget(cluster)

    def _config(self, cluster: str, access: Access) -> ClusterConfig | KubeconfigProblem:
        known = self._configs.get(cluster)
        if known is not None and known[0] == access.digest:
            return known[1]
        try:
            config: ClusterConfig | KubeconfigProblem = self._load(access)
        except BadInput as error:
            config = KubeconfigProblem(ClusterReason.BAD_KUBE_CONFIG, str(error))
        self._configs[cluster] = (access.digest, config)
        return config

    def _load(self, access: Access) -> ClusterConfig:
        """Raises `BadInput`, here and not at the first request, for key material that is none."""
        config = credentials.from_dict(access.kubeconfig, clock=self._context.clock)
        if config.server.startswith("https:"):
            config.tls.context()
        return config

    def _workload_uid(self, key: Key) -> str:
        workload = self._context.caches.view(WORKLOADS).object(key)
        return "" if workload is None else str(workload["metadata"]["uid"])

    def _forget(self, cluster: str) -> None:
        self._configs.pop(cluster, None)
        self.hosts.leave(cluster)
        self.carrier.drop(cluster)
