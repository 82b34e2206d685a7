# SPDX-License-Identifier: Apache-2.0
"""Which namespaces' jobs are ours (`managedJobsNamespaceSelector`, `docs/spec/kueue-api.md §9.13`)."""

from __future__ import annotations

from manager.views import View
from multikueue.api.configuration import Configuration
from multikueue.api.selector import core_selector
from multikueue.core.keys import Key


class ManagedNamespaces:
    """Answers by the labels a namespace has now; one that is not there is not ours."""

    def __init__(self, configuration: Configuration, namespaces: View) -> None:
        self._selector = core_selector(configuration.managed_jobs_namespace_selector)
        self._namespaces = namespaces

    def manages(self, name: str) -> bool:
        """Whether jobs of that namespace are managed."""
        namespace = self._namespaces.object(Key("", name))
        return namespace is not None and self._selector.matches(namespace["metadata"].get("labels") or {})
