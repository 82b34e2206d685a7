# SPDX-License-Identifier: Apache-2.0
"""Builders of topologies for tests: nodes in racks, flavors with a topology, and pod sets that ask for places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from multikueue.api.constants import HOSTNAME_LABEL
from multikueue.core.keys import Key
from multikueue.core.taints import Taint
from multikueue.engine import Decision, Settings, resources
from multikueue.engine.topology.capacity import Node
from multikueue.engine.values import Flavor, TopologyLevels
from multikueue.engine.workloads import AssignedDomains, PodSet, TopologyRequest, Workload
from tests.support.engine_builders import Bench, group, holding, pods, queue, workload

RACK = "rack"
HOSTS = TopologyLevels("hosts", (RACK, HOSTNAME_LABEL))
RACKS = TopologyLevels("racks", ("block", RACK))
TAS = Flavor(name="tas", topology="hosts")


def amounts(**texts: str) -> dict[str, int]:
    """Requests as the engine counts them; a node, or a single pod, also has `pods`."""
    return {name.replace("_", "/"): resources.amount_of(name.replace("_", "/"), text) for name, text in texts.items()}


def node(
    path: str,
    *,
    taints: tuple[Taint, ...] = (),
    labels: Mapping[str, str] | None = None,
    usable: bool = True,
    **allocatable: str,
) -> Node:
    """A node `rack/host` for ten pods: `node("r1/a", cpu="4")`."""
    rack, host = path.split("/")
    return Node(
        name=host,
        labels={RACK: rack, HOSTNAME_LABEL: host, **(labels or {})},
        taints=taints,
        allocatable=amounts(**{"pods": "10", **allocatable}),
        usable=usable,
    )


PLENTY = group(tas="100")
A, B = node("r1/a", cpu="4"), node("r1/b", cpu="4")


def asking(pod_set: PodSet, **request: object) -> PodSet:
    """The pod set with a topology request: `asking(pods(3, cpu="1"), required="rack")`."""
    return replace(pod_set, topology=TopologyRequest(fingerprint=repr(request), **request))  # type: ignore[arg-type]


def spread(count: int = 1, name: str = "main", **requests: str) -> PodSet:
    """Pods that ask for any places."""
    return asking(pods(count, name, None, **requests), unconstrained=True)


def topology_bench(bench: Bench, *nodes: Node, levels: TopologyLevels = HOSTS) -> Bench:
    """The bench with a topology and its nodes."""
    bench.engine.upsert_topology(levels, bench.now)
    for each in nodes:
        bench.engine.set_node(each.name, each, bench.now)
    bench.engine.flush(bench.now)
    return bench


def placed(value: Workload, cluster_queue: str, flavor: str = "tas", /, **domains: int) -> Workload:
    """A workload that holds quota and places on hosts: `placed(value, "q", a=2)`."""
    held = holding(value, cluster_queue, flavor=flavor)
    assert held.admission is not None
    found = AssignedDomains((HOSTNAME_LABEL,), tuple(((host,), count) for host, count in domains.items()))
    pod_sets = tuple(replace(each, topology=found) for each in held.admission.pod_sets)
    return replace(held, admission=replace(held.admission, pod_sets=pod_sets))


def domains(decision: Decision, pod_set: str = "main") -> dict[str, int]:
    """The domains that a decision gives to a pod set, with the number of pods."""
    (found,) = (each.topology for each in decision.pod_sets if each.name == pod_set)
    return {} if found is None else {",".join(values): count for values, count in found.domains}


def left(bench: Bench, *hosts: str, resource: str = "cpu") -> dict[str, int]:
    """What is left of leaves by their lowest value, of all by default."""
    capacity = bench.engine.capacity
    leaves = {
        leaf.values[-1]: leaf
        for flavor in bench.engine.referenced.flavors.values()
        if flavor.topology
        for leaf in capacity.leaves(flavor, bench.engine.referenced.levels(flavor.topology) or ())
    }
    return {host: capacity.remaining(leaves[host], [resource])[resource] for host in hosts or sorted(leaves)}


def pod_key(name: str) -> Key:
    """A pod of another namespace."""
    return Key("others", name)


def bench(
    *nodes: Node, queues: tuple[str, ...] = ("q",), flavors: tuple[Flavor, ...] = (TAS,), **changes: object
) -> Bench:
    """Queues, each a tree of its own with plenty of quota, and nodes."""
    settings = changes.pop("settings", None)
    groups = changes.pop("groups", PLENTY)
    made = Bench(
        *(queue(name, groups, **changes) for name in queues),  # type: ignore[arg-type]
        flavors=flavors,
        settings=settings if isinstance(settings, Settings) else None,
    )
    return topology_bench(made, *nodes)


def decisions(bench: Bench) -> dict[str, Decision]:
    """Those of the next cycle, by the name of the workload."""
    return {decision.workload.name: decision for decision in bench.cycle().decisions}


def cpus(name: str, cpu: str, at_queue: str = "q", **changes: object) -> Workload:
    """One pod that asks for any place."""
    return workload(name, at_queue, spread(cpu=cpu), **changes)  # type: ignore[arg-type]


def running(name: str, cpu: str, host: str, at_queue: str = "q", **changes: object) -> Workload:
    """One that holds quota and a place on that host."""
    return placed(cpus(name, cpu, at_queue, **changes), at_queue, **{host: 1})
