# SPDX-License-Identifier: Apache-2.0
"""Which namespaces' jobs are ours (`managedJobsNamespaceSelector`, `docs/spec/kueue-api.md §9.13`)."""

from __future__ import annotations

from manager.cache.views import View
from multikueue.api.configuration import Configuration
from multikueue.api.constants import DEFAULT_QUEUE_LABEL
from multikueue.api.selector import core_selector
from multikueue.core.keys import Key


class ManagedNamespaces:
    """Decides by the labels a namespace has now; a missing namespace is not managed."""

    def __init__(self, configuration: Configuration, namespaces: View) -> None:
        self._selector = core_selector(configuration.managed_jobs_namespace_selector)
        self._namespaces = namespaces

    def has(self, name: str) -> bool:
        """Whether the namespace is in the cache; a new one may not be yet."""
        return self._namespaces.get(Key("", name)) is not None

    def manages(self, name: str) -> bool:
        """Whether jobs of that namespace are managed."""
        namespace = self._namespaces.object(Key("", name))
        return namespace is not None and self._selector.matches(namespace["metadata"].get("labels") or {})

    def queue_of(self, name: str) -> str:
        """The LocalQueue in the label of the namespace, for jobs that name none; empty without one."""
        namespace = self._namespaces.object(Key("", name)) or {}
        labels: dict[str, str] = (namespace.get("metadata") or {}).get("labels") or {}
        return str(labels.get(DEFAULT_QUEUE_LABEL) or "")
