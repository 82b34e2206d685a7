# SPDX-License-Identifier: Apache-2.0
"""Further labels of metrics, from labels and annotations of the object that each is about (`metrics.customLabels`).

They are added when metrics are read, so that a series goes on, with another label, when its object is labelled anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import Metric
from prometheus_client.registry import Collector

from manager.cache.views import View
from multikueue.api.configuration import Configuration, CustomLabel
from multikueue.api.constants import UNTRACKED_VALUE
from multikueue.api.featuregates import CUSTOM_LABELS
from multikueue.api.meta import JsonObject
from multikueue.api.resource import CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, Resource
from multikueue.core.keys import Key

_KINDS: Final = {resource.kind: resource for resource in (CLUSTER_QUEUES, LOCAL_QUEUES, COHORTS)}
_OF_KUEUE: Final = "kueue_"
_OF_LOCAL_QUEUES: Final = "kueue_local_queue_"


class CustomLabels(Collector):
    """The metrics of another collector, with these labels."""

    def __init__(self, inner: Collector, configuration: Configuration, view: Callable[[Resource], View]) -> None:
        """`view` gives the objects of a kind."""
        self._inner = inner
        wanted = configuration.metrics.custom_labels if configuration.gate(CUSTOM_LABELS) else ()
        self._labels: dict[Resource, Sequence[CustomLabel]] = {
            resource: [label for label in wanted if label.source_kind == kind] for kind, resource in _KINDS.items()
        }
        self._any = any(self._labels.values())
        self._view = view

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        known: dict[tuple[Resource, Key], dict[str, str]] = {}
        for family in self._inner.collect():
            yield self._labelled(family, known) if self._any and family.name.startswith(_OF_KUEUE) else family

    def _labelled(self, family: Metric, known: dict[tuple[Resource, Key], dict[str, str]]) -> Metric:
        made = Metric(family.name, family.documentation, family.type, family.unit)
        for sample in family.samples:
            about = _about(family.name, sample.labels)
            if about is not None and about not in known:
                known[about] = self._values(*about)
            more = {} if about is None else known[about]
            made.samples.append(sample._replace(labels={**sample.labels, **more}))
        return made

    def _values(self, resource: Resource, key: Key) -> dict[str, str]:
        labels = self._labels[resource]
        obj = self._view(resource).object(key) if labels else None
        return {f"custom_{label.name}": _value(label, obj) for label in labels}


def _about(family: str, labels: Mapping[str, str]) -> tuple[Resource, Key] | None:
    """The object that a sample is about; None if it is of no queue and no cohort."""
    if family.startswith(_OF_LOCAL_QUEUES):
        return LOCAL_QUEUES, Key(labels["namespace"], labels["name"])
    if "cluster_queue" in labels:
        return CLUSTER_QUEUES, Key("", labels["cluster_queue"])
    return (COHORTS, Key("", labels["cohort"])) if "cohort" in labels else None


def _value(label: CustomLabel, obj: JsonObject | None) -> str:
    metadata: JsonObject = {} if obj is None else obj["metadata"]
    if label.source_label_key:
        found = str((metadata.get("labels") or {}).get(label.source_label_key) or "")
    else:
        found = str((metadata.get("annotations") or {}).get(label.source_annotation_key) or "")
    return UNTRACKED_VALUE if found and label.tracked_values and found not in label.tracked_values else found
