# SPDX-License-Identifier: Apache-2.0
"""Whether a running pod may be resized: one that uses quota grows to what its Workload requests, and no further.

Kubernetes resizes pods by the subresource `pods/resize`, and the quota of a Workload does not follow. A pod of a kind
that is queued itself would be deleted for it; one of a Job would continue, since the Job is what is compared.
"""

from __future__ import annotations

from collections.abc import Iterable

from manager.cache.ancestors import Ancestry, ancestry
from manager.cache.indexes import OWNER_INDEX, owner_term
from manager.cache.queue_targets import Views
from multikueue.api.constants import MANAGED_LABEL, MANAGED_LABEL_VALUE
from multikueue.api.meta import JsonObject
from multikueue.api.objects import controller_of
from multikueue.api.resource import PODS, WORKLOADS
from multikueue.core.printable import excerpt
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.jobs.kinds.oversized_pods import growth, surplus


class ResizeLimits:
    """Compares the new size of a pod with the old one, and with what quota is reserved for."""

    def __init__(self, registry: JobRegistry, views: Views, *, manage_unqueued: bool) -> None:
        self._registry = registry
        self._views = views
        self._manage_unqueued = manage_unqueued

    def refusal(self, pod: JsonObject, old: JsonObject, *, namespace: str) -> str:
        """Why the pod may not get that size; empty if it may."""
        more = growth(pod, old)
        if not more:
            return ""
        held = {**old, "metadata": {**old["metadata"], "namespace": namespace}}
        above = ancestry(held, self._registry, self._views, kind=PODS, manage_unqueued=self._manage_unqueued)
        holder = _holder(held, above)
        if not holder or any(not surplus(pod, each, status) for each, status in self._single_sets(held, above)):
            return ""
        return (
            f"spec.containers: {more}: the pod uses the quota of {holder}, which is not increased by a resize; a queued"
            " pod may be made smaller, and as large as its Workload requests; submit a job of the new size"
        )

    def _single_sets(self, pod: JsonObject, above: Ancestry) -> Iterable[tuple[JsonObject, JsonObject]]:
        """The pod set of each Workload of the pod that has one only, with the status of that Workload.

        Which of several pod sets a pod is counted in is in its labels, which its user can change.
        """
        if above.integration is not None and above.key is not None:
            kind, name = above.integration.resource, above.key.name
        else:
            kind, name = PODS, str(pod["metadata"].get("name") or "")
        term = owner_term(
            api_version=kind.api_version, kind=kind.kind, namespace=pod["metadata"]["namespace"], name=name
        )
        for workload in self._views.view(WORKLOADS).objects(OWNER_INDEX, term):
            pod_sets: list[JsonObject] = (workload.get("spec") or {}).get("podSets") or []
            if len(pod_sets) == 1:
                yield pod_sets[0], workload.get("status") or {}


def _holder(pod: JsonObject, above: Ancestry) -> str:
    """Whose quota the pod uses, for a message; empty if it uses none."""
    if above.integration is not None and above.key is not None:
        return f"{above.integration.resource.kind} {excerpt(above.key.name)}"
    owner = controller_of(pod)
    if owner is not None and above.is_managed:
        return f"{excerpt(owner.get('kind'))} {excerpt(owner.get('name'))}"
    labels: JsonObject = pod["metadata"].get("labels") or {}
    return "its Workload" if labels.get(MANAGED_LABEL) == MANAGED_LABEL_VALUE else ""
