# SPDX-License-Identifier: Apache-2.0
"""When quota that follows the workers is reduced, and what is reported when it cannot be set."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from devcluster.federation import enrolment
from manager.cache.indexes import CLUSTER_QUEUE_INDEX
from manager.cache.views import View
from manager.context import ManagerContext
from manager.dispatch.capacity_cache import CapacityCache
from manager.dispatch.checks import Checks
from manager.dispatch.clusters import Clusters
from manager.dispatch.quota_automation import QUOTA_GATE, QuotaAutomation
from manager.dispatch.transport.push_clusters import PushClusters
from manager.metrics import STANDALONE, ManagerMetrics
from manager.seals import Seals
from multikueue.api import configuration_file
from multikueue.api.constants import MULTIKUEUE_CONTROLLER
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    CLUSTER_REPORTS,
    LEASES,
    LOCAL_QUEUES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    SECRETS,
    Resource,
)
from multikueue.core.clock import ManualClock
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_micro_time
from multikueue.kube.cache.store import Store, read_row
from multikueue.kube.errors import Details, Forbidden
from multikueue.kube.rest.client import PatchKind
from multikueue.kube.runtime.controller import Result
from multikueue.kube.runtime.quarantine import Quarantine
from tests.unit.manager.builders import NOW
from worker_agent.hub.in_memory_mailbox import patched

pytestmark = pytest.mark.anyio

Object = dict[str, Any]
QUEUE = Key("", "q")
GATE = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nfeatureGates: {%s: %s}\n"


class Hub:
    """The caches of a management cluster: a queue of 10 cpu that follows pull workers of 4 cpu each."""

    def __init__(self, *workers: str) -> None:
        self.clock = ManualClock(NOW)
        self.seals = Seals.drawn(self.clock)
        self.writes: list[str] = []
        self.refusal = ""
        local = Store({CLUSTER_QUEUE_INDEX: lambda obj: [obj["spec"]["clusterQueue"]]})
        self._views = {LOCAL_QUEUES: View(LOCAL_QUEUES, clock=self.clock, store=local)}
        self._version = 0
        self.put(MULTIKUEUE_CONFIGS, "config", {"clusters": list(workers), "quotaManagement": "Automated"})
        parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "config"}
        self.put(ADMISSION_CHECKS, "mk", {"controllerName": MULTIKUEUE_CONTROLLER, "parameters": parameters})
        resources = [{"name": "cpu", "nominalQuota": "10"}]
        group = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": resources}]}
        strategy = {"admissionChecks": [{"name": "mk"}]}
        self.put(CLUSTER_QUEUES, "q", {"resourceGroups": [group], "admissionChecksStrategy": strategy})
        self.put(LOCAL_QUEUES, "q", {"clusterQueue": "q"}, namespace="team")
        for name in workers:
            for resource, manifest in zip((SECRETS, MULTIKUEUE_CLUSTERS), enrolment.manifests(name), strict=True):
                self._take(resource, manifest)
            self.reports(name, cpu="4")
            self.renew(name)

    def view(self, resource: Resource) -> View:
        return self._views.setdefault(resource, View(resource, clock=self.clock))

    def put(self, resource: Resource, name: str, spec: Object, *, namespace: str = "", **more: Object) -> None:
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        self._take(resource, {"metadata": metadata, "spec": spec, **more})

    def renew(self, cluster: str) -> None:
        """Its agent is there."""
        spec = {"renewTime": format_micro_time(self.clock.now()), "leaseDurationSeconds": 40}
        self.put(LEASES, "agent", spec, namespace=f"mk-{cluster}")

    def reports(self, cluster: str, *, cpu: str = "", problem: str = "") -> None:
        """Its agent reports a queue of that much, a problem, or nothing of the kind."""
        local = [{"namespace": "team", "name": "q"}]
        queue = {"name": "q", "active": True, "localQueues": local, "resources": [{"name": "cpu", "nominal": cpu}]}
        quotas = {"problem": problem} if problem else {"clusterQueues": [queue]} if cpu else None
        status = {} if quotas is None else {"quotas": quotas}
        self.put(CLUSTER_REPORTS, "agent", {}, namespace=f"mk-{cluster}", status=status)

    def manager(self, *, gate: bool = True) -> Manager:
        """One that begins now."""
        return Manager(self, gate=gate)

    async def make(self, resource: Resource, *arguments: Any, **more: Any) -> bytes:
        return self._take(resource, next(each for each in arguments if isinstance(each, dict)))

    async def patch(self, resource: Resource, name: str, body: Object, *, namespace: str = "", **more: Any) -> bytes:
        if self.refusal and resource is CLUSTER_QUEUES and "spec" in body:
            raise Forbidden(request="r", status=403, reason="Forbidden", message=self.refusal, details=Details())
        current = self.view(resource).object(Key(namespace, name))
        assert current is not None
        self.writes.append(f"{resource.plural} {' '.join(body)}")
        return self._take(resource, patched(current, body, PatchKind.MERGE))

    @property
    def queue(self) -> Object:
        found = self.view(CLUSTER_QUEUES).object(QUEUE)
        assert found is not None
        return found

    @property
    def cpu(self) -> str:
        return str(self.queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"])

    @property
    def message(self) -> str:
        """Reason and message of the condition."""
        (entry,) = self.queue["status"]["conditions"]
        return f"{entry['reason']}: {entry['message']}"

    def _take(self, resource: Resource, manifest: Object) -> bytes:
        self._version += 1
        metadata = {"uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", **manifest["metadata"]}
        raw = orjson.dumps({**manifest, "metadata": {**metadata, "resourceVersion": str(self._version)}})
        # Into the cache, as if its event had come: the overlay of an answer expires after a minute.
        self.view(resource).store.put(read_row(raw))
        return raw


class Manager:
    """What of a manager matters here."""

    def __init__(self, hub: Hub, *, gate: bool) -> None:
        self._hub = hub
        context = cast(
            ManagerContext,
            SimpleNamespace(
                namespace="kueue-system",
                manager_uid="m",
                seals=hub.seals,
                configuration=configuration_file.load(GATE % (QUOTA_GATE, str(gate).lower())),
                clock=hub.clock,
                metrics=ManagerMetrics(role=STANDALONE),
                caches=SimpleNamespace(view=hub.view, quarantine=Quarantine()),
                client=SimpleNamespace(apply=hub.make, create=hub.make, patch=hub.patch),
            ),
        )
        pull = SimpleNamespace(
            serves=lambda name: False, connecting=lambda name: False, replaced_by_agent=lambda name: None
        )
        self._clusters = Clusters(
            context,
            capacities=CapacityCache(wake=lambda key: None, now=hub.clock.now),
            changed=lambda name: None,
            push=cast(PushClusters, pull),
            reports_quotas=lambda name: self.quotas.uses(name),
        )
        self._checks = Checks(context, clusters=self._clusters, changed=lambda name: None)
        self.quotas = QuotaAutomation(context, checks=self._checks, clusters=self._clusters)
        self._checks.load(Key("", "mk"))

    async def look_at_clusters(self) -> None:
        """At each of them."""
        for key in self._hub.view(MULTIKUEUE_CLUSTERS).keys():  # noqa: SIM118  (a view is no mapping)
            await self._clusters.reconcile(key)

    async def reconcile(self) -> Result | None:
        """At every cluster, and at the queue."""
        await self.look_at_clusters()
        return await self.quotas.reconcile(QUEUE)


async def test_the_queue_has_what_its_workers_have_and_is_written_once() -> None:
    hub = Hub("w1", "w2")
    manager = hub.manager()
    await manager.reconcile()
    assert hub.cpu == "8"
    hub.writes.clear()
    assert await manager.reconcile() is None
    assert hub.writes == []


async def test_after_a_hub_was_down_each_agent_has_one_lease_to_report_in() -> None:
    hub = Hub("w1", "w2")
    await hub.manager().reconcile()
    hub.clock.advance(600)
    manager = hub.manager()
    again = await manager.reconcile()
    assert hub.cpu == "8"
    assert "no report yet since the manager started" in hub.message
    assert again is not None
    assert again.after is not None
    hub.renew("w1")
    hub.clock.advance(again.after)
    hub.renew("w1")
    await manager.reconcile()
    assert hub.cpu == "4"
    assert hub.message.endswith("without: w2 (not connected)")


async def test_one_that_has_reported_and_is_lost_counts_at_once() -> None:
    hub = Hub("w1", "w2")
    manager = hub.manager()
    await manager.reconcile()
    hub.clock.advance(39)
    hub.renew("w1")
    hub.clock.advance(2)
    await manager.reconcile()
    assert hub.cpu == "4"


async def test_most_of_three_lost_at_once_take_nothing_along() -> None:
    hub = Hub("w1", "w2", "w3")
    manager = hub.manager()
    await manager.reconcile()
    assert hub.cpu == "12"
    hub.clock.advance(60)
    hub.renew("w1")
    await manager.reconcile()
    assert hub.cpu == "12"
    assert "2 of 3 clusters were lost at once" in hub.message


@pytest.mark.parametrize("problem", ["", "it may not read the ClusterQueues: no"], ids=["no report", "refused"])
async def test_an_agent_without_a_report_keeps_the_current_quota(problem: str) -> None:
    hub = Hub("w1", "w2")
    hub.reports("w2", problem=problem)
    await hub.manager().reconcile()
    assert hub.cpu == "10"
    assert (problem or "its agent has not reported quotas yet") in hub.message


async def test_a_cluster_that_is_not_there_counts_for_nothing() -> None:
    hub = Hub("w1")
    hub.put(MULTIKUEUE_CONFIGS, "config", {"clusters": ["w1", "w9"], "quotaManagement": "Automated"})
    await hub.manager().reconcile()
    assert hub.cpu == "4"
    assert hub.message.endswith("w9 (there is no such MultiKueueCluster)")


async def test_a_quota_that_the_server_refuses_is_reported_and_retried_later() -> None:
    hub = Hub("w1")
    hub.refusal = "lendingLimit is more than nominalQuota"
    manager = hub.manager()
    again = await manager.reconcile()
    assert hub.cpu == "10"
    assert hub.message.startswith("UnsupportedConfiguration: ")
    assert hub.refusal in hub.message
    assert again is not None
    hub.refusal = ""
    await manager.reconcile()
    assert hub.cpu == "4"
    assert hub.message.startswith("QuotaAutomated: ")


async def test_agents_are_asked_while_the_gate_is_on_and_no_longer() -> None:
    hub = Hub("w1")

    def asked() -> object:
        report = hub.view(CLUSTER_REPORTS).object(Key("mk-w1", "agent"))
        return None if report is None else report["spec"].get("quotas")

    await hub.manager().reconcile()
    assert asked() is True
    manager = hub.manager(gate=False)
    await manager.look_at_clusters()
    assert asked() is False
    hub.writes.clear()
    await manager.look_at_clusters()
    assert hub.writes == []
