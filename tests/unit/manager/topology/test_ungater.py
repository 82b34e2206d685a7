# SPDX-License-Identifier: Apache-2.0
"""Pods that wait for the domain that their Workload was given for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from manager.topology.ungater import TopologyUngater
from manager.workload import changes
from manager.workload.status import Status
from multikueue.api.constants import (
    POD_GROUP_POD_INDEX_LABEL_ANNOTATION,
    POD_INDEX_OFFSET_ANNOTATION,
    WORKLOAD_ANNOTATION,
)
from multikueue.api.resource import WORKLOADS
from multikueue.api.topologyslices import compress
from multikueue.kube.errors import Conflict
from tests.support.stub_api import status_answer
from tests.unit.manager.builders import NOW, admitted, evicted, pending, reserved, wire
from tests.unit.manager.topology.builders import BLOCK, GATE, KEY, RACK, Object, Site, pod, site

pytestmark = pytest.mark.anyio

INDEX = "batch.kubernetes.io/job-completion-index"
REPLICA = "training.kubeflow.org/replica-index"
MEMBER = "kueue.x-k8s.io/pod-group-pod-index"


def assigned(domains: Mapping[str, int], *, name: str = "main", levels: tuple[str, ...] = (RACK,)) -> Object:
    """The assignment of a pod set; the values of a domain are separated by slashes."""
    plain = [{"values": values.split("/"), "count": count} for values, count in domains.items()]
    topology = compress({"levels": list(levels), "domains": plain})
    return {"name": name, "flavors": {"cpu": "tas"}, "count": sum(domains.values()), "topologyAssignment": topology}


def placed(status: Status, *assignments: Object) -> Status:
    """The status with these assignments."""
    return replace(status, admission={"clusterQueue": "cq", "podSetAssignments": list(assignments)})


def workload(
    status: Status, *, requests: Mapping[str, Object] | None = None, name: str = "w", **metadata: Any
) -> Object:
    """The Workload with that status, and with the topology requests of its pod sets."""
    made = wire(status, name=name, **metadata)
    if requests is not None:
        made["spec"]["podSets"] = [
            {"name": pod_set, "count": 1, "template": {}, "topologyRequest": request}
            for pod_set, request in requests.items()
        ]
    return made


class Ungated:
    """What a server shows of the pods that were started."""

    def __init__(self, at: Site) -> None:
        self.site = at
        self.ungater = TopologyUngater(at.context, at.objects)

    async def start(self) -> dict[str, str]:
        """The domains of all pods that have one, once the Workload was reconciled."""
        await self.ungater.reconcile(KEY)
        return self.domains

    @property
    def domains(self) -> dict[str, str]:
        pods = self.site.server.pods.items()
        return {
            name: "/".join(selector.values()) for name, each in pods if (selector := each["spec"].get("nodeSelector"))
        }

    @property
    def started(self) -> list[str]:
        """The pods that were patched, in order."""
        return [name for name, _ in self.site.server.patches]


@asynccontextmanager
async def ungated(made: Object | None, *pods: Object) -> AsyncIterator[Ungated]:
    """A manager that has seen the Workload and these pods."""
    async with site() as at:
        await at.has_pods(*pods)
        if made is not None:
            at.has_workload(made)
        yield Ungated(at)


async def test_each_pod_gets_the_selector_of_its_domain_and_loses_the_gate_in_one_patch() -> None:
    levels = (BLOCK, RACK)
    status = placed(admitted(), assigned({"b1/r1": 1, "b1/r2": 1}, levels=levels))
    own = {"name": "example.com/own"}
    first, second = pod("a"), pod("b", gates=(own, GATE))
    second["spec"]["nodeSelector"] = {"disk": "ssd"}
    async with ungated(workload(status), first, second) as found:
        await found.start()
        assert found.site.server.patches == [
            (
                "a",
                {
                    "metadata": {"resourceVersion": "1"},
                    "spec": {"nodeSelector": {BLOCK: "b1", RACK: "r1"}, "schedulingGates": None},
                },
            ),
            (
                "b",
                {
                    "metadata": {"resourceVersion": "1"},
                    "spec": {"nodeSelector": {BLOCK: "b1", RACK: "r2"}, "schedulingGates": [own]},
                },
            ),
        ]
        assert "schedulingGates" not in found.site.server.pods["a"]["spec"]
        assert found.site.server.pods["b"]["spec"]["nodeSelector"]["disk"] == "ssd"


async def test_a_pod_that_replaces_one_of_a_failed_node_waits_until_it_has_another_place() -> None:
    before = placed(admitted(), assigned({"r1": 1, "r2": 1}))
    async with ungated(workload(replace(before, unhealthy_nodes=("r1",))), pod("a")) as found:
        assert await found.start() == {}
        found.site.has_workload(workload(placed(admitted(), assigned({"r2": 1, "r3": 1})), version="2"))
        assert await found.start() == {"a": "r2"}


async def test_each_pod_set_has_its_own_domains() -> None:
    status = placed(admitted(), assigned({"r1": 1}, name="driver"), assigned({"r2": 2}, name="worker"))
    pods = (
        pod("a", pod_set="worker"),
        pod("b", pod_set="driver"),
        pod("c", pod_set="worker"),
        pod("d", pod_set="none"),
    )
    async with ungated(workload(status), *pods) as found:
        assert await found.start() == {"a": "r2", "b": "r1", "c": "r2"}


@pytest.mark.parametrize("label", [INDEX, REPLICA, MEMBER])
async def test_pods_with_ranks_have_the_domains_in_the_order_of_their_ranks(label: str) -> None:
    pods = [pod(name, labels={label: rank}) for name, rank in (("a", "2"), ("b", "1"), ("c", "0"))]
    async with ungated(workload(placed(admitted(), assigned({"r1": 1, "r2": 2}))), *pods) as found:
        assert await found.start() == {"c": "r1", "b": "r2", "a": "r2"}


async def test_the_pods_of_a_group_name_the_label_of_their_ranks() -> None:
    named = {WORKLOAD_ANNOTATION: "w", POD_GROUP_POD_INDEX_LABEL_ANNOTATION: "rank"}
    pods = [pod(name, labels={"rank": rank}, annotations=named) for name, rank in (("a", "1"), ("b", "0"))]
    async with ungated(workload(placed(admitted(), assigned({"r1": 1, "r2": 1}))), *pods) as found:
        assert await found.start() == {"b": "r1", "a": "r2"}


@pytest.mark.parametrize(("offset", "want"), [("1", {"b": "r1", "a": "r2"}), ("x", {"a": "r1", "b": "r2"})])
async def test_the_ranks_of_pods_may_begin_with_another_number(offset: str, want: dict[str, str]) -> None:
    annotations = {WORKLOAD_ANNOTATION: "w", POD_INDEX_OFFSET_ANNOTATION: offset}
    pods = [pod(name, labels={REPLICA: rank}, annotations=annotations) for name, rank in (("a", "2"), ("b", "1"))]
    async with ungated(workload(placed(admitted(), assigned({"r1": 1, "r2": 1}))), *pods) as found:
        assert await found.start() == want


async def test_the_workload_names_the_labels_of_ranks_and_of_subgroups() -> None:
    request = {"podIndexLabel": "at", "subGroupIndexLabel": "group", "subGroupCount": 2}
    places = (("a", "1", "1"), ("b", "0", "1"), ("c", "1", "0"), ("d", "0", "0"))
    pods = [pod(name, labels={"at": at, "group": group, INDEX: "0"}) for name, at, group in places]
    made = workload(
        placed(admitted(), assigned({"r1": 1, "r2": 1, "r3": 1, "r4": 1})),
        requests={"main": {"required": RACK} | request},
    )
    async with ungated(made, *pods) as found:
        assert await found.start() == {"d": "r1", "c": "r2", "b": "r3", "a": "r4"}


async def test_pods_of_which_one_has_no_rank_are_taken_in_the_order_of_their_names() -> None:
    pods = (pod("a", labels={INDEX: "1"}), pod("b"))
    async with ungated(workload(placed(admitted(), assigned({"r1": 1, "r2": 1}))), *pods) as found:
        assert await found.start() == {"a": "r1", "b": "r2"}


async def test_no_domain_gets_more_pods_than_the_workload_has_there() -> None:
    pods = (pod("a", started_in={RACK: "r2"}), pod("b"), pod("c"), pod("d"))
    async with ungated(workload(placed(admitted(), assigned({"r1": 1, "r2": 2}))), *pods) as found:
        assert await found.start() == {"a": "r2", "b": "r1", "c": "r2"}


async def test_a_pod_that_was_started_counts_before_the_watch_shows_it() -> None:
    async with ungated(workload(placed(admitted(), assigned({"r1": 1, "r2": 1}))), pod("a")) as found:
        assert await found.start() == {"a": "r1"}
        stale = {**found.site.server.pods, "a": pod("a")}
        await found.site.has_pods(*stale.values(), pod("b"), pod("c"))
        await found.start()
        await found.start()
        assert found.started == ["a", "b"]
        assert found.domains == {"b": "r2"}, "and is not started twice"


async def test_the_place_of_a_pod_that_is_gone_is_given_to_another() -> None:
    status = placed(admitted(), assigned({"r1": 1}))
    async with ungated(workload(status), pod("a"), pod("b")) as found:
        assert await found.start() == {"a": "r1"}
        await found.site.has_pods(pod("b"))
        assert await found.start() == {"b": "r1"}


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(None, id="that is gone"),
        pytest.param(workload(pending()), id="that waits"),
        pytest.param(workload(placed(reserved(), assigned({"r1": 1}))), id="that holds quota and is not admitted"),
        pytest.param(
            workload(evicted(placed(admitted(), assigned({"r1": 1})), "Preempted")), id="that is being evicted"
        ),
        pytest.param(
            workload(changes.finish(placed(admitted(), assigned({"r1": 1})), reason="Succeeded", message="", now=NOW)),
            id="that has finished",
        ),
        pytest.param(workload(admitted()), id="that was given no domains"),
    ],
)
async def test_no_pod_is_started_of_a_workload(made: Object | None) -> None:
    async with ungated(made, pod("a")) as found:
        await found.start()
        assert found.started == []


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(pod("b", of="another"), id="of another workload"),
        pytest.param(pod("b", pod_set="other"), id="of another pod set"),
        pytest.param(pod("b", gates=({"name": "example.com/own"},)), id="without the gate"),
        pytest.param(pod("b", deletionTimestamp="2026-01-01T12:00:00Z"), id="that is being deleted"),
    ],
)
async def test_no_pod_is_started(other: Object) -> None:
    async with ungated(workload(placed(admitted(), assigned({"r1": 2}))), other, pod("c")) as found:
        await found.start()
        assert found.started == ["c"]


async def test_a_pod_that_was_deleted_meanwhile_keeps_no_other_from_being_started() -> None:
    async with ungated(workload(placed(admitted(), assigned({"r1": 2}))), pod("a"), pod("b")) as found:
        del found.site.server.pods["a"]
        assert await found.start() == {"b": "r1"}


async def test_a_pod_that_has_changed_is_tried_again_once_its_change_is_seen() -> None:
    async with ungated(workload(placed(admitted(), assigned({"r1": 1}))), pod("a")) as found:
        changed = pod("a", version="2", labels={"mine": "new"})
        found.site.server.pods["a"] = changed
        with pytest.raises(Conflict):
            await found.start()
        controller = found.ungater.controller
        await controller.process(KEY)
        assert controller.queue.failures(KEY) == 1, "it is retried"
        await found.site.has_pods(changed)
        await controller.process(KEY)
        assert (found.domains, controller.queue.failures(KEY)) == ({"a": "r1"}, 0)


async def test_a_server_that_forbids_to_change_pods_has_them_tried_again() -> None:
    async with ungated(workload(placed(admitted(), assigned({"r1": 1}))), pod("a")) as found:
        found.site.server.refused["a"] = status_answer(403, "Forbidden")
        controller = found.ungater.controller
        await controller.process(KEY)
        assert controller.queue.failures(KEY) == 1
        await controller.process(KEY)
        assert found.domains == {"a": "r1"}


async def test_a_pod_that_the_server_refuses_keeps_no_other_from_being_started() -> None:
    """Such as one whose own node selector contradicts its domain: the API server lets a gated pod add to it only."""
    async with ungated(workload(placed(admitted(), assigned({"r1": 2}))), pod("a"), pod("b")) as found:
        found.site.server.refused["a"] = status_answer(422, "Invalid")
        await found.ungater.controller.process(KEY)
        assert found.domains == {"b": "r1"}


async def test_an_assignment_that_cannot_be_read_is_quarantined() -> None:
    broken = assigned({"r1": 1})
    broken["topologyAssignment"]["slices"][0]["podCounts"] = {"individual": [1, 2, 3]}
    async with ungated(workload(placed(admitted(), broken)), pod("a")) as found:
        await found.ungater.controller.process(KEY)
        (entry,) = found.site.quarantine.entries()
        assert (entry.key, "podCounts" in entry.message) == (KEY, True)
        assert found.started == []


async def test_what_cannot_be_read_is_reported_of_the_workload() -> None:
    """The event of a quarantine is about that object; there is no pod with the name of the Workload."""
    broken = assigned({"r1": 1})
    broken["topologyAssignment"]["slices"][0]["podCounts"] = {"individual": [1, 2, 3]}
    async with ungated(workload(placed(admitted(), broken)), pod("a")) as found:
        await found.ungater.controller.process(KEY)
        (entry,) = found.site.quarantine.entries()
        assert entry.resource == WORKLOADS


async def test_a_workload_is_looked_at_when_it_or_one_of_its_pods_changes_and_has_pods() -> None:
    async with ungated(None, pod("a"), pod("b", of="")) as found:
        found.ungater.attach()
        queue = found.ungater.controller.queue
        assert (len(queue), await queue.get()) == (1, KEY)
        queue.done(KEY)
        found.site.has_workload(workload(admitted()))
        assert (len(queue), await queue.get()) == (1, KEY)
        queue.done(KEY)
        found.site.has_workload(workload(admitted(), name="other"))
        assert len(queue) == 0
