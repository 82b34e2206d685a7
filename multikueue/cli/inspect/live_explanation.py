# SPDX-License-Identifier: Apache-2.0
"""The state of a workload on a live hub, with reasons: its queue, its admission checks and every cluster.

Owns the reading and the answer. The queue's part is the engine's explanation of the listed objects, the clusters' part
is the dispatch explanation. Nothing is decided here, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from manager.controllers.workload_facts import AdmissionQueueFacts
from manager.workload.status import Check, Status
from multikueue.api import configuration_file
from multikueue.api.configuration import Configuration
from multikueue.api.meta import JsonObject
from multikueue.api.reasons import QuotaReservedReason, WorkloadCondition
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    CONFIG_MAPS,
    LOCAL_QUEUES,
    PROVISIONING_REQUESTS,
    WORKLOADS,
)
from multikueue.cli.hub_configuration import manager_configuration
from multikueue.cli.hub_options import HubOptions, WorkloadRef
from multikueue.cli.inspect.headline import CheckLine, HeadlineFacts, headline
from multikueue.cli.inspect.hub_facts import (
    DISPATCH_KINDS,
    HubFacts,
    HubObjects,
    add_job,
    engine_kinds,
    listed,
)
from multikueue.cli.inspect.left_out import LeftOutPart, left_out_parts
from multikueue.cli.inspect.requested_capacity import RequestLine, read_requests, request_lines
from multikueue.cli.inspect.workload_of_job import find_on_hub
from multikueue.cli.job_kinds import kind_of_owner, owner_of, served_by
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.dispatch.explanation import DispatchExplanation, HostedClusters, explain_dispatch
from multikueue.dispatch.hub import messages
from multikueue.dispatch.hub.facts import DispatchFacts
from multikueue.engine import decode
from multikueue.engine.decode.check_health import ControllerHealth, check_health
from multikueue.engine.explain import Explanation
from multikueue.jobs.framework.admission import recreation
from multikueue.kube.errors import Forbidden
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from multikueue.simulation import simulated_cluster
from multikueue.simulation.manifests import Manifest

_QUEUE_PART: Final = "position in the queue, quota and borrowing"
_CLUSTERS_PART: Final = "the clusters with their reasons"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveExplanation:
    """The whole answer; `dispatch` is None for a workload without a MultiKueue check."""

    workload: Key
    job: str
    summary: str
    next_step: str
    next_command: str
    queue: Explanation
    checks: tuple[CheckLine, ...]
    dispatch: DispatchExplanation | None
    flavors: Mapping[str, str]
    left_out: tuple[LeftOutPart, ...] = ()
    provisioning: tuple[RequestLine, ...] = ()
    """The current attempt of each provisioning check."""


async def explain(options: HubOptions, ref: WorkloadRef, *, config: Path | None, now: datetime) -> LiveExplanation:
    """Read the hub with the user's permissions and explain the workload. Raises `BadInput` and `KubeError`."""
    found = credentials.load(options.kubeconfig, context=options.context)
    ref = ref.within(found.namespace)
    async with KubeClient(found, user_agent="mkctl") as hub:
        configuration, read = await _configuration(hub, options, config)
        objects = await listed(hub, configuration, namespace=ref.key.namespace)
        if not read:
            objects.forbidden.add(CONFIG_MAPS)
        workload = await find_on_hub(hub, objects.all(WORKLOADS), ref, kinds=served_by(configuration))
        await add_job(hub, objects, workload)
        checks = objects.all(ADMISSION_CHECKS)
        provisioning = request_lines(workload, checks, (), now=now)
        if provisioning:
            requests = await read_requests(hub, namespace=workload["metadata"]["namespace"])
            provisioning = request_lines(workload, checks, requests or (), now=now)
            if requests is None:
                objects.forbidden.add(PROVISIONING_REQUESTS)
    return replace(explain_workload(objects, workload, now=now), provisioning=provisioning)


async def _configuration(hub: KubeClient, options: HubOptions, config: Path | None) -> tuple[Configuration, bool]:
    """The manager's Configuration and True, or the defaults and False if it may not be read. Raises `BadInput`."""
    try:
        return await manager_configuration(hub, options, file=config), True
    except Forbidden:
        return configuration_file.load("", namespace=options.manager_namespace), False


def explain_workload(objects: HubObjects, workload: JsonObject, *, now: datetime) -> LiveExplanation:
    """Explain one of the objects that were listed. Raises `BadInput`.

    The engine and the dispatch plan are used only if all kinds they read were listed; else their answer would be wrong.
    """
    status = Status.of(workload)
    key = Key(workload["metadata"]["namespace"], workload["metadata"]["name"])
    queue_name = Key(key.namespace, str((workload.get("spec") or {}).get("queueName") or ""))
    local_queue = objects.caches.view(LOCAL_QUEUES).object(queue_name)
    kinds = engine_kinds(objects.configuration)
    parts = ((_QUEUE_PART, kinds), (_CLUSTERS_PART, DISPATCH_KINDS))
    whole = not objects.forbidden.intersection(kinds)
    hub = HubFacts(objects, now) if whole and not objects.forbidden.intersection(DISPATCH_KINDS) else None
    facts = None if hub is None else hub.of(workload)
    dispatch = None if facts is None or hub is None else _dispatch_explanation(facts, hub, now)
    queue = (
        _queue(objects, objects.configuration, key, now)
        if whole
        else explanation_from_status(workload, status, local_queue)
    )
    checks = tuple(_check(objects, check) for check in status.checks)
    owner = owner_of(workload)
    integration = None if owner is None else kind_of_owner(owner, served_by(objects.configuration))
    job = None
    if owner is not None and integration is not None:
        job = objects.caches.view(integration.resource).object(Key(key.namespace, owner["name"]))
    queue_of = ((local_queue or {}).get("spec") or {}).get("clusterQueue") or queue.cluster_queue
    cluster_queue = objects.caches.view(CLUSTER_QUEUES).object(Key("", queue_of))
    found = headline(
        HeadlineFacts(
            status=status,
            queue=queue,
            checks=checks,
            dispatch=dispatch,
            job=job,
            local_queue=local_queue,
            cluster_queue=cluster_queue,
            inactive_checks=_inactive_checks(objects, cluster_queue),
            deleting="deletionTimestamp" in workload["metadata"],
            recreation="" if integration is None else recreation(job or {}, integration),
        ),
        now=now,
    )
    return LiveExplanation(
        workload=key,
        job="" if owner is None else f"{owner['kind']} {owner['name']}",
        summary=found.summary,
        next_step=found.next_step,
        next_command=found.command,
        queue=queue,
        checks=checks,
        dispatch=dispatch,
        flavors={} if facts is None or facts.workload is None else facts.workload.flavors,
        left_out=(*left_out_parts(parts, objects.forbidden), *_left_out_objects(objects, key.namespace)),
    )


def _left_out_objects(objects: HubObjects, namespace: str) -> Iterator[LeftOutPart]:
    for integration in served_by(objects.configuration):
        resource = integration.resource
        if resource in objects.forbidden:
            group = f" ({resource.group})" if resource.group else ""
            right = f"get {resource.plural}{group} in namespace {namespace}"
            yield LeftOutPart(f"start and end of the {resource.kind}", (right,))
    if PROVISIONING_REQUESTS in objects.forbidden:
        right = f"list {PROVISIONING_REQUESTS.plural} ({PROVISIONING_REQUESTS.group}) in namespace {namespace}"
        yield LeftOutPart("the answers of an autoscaler", (right,))
    if CONFIG_MAPS in objects.forbidden:
        what = "the manager's Configuration; its defaults are used"
        yield LeftOutPart(what, ("get configmaps in the manager's namespace",))


def _dispatch_explanation(facts: DispatchFacts, hub: HubFacts, now: datetime) -> DispatchExplanation | None:
    check = None if facts.workload is None else facts.workload.check
    names = [cluster.name for cluster in facts.clusters]
    reported = messages.reasons_by_cluster(check.message, names) if check is not None else {}
    return explain_dispatch(facts, now, hosted=HostedClusters(clusters=hub.hosted, reasons=reported))


def _queue(objects: HubObjects, configuration: Configuration, key: Key, now: datetime) -> Explanation:
    kinds = engine_kinds(configuration)
    manifests = [Manifest(obj, "the hub") for resource in kinds for obj in objects.all(resource)]
    built = simulated_cluster.build(manifests, settings=decode.settings(configuration), now=now, of_hub=True)
    explanation = built.explain(key, now)
    if explanation.state == "Unknown":
        # The engine skips objects that it cannot read; this one is the workload itself.
        unread = [each for each in built.unusable if each.place.endswith(f" {WORKLOADS.kind} {key}")]
        if unread:
            raise BadInput(str(unread[0]))
    return explanation


def explanation_from_status(workload: JsonObject, status: Status, local_queue: JsonObject | None) -> Explanation:
    """The queue's part from the Workload's conditions, for users who may not read all queues."""
    key = Key(workload["metadata"]["namespace"], workload["metadata"]["name"])
    queue = str((status.admission or {}).get("clusterQueue") or _cluster_queue(local_queue))
    if status.is_true(WorkloadCondition.FINISHED):
        return Explanation(workload=key, state="Finished", cluster_queue=queue)
    hold = status.condition(WorkloadCondition.QUOTA_RESERVED)
    reason, message = None, "the manager has not processed it yet"
    if hold is not None:
        known = hold.reason in set(QuotaReservedReason)
        reason, message = QuotaReservedReason(hold.reason) if known else None, hold.message
    if (workload.get("spec") or {}).get("active") is False:
        reason = QuotaReservedReason.DEACTIVATED
    return Explanation(workload=key, state=_state(status), cluster_queue=queue, reason=reason, message=message)


def _cluster_queue(local_queue: JsonObject | None) -> str:
    return str(((local_queue or {}).get("spec") or {}).get("clusterQueue") or "")


def _state(status: Status) -> str:
    if status.is_true(WorkloadCondition.ADMITTED):
        return "Admitted"
    return "Reserved" if status.is_true(WorkloadCondition.QUOTA_RESERVED) else "Pending"


def _check(objects: HubObjects, check: Check) -> CheckLine:
    obj = objects.caches.view(ADMISSION_CHECKS).object(Key("", check.name))
    trouble, step = "", ""
    if ADMISSION_CHECKS in objects.forbidden:
        pass  # unknown whether it exists
    elif obj is None:
        trouble = "the AdmissionCheck does not exist"
    else:
        health = check_health(obj)
        trouble, step = health.problem, health.step
    return CheckLine(
        name=check.name,
        state=check.state,
        message=check.message,
        since=check.last_transition_time,
        trouble=trouble,
        step=step,
    )


def _inactive_checks(objects: HubObjects, cluster_queue: JsonObject | None) -> tuple[ControllerHealth, ...]:
    """The checks that exist and for which a ClusterQueue is not active."""
    rules = () if cluster_queue is None else AdmissionQueueFacts.of(cluster_queue).checks
    found = (objects.caches.view(ADMISSION_CHECKS).object(Key("", rule.name)) for rule in rules)
    return tuple(health for health in (check_health(each) for each in found if each is not None) if not health.active)
