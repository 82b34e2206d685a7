# SPDX-License-Identifier: Apache-2.0
"""The namespaces of the worker cluster, as far as the agent may read them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from multikueue.api.resource import NAMESPACES
from multikueue.core.clock import Clock
from multikueue.core.keys import Key
from multikueue.kube.cache.informer import Change, Informer
from multikueue.kube.rest.client import KubeClient
from multikueue.kube.runtime.quarantine import Quarantine
from worker_agent.local.rights import PermittedInformer, Rights
from worker_agent.reconnect import RECONNECT

_MAX_REPORTED: Final = 512  # the limit of a ClusterReport
_CLUSTER_UID_NAMESPACE: Final = Key("", "kube-system")


class WorkerNamespaces:
    """Their names, followed while the agent has the rights."""

    def __init__(
        self,
        client: KubeClient,
        *,
        rights: Rights,
        changed: Callable[[str], None],
        rights_changed: Callable[[], None],
        clock: Clock,
        random: Random,
        quarantine: Quarantine,
    ) -> None:
        """`changed` is called with the name of one that was created or deleted."""
        self._changed = changed
        self._informer = Informer(
            client,
            NAMESPACES,
            metadata_only=True,
            shrink=lambda obj: b"",
            clock=clock,
            random=random,
            backoff=RECONNECT,
            quarantine=quarantine,
        )
        self._informer.add_handler(self._on_change)
        self.permitted = PermittedInformer(self._informer, rights, changed=rights_changed)

    def exists(self, name: str) -> bool:
        """Whether there is such a namespace; if it cannot be known, the creation of a job in it fails."""
        return not self.permitted.usable or Key("", name) in self._informer.store

    def reported(self) -> list[str]:
        """Their names in a ClusterReport; empty if they are not known, or too many."""
        if not self.permitted.usable:
            return []
        known = self._informer.store.keys()
        names = sorted(key.name for key in known)
        return names if len(names) <= _MAX_REPORTED else []

    def cluster_uid(self) -> str:
        """The uid by which the cluster is recognised; empty if it is not known."""
        system = self._informer.store.get(_CLUSTER_UID_NAMESPACE)
        return "" if system is None else system.uid

    def _on_change(self, change: Change) -> None:
        if change.type != "MODIFIED":
            self._changed(change.key.name)
