# SPDX-License-Identifier: Apache-2.0
"""A manager that makes the real decisions on the plain objects of `hub`.

Owns no rule of its own: the engine, `workload_decision`, `job_decision`, `admission_writes`, `Status` and the
controller of provisioning checks (`provisioning`) are the manager's. Only the API server (a dict), the
controller of Jobs and the informers are replaced; but for requests each change is seen at once. Every write is checked.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final

from manager.controllers import job_decision, workload_decision
from manager.controllers.job_facts import ManagedJobFacts
from manager.controllers.job_steps import (
    CreateWorkload,
    DeleteWorkload,
    FollowJob,
    ReleaseWorkload,
    SetPriority,
    Step,
    UpdateWorkload,
    WarnOwner,
    WriteJob,
    WriteReclaimable,
    WriteStatus,
)
from manager.controllers.workload_facts import (
    AdmissionQueueFacts,
    WorkloadFacts,
    assigned_flavors,
    gates_of,
    required_checks,
)
from manager.scheduler import admission_writes
from manager.workload.changes import was_rejected
from manager.workload.status import OWNED_CONDITIONS, Status
from manager.workload.status_writer import Change
from multikueue.api.constants import CheckState
from multikueue.api.reasons import WorkloadCondition
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_time, parse_time
from multikueue.engine import Engine, Settings, decode
from multikueue.engine.decisions import Outcome
from multikueue.engine.settings import PodsReady
from multikueue.engine.values import Namespace
from multikueue.jobs.framework.pod_templates import pod_set_infos
from multikueue.jobs.framework.workloads import PriorityClasses, resolved_priority, workload_for
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from tests.simulation.lifecycle.hub import (
    CHECKS,
    CLASSES,
    QUEUES,
    TEAM,
    Hub,
    Object,
    Violation,
    key_of,
    merge,
    owner_of,
    uid_of,
)
from tests.simulation.lifecycle.provisioning import CapacityController

TIMERS: Final = PodsReady(timeout_seconds=100, recovery_timeout_seconds=50, backoff_limit=2)
_ROUNDS: Final = 80


class LifecycleManager:
    """The volatile half: an engine fed from the hub, and the reconcilers."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.shapes = decode.Shapes()
        self.engine = Engine(Settings())
        self.engine.upsert_namespace(Namespace(TEAM), hub.now)
        for name in ("on-demand", "spot"):
            self.engine.upsert_flavor(decode.flavor({"metadata": {"name": name}, "spec": {}}), hub.now)
        for each in CHECKS:
            self.see_check(each)
        for name in QUEUES:
            self.see_queue(name)
        for key in list(hub.workloads):
            self.see(key)
        self.capacity = CapacityController(hub, write_status=self.write_status, see_check=self.see_check)

    # What an informer would bring

    def see(self, key: Key) -> None:
        """A Workload as it is now."""
        found = self.hub.workloads.get(key)
        if found is None:
            self.engine.delete_workload(key, self.hub.now)
        else:
            self.engine.upsert_workload(decode.workload(found, self.shapes), self.hub.now)

    def see_queue(self, name: str) -> None:
        """A ClusterQueue and its LocalQueue as they are now."""
        self.engine.upsert_cluster_queue(decode.cluster_queue(self.hub.cluster_queues[name]), self.hub.now)
        self.engine.upsert_local_queue(decode.local_queue(self.hub.local_queues[name]), self.hub.now)

    def see_check(self, name: str) -> None:
        """An AdmissionCheck as it is now."""
        self.engine.upsert_admission_check(decode.admission_check(self.hub.checks[name]), self.hub.now)

    # Work

    def settle(self) -> None:
        """Reconcile everything until nothing is written."""
        for _ in range(_ROUNDS):
            if not self.round():
                return
        raise Violation(f"still writing after {_ROUNDS} rounds without a change from outside")

    def round(self) -> bool:
        """Reconcile everything once; whether something was written."""
        self.capacity.catch_up()
        wrote = False
        for name in sorted({*self.hub.jobs, *(owner_of(each) for each in self.hub.workloads.values())}):
            wrote = self.reconcile_job(name) or wrote
        for key in sorted(self.hub.workloads):
            wrote = self.reconcile_workload(key) or wrote
        wrote = self.capacity.reconcile() or wrote
        return self.cycle() or wrote

    def cycle(self) -> bool:
        """Flush, and decide about heads until the same ones come again; whether something was written."""
        self.engine.flush(self.hub.now)
        wrote, last = False, None
        for _ in range(_ROUNDS):
            if not self.engine.has_heads(self.hub.now):
                break
            changed, decided = self._one_cycle()
            wrote |= changed
            if not changed and decided == last:
                break
            last = decided
        return wrote

    def _one_cycle(self) -> tuple[bool, frozenset[tuple[Key, Outcome, str]]]:
        wrote, now = False, self.hub.now
        cycle = self.engine.cycle(now)
        for decision in cycle.decisions:
            if decision.outcome is Outcome.RESERVED:
                reserved = self.write_status(
                    decision.workload, partial(admission_writes.reserve, decision=decision, now=now)
                )
                if not reserved:
                    raise Violation(f"{decision.workload}: the reservation of a cycle changed nothing")
                self.engine.admission_written(decision.workload, now)
                wrote = True
                continue
            for victim in decision.victims:
                if not victim.evicted:
                    wrote |= self.write_status(
                        victim.workload, partial(admission_writes.preempt, victim=victim, now=now)
                    )
            if decision.reason is not None:
                wrote |= self.write_status(
                    decision.workload, partial(admission_writes.pend, decision=decision, now=now)
                )
        for bypassed in cycle.bypassed:
            wrote |= self.write_status(bypassed.workload, partial(admission_writes.bypass, bypassed=bypassed, now=now))
        return wrote, frozenset((each.workload, each.outcome, each.message) for each in cycle.decisions)

    def reconcile_workload(self, key: Key) -> bool:
        """One reconcile of a Workload; whether something was written."""
        if key not in self.hub.workloads:
            return False
        decision = self._decide(key, Status.of(self.hub.workloads[key]))
        wrote = self.write_status(key, lambda status: decision.status)
        if decision.deactivate and self.hub.workloads[key]["spec"].get("active") is not False:
            wrote = self._patch(key, lambda found: found["spec"].update(active=False))
        if decision.delete or decision.delete_job:
            wrote = self._patch(key, lambda found: found["metadata"].update(deletionTimestamp=self._time()))
        if decision.release and self.hub.workloads[key]["metadata"].get("finalizers"):
            wrote = self._patch(key, lambda found: found["metadata"].update(finalizers=[]))
        if key in self.hub.workloads and not decision.deactivate:
            status = Status.of(self.hub.workloads[key])
            again = self._decide(key, status)
            if again.status.wire() != status.wire() or again.deactivate:
                raise Violation(f"{key}: a second reconcile writes again\n{status}\n{again.status}")
        return wrote

    def _decide(self, key: Key, status: Status) -> workload_decision.WorkloadDecision:
        return workload_decision.decide(self._facts(key), status, now=self.hub.now, random=Random(0))

    def _facts(self, key: Key) -> WorkloadFacts:
        workload = self.hub.workloads[key]
        metadata, spec = workload["metadata"], workload["spec"]
        local_queue = self.hub.local_queues.get(spec["queueName"])
        admission = (workload.get("status") or {}).get("admission") or {}
        name = admission.get("clusterQueue") or ((local_queue or {}).get("spec") or {}).get("clusterQueue") or ""
        cluster_queue = self.hub.cluster_queues.get(name)
        job = self.hub.jobs.get(owner_of(workload))
        return WorkloadFacts(
            key=key,
            uid=metadata["uid"],
            created=parse_time(metadata["creationTimestamp"]),
            active=spec.get("active") is not False,
            deleting="deletionTimestamp" in metadata,
            owned=True,
            owner_gone="deletionTimestamp" in metadata and (job is None or job["metadata"]["uid"] != uid_of(workload)),
            queue_name=spec["queueName"],
            gated_by=gates_of(workload),
            maximum_execution_seconds=spec.get("maximumExecutionTimeSeconds"),
            local_queue=None if local_queue is None else AdmissionQueueFacts.of(local_queue),
            cluster_queue=None
            if cluster_queue is None
            else AdmissionQueueFacts.of(cluster_queue, active=self.engine.cluster_queue_state(name).active),
            cluster_queue_name=name,
            pods_ready=TIMERS,
            bypassed=self.engine.bypassed(key),
        )

    def reconcile_job(self, name: str) -> bool:
        """One reconcile of a Job, or of what a Job that is gone has left; whether something was written."""
        owned = sorted(
            (each for each in self.hub.workloads.values() if owner_of(each) == name),
            key=lambda each: str(each["metadata"]["creationTimestamp"]),
        )
        job, wrote = self.hub.jobs.get(name), False
        for workload in owned:
            if job is None or uid_of(workload) != job["metadata"]["uid"]:
                wrote = self._remove(key_of(workload))
        if job is None:
            return wrote
        owned = [copy.deepcopy(each) for each in owned if uid_of(each) == job["metadata"]["uid"]]
        facts = ManagedJobFacts(
            job=copy.deepcopy(job),
            integration=BATCH_JOB,
            workloads=owned,
            tracks_pods=True,
            infos=lambda workload: pod_set_infos(workload, {}),
            priority=resolved_priority(BATCH_JOB.priority(job), _CLASSES),
        )
        for step in job_decision.decide(facts, now=self.hub.now):
            wrote = self._carry_out(step, name) or wrote
        return wrote

    def _carry_out(self, step: Step, name: str) -> bool:
        job = self.hub.jobs[name]
        match step:
            case CreateWorkload():
                return self._create(job)
            case UpdateWorkload(workload):
                spec = self._manifest(job)["spec"]
                active = workload["spec"].get("active", True)
                if spec["queueName"] != workload["spec"].get("queueName"):
                    active = active or was_rejected(workload)
                return self._patch(key_of(workload), lambda found: found["spec"].update({**spec, "active": active}))
            case SetPriority(workload, wanted):
                reference = {"group": wanted.group, "kind": wanted.kind, "name": wanted.name} if wanted.name else None
                patch = {"priority": wanted.value, "priorityClassRef": reference}
                return self._patch(key_of(workload), lambda found: found["spec"].update(patch))
            case FollowJob(workload, patch):
                return self._patch(key_of(workload), lambda found: merge(found, patch))
            case DeleteWorkload(workload):
                return self._remove(key_of(workload))
            case ReleaseWorkload(workload):
                return self._patch(key_of(workload), lambda found: found["metadata"].update(finalizers=[]))
            case WriteJob(write, _, _):
                self.hub.write(lambda: merge(job, write.body))
                return True
            case WriteStatus(workload, change, _, _):
                return self.write_status(key_of(workload), change)
            case WriteReclaimable(workload, pods):
                shown = [{"name": pod.name, "count": pod.count} for pod in pods]
                return self._patch(key_of(workload), lambda found: found["status"].update(reclaimablePods=shown))
            case WarnOwner():
                return False
        raise Violation(f"a step that this hub cannot take: {step}")

    # Writes

    def write_status(self, key: Key, change: Change) -> bool:
        """What `StatusWriter.write` does; whether something was written."""
        found = self.hub.workloads.get(key)
        if found is None:
            return False
        old = Status.of(found)
        new = change(old)
        wire = new.wire()
        if new is old or wire == old.wire():
            return False
        self._audit(key, found, old, new)

        def store() -> None:
            others = [each for each in found["status"].get("conditions") or () if each["type"] not in OWNED_CONDITIONS]
            kept = {name: found["status"][name] for name in ("reclaimablePods",) if name in found["status"]}
            found["status"] = {**kept, **wire, "conditions": [*others, *wire.get("conditions", ())]}
            self._stored(found)

        self.hub.write(store)
        return True

    def _audit(self, key: Key, found: Object, old: Status, new: Status) -> None:
        if (new.admission is not None) != new.is_true(WorkloadCondition.QUOTA_RESERVED):
            raise Violation(f"{key}: admission without QuotaReserved, or the other way round: {new}")
        for condition in new.conditions:
            before = next((each for each in old.conditions if each.type == condition.type), None)
            if before is not None and (before.status != condition.status) != (
                before.last_transition_time != condition.last_transition_time
            ):
                if before.status != condition.status and condition.last_transition_time == self.hub.now:
                    continue  # it flipped twice at one moment
                raise Violation(f"{key}: {condition.type} moved its time without a change: {before} {condition}")
        for check in new.checks:
            was = old.check(check.name)
            if was is not None and was.state is check.state and was.last_transition_time != check.last_transition_time:
                raise Violation(f"{key}: check {check.name} moved its time without a change: {was} {check}")
        if new.is_true(WorkloadCondition.ADMITTED) and not old.is_true(WorkloadCondition.ADMITTED):
            rules = AdmissionQueueFacts.of(self.hub.cluster_queues[(new.admission or {})["clusterQueue"]]).checks
            missing = set(required_checks(rules, assigned_flavors(new.admission))) - {each.name for each in new.checks}
            if missing or any(check.state is not CheckState.READY for check in new.checks):
                raise Violation(f"{key}: admitted without {sorted(missing)} or with a check that is not Ready: {new}")
        if old.admission is not None and new.admission is None and found["spec"].get("active") is not False:
            job = self.hub.jobs.get(owner_of(found))
            if job is not None and (job.get("status") or {}).get("active") and old.is_true(WorkloadCondition.ADMITTED):
                raise Violation(f"{key}: quota is given back while pods run")

    def _create(self, job: Object) -> bool:
        workload = self._manifest(job)
        key = key_of(workload)
        if key in self.hub.workloads:
            return False

        def store() -> None:
            self.hub.made += 1
            metadata = workload["metadata"]
            metadata.update(uid=f"uid-{metadata['name']}-{self.hub.made}", creationTimestamp=self._time(), generation=1)
            workload["status"] = {}
            self.hub.workloads[key] = workload
            self._stored(workload)

        self.hub.write(store)
        return True

    def _manifest(self, job: Object) -> Object:
        manifest: Object = workload_for(
            copy.deepcopy(job), BATCH_JOB, priority=resolved_priority(BATCH_JOB.priority(job), _CLASSES)
        )
        return copy.deepcopy(manifest)

    def _patch(self, key: Key, change: Callable[[Object], None]) -> bool:
        found = self.hub.workloads.get(key)
        if found is None:
            return False
        before = copy.deepcopy(found)

        def store() -> None:
            change(found)
            self._stored(found)

        self.hub.write(store)
        if {**found, "metadata": {**found["metadata"], "resourceVersion": ""}} == {
            **before,
            "metadata": {**before["metadata"], "resourceVersion": ""},
        }:
            raise Violation(f"{key}: a patch that changes nothing")
        return True

    def _remove(self, key: Key) -> bool:
        metadata = self.hub.workloads[key]["metadata"]
        if "deletionTimestamp" not in metadata:
            self._patch(key, lambda found: found["metadata"].update(deletionTimestamp=self._time()))
        if metadata.get("finalizers"):
            self._patch(key, lambda found: found["metadata"].update(finalizers=[]))
        return True

    def _stored(self, found: Object) -> None:
        key, metadata = key_of(found), found["metadata"]
        metadata["resourceVersion"] = str(int(metadata.get("resourceVersion", "0")) + 1)
        if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            del self.hub.workloads[key]
        self.see(key)

    def _time(self) -> str:
        return format_time(self.hub.now)

    # What holds between writes

    def check_quota(self) -> None:
        """The engine counts exactly the Workloads that have a reservation."""
        for name in QUEUES:
            want: dict[str, int] = {}
            for workload in self.hub.workloads.values():
                status = Status.of(workload)
                held = status.is_true(WorkloadCondition.QUOTA_RESERVED) and workload["spec"].get("active") is not False
                if not held or status.is_true(WorkloadCondition.FINISHED):
                    continue
                admission = status.admission or {}
                for assignment in admission["podSetAssignments"] if admission["clusterQueue"] == name else ():
                    flavor = assignment["flavors"]["cpu"]
                    want[flavor] = want.get(flavor, 0) + int(assignment["resourceUsage"]["cpu"]) * 1000
            state = self.engine.cluster_queue_state(name)
            shown = {key.flavor: amount for key, amount in state.reservation.items() if amount}
            if shown != want:
                raise Violation(f"ClusterQueue {name}: reserved {want}, counted {shown}")


_CLASSES: Final = PriorityClasses(workload=CLASSES.get, pod=lambda name: None, default=lambda: None)
