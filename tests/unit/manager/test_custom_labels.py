# SPDX-License-Identifier: Apache-2.0
"""Labels and annotations of queues and cohorts in their metrics."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from manager.cache.views import View
from manager.custom_labels import CustomLabels
from multikueue.api.configuration import Configuration
from multikueue.api.resource import CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, Resource
from multikueue.core.clock import ManualClock

Labels = dict[str, str]
TEAM = {"name": "team", "sourceLabelKey": "example.com/team"}
COST = {"name": "cost", "sourceAnnotationKey": "cost-center", "trackedValues": ["4711"]}
OF_LOCAL = {"name": "owner", "sourceKind": "LocalQueue", "sourceLabelKey": "owner"}
OF_COHORT = {"name": "site", "sourceKind": "Cohort", "sourceLabelKey": "site"}


class Hub:
    """Metrics of a ClusterQueue, a LocalQueue and a cohort, and the views of these."""

    def __init__(self, *labels: dict[str, Any], gate: bool = True) -> None:
        self.registry = CollectorRegistry()
        self._views = {
            resource: View(resource, clock=ManualClock(datetime(2026, 1, 1, tzinfo=UTC)))
            for resource in (CLUSTER_QUEUES, LOCAL_QUEUES, COHORTS)
        }
        settings = {"metrics": {"customLabels": list(labels)}, "featureGates": {"CustomMetricLabels": gate}}
        self.labels = CustomLabels(
            self.registry, Configuration.model_validate(settings), lambda resource: self._views[resource]
        )
        self._version = 0

    def put(self, resource: Resource, name: str, namespace: str = "", **metadata: Any) -> None:
        """Somebody writes the object."""
        self._version += 1
        named = {"name": name, "uid": name, "resourceVersion": str(self._version)}
        named |= {"namespace": namespace} if namespace else {}
        self._views[resource].on_write(orjson.dumps({"metadata": named | metadata}))

    def count(self, series: str, /, **labels: str) -> None:
        """A counter with these labels goes up."""
        Counter(series, "Text.", labels, registry=self.registry).labels(**labels).inc()

    def shown(self, name: str) -> Labels:
        """The labels of the only sample of that name."""
        families = text_string_to_metric_families(generate_latest(self.labels).decode())
        (found,) = [sample.labels for family in families for sample in family.samples if sample.name == name]
        return found


def test_metrics_have_the_labels_and_annotations_of_the_object_that_they_are_about() -> None:
    hub = Hub(TEAM, COST, OF_LOCAL, OF_COHORT)
    hub.put(CLUSTER_QUEUES, "q", labels={"example.com/team": "red"}, annotations={"cost-center": "4711"})
    hub.put(LOCAL_QUEUES, "q", "team", labels={"owner": "ada", "example.com/team": "blue"})
    hub.put(COHORTS, "c", labels={"site": "east"})
    hub.count("kueue_admitted_workloads", cluster_queue="q")
    hub.count("kueue_local_queue_admitted_workloads", name="q", namespace="team")
    hub.count("kueue_cohort_subtree", cohort="c")
    hub.count("kueue_cluster_queue_nominal", cluster_queue="q", cohort="c")
    of_queue = {"cluster_queue": "q", "custom_team": "red", "custom_cost": "4711"}
    assert hub.shown("kueue_admitted_workloads_total") == of_queue
    assert hub.shown("kueue_local_queue_admitted_workloads_total") == {
        "name": "q",
        "namespace": "team",
        "custom_owner": "ada",
    }
    assert hub.shown("kueue_cohort_subtree_total") == {"cohort": "c", "custom_site": "east"}
    assert hub.shown("kueue_cluster_queue_nominal_total") == of_queue | {"cohort": "c"}


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        pytest.param({"cost-center": "4711"}, "4711", id="a value of the list"),
        pytest.param({"cost-center": "<b>"}, "kueue.x-k8s.io/_UNTRACKED_VALUE_", id="another"),
        pytest.param({}, "", id="none"),
    ],
)
def test_only_values_of_the_list_are_shown_so_that_nobody_makes_series_without_end(
    annotations: Labels, want: str
) -> None:
    hub = Hub(COST)
    hub.put(CLUSTER_QUEUES, "q", annotations=annotations)
    hub.count("kueue_admitted_workloads", cluster_queue="q")
    assert hub.shown("kueue_admitted_workloads_total")["custom_cost"] == want


def test_a_queue_that_is_gone_has_the_labels_without_values() -> None:
    hub = Hub(TEAM)
    hub.count("kueue_admitted_workloads", cluster_queue="gone")
    assert hub.shown("kueue_admitted_workloads_total") == {"cluster_queue": "gone", "custom_team": ""}


def test_a_series_goes_on_when_its_queue_is_labelled_anew() -> None:
    hub = Hub(TEAM)
    hub.put(CLUSTER_QUEUES, "q", labels={"example.com/team": "red"})
    waits = Histogram("kueue_wait", "Text.", ("cluster_queue",), registry=hub.registry)
    waits.labels("q").observe(1)
    assert hub.shown("kueue_wait_count")["custom_team"] == "red"
    hub.put(CLUSTER_QUEUES, "q", labels={"example.com/team": "green"})
    assert hub.shown("kueue_wait_count")["custom_team"] == "green"
    assert hub.shown("kueue_wait_sum")["custom_team"] == "green"


@pytest.mark.parametrize("gate", [True, False])
def test_other_metrics_and_all_with_the_gate_off_stay_as_they_are(gate: bool) -> None:
    hub = Hub(TEAM, gate=gate)
    hub.put(CLUSTER_QUEUES, "q", labels={"example.com/team": "red"})
    hub.count("kueue_admission_attempts", result="success")
    hub.count("multikueue_dispatched", cluster_queue="q")
    hub.count("kueue_admitted_workloads", cluster_queue="q")
    assert hub.shown("kueue_admission_attempts_total") == {"result": "success"}
    assert hub.shown("multikueue_dispatched_total") == {"cluster_queue": "q"}
    assert ("custom_team" in hub.shown("kueue_admitted_workloads_total")) is gate
