# SPDX-License-Identifier: Apache-2.0
"""The size of an elastic job of a declared kind: what of it is sent, and what changes of the remote job."""

from __future__ import annotations

import pytest

from multikueue.api.objects import JsonObject
from multikueue.jobs.declared.integration import DeclaredIntegration
from multikueue.jobs.framework.capabilities import ForwardingKind
from multikueue.jobs.framework.registry import known_integrations
from tests.unit.jobs.declared.builders import widget, widget_kind

RAY = known_integrations()["ray.io/raycluster"]
POD = {"spec": {"containers": [{"name": "c", "image": "i"}]}}


def cluster(*sizes: tuple[int, int], elastic: bool = True) -> JsonObject:
    """A RayCluster with a group for each pair of replicas and hosts."""
    groups = [
        {"groupName": f"g{index}", "replicas": replicas, "numOfHosts": hosts, "template": POD}
        for index, (replicas, hosts) in enumerate(sizes)
    ]
    annotations = {"kueue.x-k8s.io/elastic-job": "true"} if elastic else {}
    return {
        "metadata": {"name": "c", "namespace": "ns", "annotations": annotations},
        "spec": {"headGroupSpec": {"template": POD}, "workerGroupSpecs": groups},
    }


def forwarding() -> ForwardingKind:
    assert isinstance(RAY, ForwardingKind)
    return RAY


def groups(job: JsonObject) -> list[tuple[int, int]]:
    return [(each["replicas"], each["numOfHosts"]) for each in job["spec"]["workerGroupSpecs"]]


@pytest.mark.parametrize(
    ("wanted", "sizes", "sent"),
    [
        pytest.param([(4, 1)], {"g0": 2}, [(2, 1)], id="one host each"),
        pytest.param([(4, 2)], {"g0": 4}, [(2, 2)], id="several hosts each"),
        pytest.param([(4, 1), (1, 1)], {"g0": 2, "g1": 3}, [(2, 1), (1, 1)], id="a smaller group stays smaller"),
        pytest.param([(3, 1)], {"g0": 3}, [(3, 1)], id="as admitted"),
    ],
)
def test_no_more_pods_are_sent_than_were_admitted(
    wanted: list[tuple[int, int]], sizes: dict[str, int], sent: list[tuple[int, int]]
) -> None:
    found = forwarding().limited(cluster(*wanted), {"head": 1, **sizes})
    assert found is not None
    assert groups(found) == sent


def test_a_job_is_not_sent_if_no_field_limits_it_to_what_was_admitted() -> None:
    kind = widget_kind(resizable=True, podSets=[{"name": "main", "template": "$.spec.template", "count": 3}])
    assert kind.limited(widget(), {"main": 2}) is None


def test_the_remote_job_gets_the_replicas_and_hosts_of_the_manifest_and_nothing_else() -> None:
    remote, manifest = cluster((1, 1), (2, 1)), cluster((3, 1), (2, 2))
    manifest["spec"]["workerGroupSpecs"][0]["template"] = {"spec": {"containers": []}}
    patch = forwarding().forwarded_patch(remote, manifest)
    assert patch is not None
    changed = patch["spec"]["workerGroupSpecs"]
    assert [(each["replicas"], each["numOfHosts"], each["template"]) for each in changed] == [(3, 1, POD), (2, 2, POD)]


def test_a_remote_job_of_that_size_is_left_alone() -> None:
    assert forwarding().forwarded_patch(cluster((2, 1)), cluster((2, 1))) is None


def test_the_size_of_a_job_that_is_not_elastic_is_not_forwarded() -> None:
    assert forwarding().forwarded_patch(cluster((1, 1), elastic=False), cluster((3, 1), elastic=False)) is None


def test_without_the_forwarding_of_other_fields_the_size_still_is() -> None:
    assert isinstance(RAY, DeclaredIntegration)
    assert RAY.without_forwarding().forwarded_patch(cluster((1, 1)), cluster((3, 1))) is not None
