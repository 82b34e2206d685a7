# SPDX-License-Identifier: Apache-2.0
"""The runtimes of jobs among given objects, without a cluster."""

from __future__ import annotations

from collections.abc import Iterable

from multikueue.api.objects import JsonObject
from multikueue.core.keys import Key
from multikueue.jobs.framework.capabilities import RuntimeKind
from multikueue.jobs.framework.protocol import JobIntegration

_DEFAULT_NAMESPACE = "default"


class GivenRuntimes:
    """Objects by group, kind and name; of equal ones the last counts."""

    def __init__(self, objects: Iterable[JsonObject]) -> None:
        self._objects: dict[tuple[str, str, Key], JsonObject] = {}
        for obj in objects:
            group, _, _ = str(obj.get("apiVersion") or "").rpartition("/")
            metadata = obj.get("metadata")
            if isinstance(metadata, dict):
                key = Key(str(metadata.get("namespace") or _DEFAULT_NAMESPACE), str(metadata.get("name")))
                self._objects[group, str(obj.get("kind")), key] = obj

    def added_to(self, job: JsonObject, integration: JobIntegration) -> JsonObject:
        """The job with the pods that its runtime describes, if its kind has runtimes."""
        if not isinstance(integration, RuntimeKind):
            return job
        named = integration.runtime_of(job)
        if named is None:
            return integration.with_runtime(job, None)
        key = Key(named.key.namespace or _DEFAULT_NAMESPACE, named.key.name)
        return integration.with_runtime(job, self._objects.get((named.resource.group, named.resource.kind, key)))
