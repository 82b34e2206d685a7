# SPDX-License-Identifier: Apache-2.0
"""What happened between two looks at the provisioning example, in plain words. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from multikueue.api.meta import JsonObject
from multikueue.cli.conditions import condition_of, has_condition


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A worker: its ProvisioningRequest, if it has one, the conditions that are True, and how many nodes were added."""

    request: str = ""
    expected: str = ""
    conditions: frozenset[str] = frozenset()
    nodes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleView:
    """The Job on the hub, and each worker by name."""

    cluster: str = ""
    active: int = 0
    complete: bool = False
    stops: int = 0
    """How often the Job was stopped."""
    deactivated: bool = False
    """Whether its Workload is not tried until a user activates it."""
    workers: Mapping[str, WorkerView] = field(default_factory=dict)


def worker_view(requests: list[JsonObject], nodes: int) -> WorkerView:
    """The view of one worker, of which the newest request counts."""
    if not requests:
        return WorkerView(nodes=nodes)
    request = max(requests, key=lambda each: str(each["metadata"]["creationTimestamp"]))
    conditions = (request.get("status") or {}).get("conditions") or ()
    true = frozenset(each["type"] for each in conditions if each["status"] == "True")
    waiting = condition_of(request, "Provisioned")
    expected = str(waiting.get("message") or "") if waiting.get("status") == "False" else ""
    return WorkerView(request=request["metadata"]["name"], expected=expected, conditions=true, nodes=nodes)


def example_view(job: JsonObject | None, workload: JsonObject | None, workers: Mapping[str, WorkerView]) -> ExampleView:
    """The view of the Job, its Workload and the workers."""
    status = (workload or {}).get("status") or {}
    evictions = (status.get("schedulingStats") or {}).get("evictions") or ()
    return ExampleView(
        cluster=status.get("clusterName", ""),
        active=((job or {}).get("status") or {}).get("active", 0),
        complete=has_condition(job, "Complete"),
        stops=sum(each["count"] for each in evictions),
        deactivated=((workload or {}).get("spec") or {}).get("active") is False,
        workers=workers,
    )


def happened(before: ExampleView, after: ExampleView) -> Iterator[str]:
    """One sentence for each change."""
    if after.stops > before.stops:
        yield f"hub: the Job is stopped on {before.cluster or 'its cluster'} and needs capacity again"
    for name, now in after.workers.items():
        yield from _on_worker(name, before.workers.get(name, WorkerView()), now)
    if after.cluster and after.cluster != before.cluster:
        yield f"hub: {after.cluster} has the capacity, the Job is sent there"
    if after.active and not before.active:
        yield f"hub: {after.active} pods of the Job run on {after.cluster}"
    if after.complete and not before.complete:
        yield "hub: the Job is complete"


def happened_here(before: ExampleView, after: ExampleView) -> Iterator[str]:
    """One sentence for each change of an example on one cluster."""
    if after.stops > before.stops:
        yield "manager: the Job is stopped"
    if after.deactivated and not before.deactivated:
        yield "manager: its Workload is deactivated and is not tried again by itself"
    for name, now in after.workers.items():
        yield from _on_worker(name, before.workers.get(name, WorkerView()), now)
    if after.active and not before.active:
        yield f"manager: {after.active} pods of the Job run"
    if after.complete and not before.complete:
        yield "manager: the Job is complete"


def _on_worker(name: str, before: WorkerView, now: WorkerView) -> Iterator[str]:
    if now.request and now.request != before.request:
        yield f"{name}: capacity is requested ({now.request})"
    if now.expected and now.expected != before.expected:
        yield f"{name}: {now.expected}"
    if "Failed" in now.conditions - before.conditions:
        yield f"{name}: the request has failed"
    if now.nodes > before.nodes:
        yield f"{name}: {now.nodes} new nodes are there"
    if "CapacityRevoked" in now.conditions - before.conditions:
        yield f"{name}: the capacity is revoked"
    if before.nodes and not now.nodes:
        yield f"{name}: its new nodes are removed"
    if before.request and not now.request:
        yield f"{name}: the request is deleted"
