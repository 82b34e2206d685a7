# SPDX-License-Identifier: Apache-2.0
"""Why a workload of a live hub stands where it stands: its queue, its checks, and every cluster.

Owns the reading and the document. The queue's part is the engine's own explanation of the objects as they are, the
clusters' part the federation's outlook; nothing is decided here, and nothing is written anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from manager.dispatch.condition_writes import active_condition
from manager.workload_status import Check, Status
from multikueue.api import configuration as configurations
from multikueue.api.configuration import Configuration
from multikueue.api.constants import CheckState
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import WorkloadCondition
from multikueue.api.resource import ADMISSION_CHECKS, JOBS, WORKLOADS
from multikueue.cli.hub_facts import ENGINE_KINDS, HubFacts, HubObjects, add_job, configuration_text, listed
from multikueue.cli.reaching import Reach, Target
from multikueue.core.conditions import FALSE
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.engine import intake
from multikueue.engine.explain import Explanation
from multikueue.federation import messages
from multikueue.federation.facts import Facts
from multikueue.federation.outlook import Outlook, Standing, Unseen, outlook
from multikueue.kube import credentials
from multikueue.kube.client import KubeClient
from multikueue.simulation import world
from multikueue.simulation.manifests import Manifest


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLine:
    """One admission check of the workload; `trouble` says why the check itself is not Active."""

    name: str
    state: CheckState
    message: str
    since: datetime
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveExplanation:
    """The whole answer; `dispatch` is None for a workload that no MultiKueue check is about."""

    workload: Key
    job: str
    summary: str
    queue: Explanation
    checks: tuple[CheckLine, ...]
    dispatch: Outlook | None
    flavors: Mapping[str, str]


async def explain(given: Reach, asked: Target, *, config: Path | None, now: datetime) -> LiveExplanation:
    """Read the hub and explain. Raises `BadInput` and `KubeError`."""
    found = credentials.load(given.kubeconfig, context=given.context)
    asked = asked.within(found.namespace)
    async with KubeClient(found, user_agent="mkctl") as hub:
        file = config or given.configuration
        text = "" if file is not None else await configuration_text(hub, given.namespace)
        configuration = configurations.load(file if file is not None else text, namespace=given.namespace)
        objects = await listed(hub, configuration)
        workload = find(objects.all(WORKLOADS), asked)
        await add_job(hub, objects, workload)
    return explain_workload(objects, workload, now=now)


def find(workloads: Iterable[JsonObject], asked: Target) -> JsonObject:
    """The Workload that was asked about; the newest of several of a Job. Raises `BadInput`."""
    found = [workload for workload in workloads if _is(workload["metadata"], asked)]
    if not found:
        raise BadInput(f"there is no {'Workload' if asked.kind == 'workload' else 'Workload of Job'} {asked.key}")
    return max(found, key=lambda workload: str(workload["metadata"].get("creationTimestamp")))


def _is(metadata: JsonObject, asked: Target) -> bool:
    if metadata["namespace"] != asked.key.namespace:
        return False
    if asked.kind == "workload":
        return bool(metadata["name"] == asked.key.name)
    owners: list[JsonObject] = metadata.get("ownerReferences") or []
    return any((owner["kind"], owner["name"]) == (JOBS.kind, asked.key.name) for owner in owners)


def explain_workload(objects: HubObjects, workload: JsonObject, *, now: datetime) -> LiveExplanation:
    """Explain one of the objects that were listed. Raises `BadInput`."""
    status = Status.of(workload)
    key = Key(workload["metadata"]["namespace"], workload["metadata"]["name"])
    hub = HubFacts(objects, now)
    facts = hub.of(workload)
    seen = None if facts is None else _outlook(facts, hub, now)
    queue = _queue(objects, objects.configuration, key, now)
    owners: list[JsonObject] = workload["metadata"].get("ownerReferences") or []
    return LiveExplanation(
        workload=key,
        job=next((f"{owner['kind']} {owner['name']}" for owner in owners if owner.get("controller")), ""),
        summary=summary(status, queue, seen),
        queue=queue,
        checks=tuple(_check(objects, check) for check in status.checks),
        dispatch=seen,
        flavors={} if facts is None or facts.workload is None else facts.workload.flavors,
    )


def _outlook(facts: Facts, hub: HubFacts, now: datetime) -> Outlook | None:
    check = None if facts.workload is None else facts.workload.check
    names = [cluster.name for cluster in facts.clusters]
    told = messages.told(check.message, names) if check is not None else {}
    return outlook(facts, now, unseen=Unseen(clusters=hub.hosted, told=told))


def _queue(objects: HubObjects, configuration: Configuration, key: Key, now: datetime) -> Explanation:
    manifests = [Manifest(obj, "the hub") for resource in ENGINE_KINDS for obj in objects.all(resource)]
    return world.build(manifests, settings=intake.settings(configuration), now=now).explain(key, now)


def _check(objects: HubObjects, check: Check) -> CheckLine:
    obj = objects.caches.view(ADMISSION_CHECKS).object(Key("", check.name))
    active = None if obj is None else active_condition(obj)
    trouble = ""
    if obj is None:
        trouble = "the AdmissionCheck does not exist"
    elif active is None:
        trouble = "no controller has taken the AdmissionCheck up"
    elif active.status == FALSE:
        trouble = f"the AdmissionCheck is not Active: {active.reason}: {active.message}"
    return CheckLine(
        name=check.name,
        state=check.state,
        message=check.message,
        since=check.last_transition_time,
        trouble=trouble,
    )


def summary(status: Status, queue: Explanation, dispatch: Outlook | None) -> str:
    """The answer in one line."""
    finished = status.condition(WorkloadCondition.FINISHED)
    if finished is not None and status.is_true(WorkloadCondition.FINISHED):
        return f"has finished: {finished.reason}: {finished.message}"
    evicted = status.condition(WorkloadCondition.EVICTED)
    if not status.is_true(WorkloadCondition.QUOTA_RESERVED):
        place = "" if queue.position is None else f", number {queue.position + 1} of the queue {queue.cluster_queue}"
        return f"waits for quota{place}: {queue.message or queue.standing}"
    if evicted is not None and status.is_true(WorkloadCondition.EVICTED):
        return f"is being stopped: {evicted.reason}: {evicted.message}"
    pending = [check.name for check in status.checks if check.state is not CheckState.READY]
    if dispatch is not None and dispatch.cluster_name:
        chosen = next((each for each in dispatch.clusters if each.cluster == dispatch.cluster_name), None)
        return f"was sent to {dispatch.cluster_name}" + (f", {chosen.reason}" if chosen is not None else "")
    if dispatch is not None and len(pending) == 1 and dispatch.clusters:
        room = [each.cluster for each in dispatch.clusters if each.standing is Standing.HAS_ROOM]
        if room:
            return f"has quota, and is about to go to one of {', '.join(room)}"
        return "has quota; no cluster of the config runs it yet"
    if pending:
        return f"has quota; waits for {', '.join(pending)}"
    return "is admitted"
