# SPDX-License-Identifier: Apache-2.0
"""What the book of clusters makes of the Lease and the report of an agent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from devcluster.federation import enrolment
from manager.cache.views import View
from manager.context import ManagerContext
from manager.dispatch.capacity_cache import CapacityCache
from manager.dispatch.clusters import Clusters
from manager.dispatch.transport.push_clusters import PushClusters
from manager.seals import Seals
from multikueue.api import configuration_file
from multikueue.api.constants import CANNOT_STOP_ANNOTATION
from multikueue.api.resource import CLUSTER_REPORTS, LEASES, MULTIKUEUE_CLUSTERS, SECRETS, Resource
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_micro_time
from tests.unit.manager.builders import NOW

pytestmark = pytest.mark.anyio

Object = dict[str, Any]


class Hub:
    """The caches of a management cluster with one worker, `w1`, whose agent dials out; its writes go nowhere."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self._views: dict[Resource, View] = {}
        self._version = 0
        context = SimpleNamespace(
            namespace="kueue-system",
            manager_uid="m",
            seals=Seals.drawn(self.clock),
            configuration=configuration_file.load(""),
            clock=self.clock,
            caches=SimpleNamespace(view=self.view),
            client=SimpleNamespace(apply=self._written, create=self._written, patch=self._patched),
        )
        absent = SimpleNamespace(
            serves=lambda name: False, connecting=lambda name: False, replaced_by_agent=lambda name: None
        )
        self.clusters = Clusters(
            cast(ManagerContext, context),
            capacities=CapacityCache(wake=lambda key: None, now=self.clock.now),
            changed=lambda name: None,
            push=cast(PushClusters, absent),
            reports_quotas=lambda name: False,
        )
        for resource, manifest in zip((SECRETS, MULTIKUEUE_CLUSTERS), enrolment.manifests("w1"), strict=True):
            self.put(resource, manifest)

    def view(self, resource: Resource) -> View:
        return self._views.setdefault(resource, View(resource, clock=self.clock))

    def put(self, resource: Resource, manifest: Object) -> bytes:
        self._version += 1
        stored = {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": str(self._version)}
        raw = orjson.dumps({**manifest, "metadata": {**manifest["metadata"], **stored}})
        self.view(resource).on_write(raw)
        return raw

    def lease(self, *, annotations: dict[str, str]) -> None:
        self.put(
            LEASES,
            {
                "apiVersion": LEASES.api_version,
                "kind": LEASES.kind,
                "metadata": {"name": "agent", "namespace": "mk-w1", "annotations": annotations},
                "spec": {"renewTime": format_micro_time(self.clock.now()), "leaseDurationSeconds": 40},
            },
        )

    async def _written(self, resource: Resource, *arguments: Any, **more: Any) -> bytes:
        return self.put(resource, next(each for each in arguments if isinstance(each, dict)))

    async def _patched(self, resource: Resource, name: str, body: Object, **more: Any) -> bytes:
        current = self.view(resource).object(Key("", name))
        assert current is not None
        metadata = {**current["metadata"], **body.get("metadata", {})}
        return self.put(resource, {**current, **body, "metadata": metadata})


async def test_a_cluster_whose_agent_reports_it_can_stop_nothing_until_the_lease_is_renewed() -> None:
    hub = Hub()
    hub.lease(annotations={})
    await hub.clusters.reconcile(Key("", "w1"))
    assert (hub.clusters.inside("w1").available, hub.clusters.inside("w1").cannot_stop) == (True, False)
    hub.lease(annotations={CANNOT_STOP_ANNOTATION: "2026-01-01T12:00:00Z"})
    hub.clock.advance(41)
    await hub.clusters.reconcile(Key("", "w1"))
    assert (hub.clusters.inside("w1").available, hub.clusters.inside("w1").cannot_stop) == (False, True)
    assert hub.clusters.outside("w1", check="mk", why="it was taken out of the config").cannot_stop
    hub.lease(annotations={})
    await hub.clusters.reconcile(Key("", "w1"))
    assert (hub.clusters.inside("w1").available, hub.clusters.inside("w1").cannot_stop) == (True, False)


async def test_a_report_that_cannot_be_read_does_not_keep_its_cluster_from_being_judged() -> None:
    hub = Hub()
    hub.lease(annotations={})
    # The pattern of quantities in a CRD takes any exponent.
    group = {"nodes": 1, "capacity": [{"name": "cpu", "allocatable": "1e999", "free": "1"}]}
    manifest = {"apiVersion": CLUSTER_REPORTS.api_version, "kind": CLUSTER_REPORTS.kind}
    metadata = {"name": "agent", "namespace": "mk-w1"}
    hub.put(CLUSTER_REPORTS, {**manifest, "metadata": metadata, "spec": {}, "status": {"groups": [group]}})
    await hub.clusters.reconcile(Key("", "w1"))
    assert hub.clusters.inside("w1").available
    assert hub.clusters.inside("w1").reported_at is None
    hub.clock.advance(41)
    await hub.clusters.reconcile(Key("", "w1"))
    assert not hub.clusters.inside("w1").available


async def test_a_cluster_that_left_one_config_counts_as_lost_from_then_on_though_another_one_lists_it() -> None:
    hub = Hub()
    hub.lease(annotations={})
    await hub.clusters.reconcile(Key("", "w1"))
    left = hub.clusters.outside("w1", check="mk", why="it was taken out of the config").lost_since
    assert left == NOW
    hub.clock.advance(30)
    assert hub.clusters.inside("w1", check="other").available
    assert hub.clusters.outside("w1", check="mk", why="it was taken out of the config").lost_since == left
    assert hub.clusters.inside("w1", check="mk").available, "it is available again"
    hub.clock.advance(30)
    again = hub.clusters.outside("w1", check="mk", why="it was taken out of the config").lost_since
    assert again == hub.clock.now()


async def test_a_new_report_does_not_delay_the_moment_when_a_cluster_left_its_config() -> None:
    hub = Hub()
    hub.lease(annotations={})
    await hub.clusters.reconcile(Key("", "w1"))
    assert hub.clusters.outside("w1", check="mk", why="it was taken out of the config").lost_since == NOW
    hub.clock.advance(30)
    manifest = {"apiVersion": CLUSTER_REPORTS.api_version, "kind": CLUSTER_REPORTS.kind}
    metadata = {"name": "agent", "namespace": "mk-w1"}
    hub.put(CLUSTER_REPORTS, {**manifest, "metadata": metadata, "spec": {}, "status": {"namespaces": ["new"]}})
    await hub.clusters.reconcile(Key("", "w1"))
    assert hub.clusters.outside("w1", check="mk", why="it was taken out of the config").lost_since == NOW
