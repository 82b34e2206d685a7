# SPDX-License-Identifier: Apache-2.0
"""Plans the next step of a DaemonSet: the nodes that get a pod, the pods to delete, and its status.

Pure: `DaemonFacts` in, `DaemonSetPlan` out. A rollout moves on only when the nodes have the pods
that they should have.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from devcluster.controllers import daemon_rollout, pod_facts
from devcluster.controllers.app_pods import available_at
from devcluster.controllers.daemon_facts import DaemonFacts
from multikueue.api.objects import JsonObject


@dataclass(slots=True, kw_only=True)
class DaemonSetPlan:
    """What to do, in this order."""

    failed: list[tuple[str, JsonObject]] = field(default_factory=list)
    """Failed pods to delete, with their nodes; their back-off grows."""
    succeeded: list[tuple[str, JsonObject]] = field(default_factory=list)
    """Pods to delete that ended without a failure, with their nodes."""
    create: list[str] = field(default_factory=list)
    """The nodes that get a pod."""
    delete: list[JsonObject] = field(default_factory=list)
    """Other pods to delete."""
    status: JsonObject = field(default_factory=dict)
    after: float | None = None
    """Seconds until one more pod is available; None for never."""


def plan(facts: DaemonFacts, *, held: Collection[str] = ()) -> DaemonSetPlan:
    """The plan; failed pods on nodes in `held` are not deleted yet."""
    found = DaemonSetPlan()
    surges = daemon_rollout.surges(facts.daemon_set)
    for name, node in facts.nodes.items():
        pods = facts.pods.get(name)
        if pods is None:
            if node.runs:
                found.create.append(name)
        elif node.stays:
            running = _end(found, name, pods, held=held)
            found.delete += _excess(facts, running) if surges else running[1:]
        else:
            found.delete += [pod for pod in pods if not pod_facts.deleting(pod)]
    for name, pods in facts.pods.items():
        if name not in facts.nodes:
            found.delete += [pod for pod in pods if not pod["spec"].get("nodeName") and not pod_facts.deleting(pod)]
    if not (found.create or found.delete or found.failed or found.succeeded):
        step = daemon_rollout.next_step(facts)
        found.create, found.delete = step.create, step.delete
    found.status = status_of(facts)
    times = (available_at(pod, seconds=facts.seconds) for pods in facts.pods.values() for pod in pods)
    later = [at for at in times if at is not None and at > facts.now]
    found.after = (min(later) - facts.now).total_seconds() if later else None
    return found


def _end(found: DaemonSetPlan, node: str, pods: Sequence[JsonObject], *, held: Collection[str]) -> list[JsonObject]:
    """Plan the deletion of the pods of a node that ended; returns the others that are not being deleted."""
    running = []
    for pod in pods:
        if pod_facts.deleting(pod):
            continue
        phase = pod_facts.phase(pod)
        if phase == "Failed":
            # One at a time: the deletion of the first starts the back-off of the node.
            if node not in held and not any(name == node for name, _ in found.failed):
                found.failed.append((node, pod))
        elif phase == "Succeeded":
            found.succeeded.append((node, pod))
        else:
            running.append(pod)
    return running


def _excess(facts: DaemonFacts, running: Sequence[JsonObject]) -> list[JsonObject]:
    """The pods of a node in excess during a surge, which allows an old one beside a new one that is not available."""
    if len(running) <= 1:
        return []
    new = next((pod for pod in running if facts.has_hash(pod)), None)
    old = next((pod for pod in running if not facts.has_hash(pod)), None)
    excess = [pod for pod in running if pod is not new and pod is not old]
    if old is not None and new is not None and (not pod_facts.ready(old) or facts.available(new)):
        excess.append(old)
    return excess


def status_of(facts: DaemonFacts) -> JsonObject:
    """The status; of several pods of a node the oldest counts."""
    desired = current = misscheduled = ready = available = updated = 0
    for name, node in facts.nodes.items():
        pods = facts.pods.get(name)
        if not node.runs:
            misscheduled += bool(pods)
            continue
        desired += 1
        if pods:
            current += 1
            ready += pod_facts.ready(pods[0])
            available += facts.available(pods[0])
            updated += facts.updated(pods[0])
    counts = {
        "observedGeneration": facts.daemon_set["metadata"].get("generation", 0),
        "updatedNumberScheduled": updated,
        "numberAvailable": available,
        "numberUnavailable": desired - available,
    }
    old = facts.daemon_set.get("status") or {}
    return {
        "currentNumberScheduled": current,
        "numberMisscheduled": misscheduled,
        "desiredNumberScheduled": desired,
        "numberReady": ready,
        **{name: value for name, value in counts.items() if value},
        **{name: old[name] for name in ("collisionCount", "conditions") if name in old},
    }
