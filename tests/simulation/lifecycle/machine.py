# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.simulation.lifecycle --steps 10000 --seed 1`: the lifecycle of Workloads as a state machine.

Users edit, controllers of checks and an autoscaler answer, pods come and go, time passes, the manager works, and is
killed at any write. Owns the rules; what holds of one write is checked in `world`. A violation prints the
steps before it, as a test that can be pasted, and the seed that finds it again.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from multikueue.api.constants import MAX_EXEC_TIME_LABEL, PRIORITY_CLASS_LABEL, PROVISIONING_PARAMETER_PREFIX
from multikueue.core.timestamps import format_time
from tests.simulation.lifecycle.autoscaler import AutoscalerRules
from tests.simulation.lifecycle.hub import (
    CAPACITY,
    CHECKS,
    FOREIGN_CHECKS,
    QUEUES,
    TEAM,
    Killed,
    Violation,
    later,
    new_hub,
    strategy,
)
from tests.simulation.lifecycle.world import LifecycleManager

NAMES = ("j0", "j1", "j2", "j3", "j4")
WHICH = st.integers(0, 9)
STEPS = {"taken": 0}
"""Of this process."""
MET: Counter[str] = Counter()
"""What happened to requests for capacity in all machines of this process."""


class Lifecycle(AutoscalerRules, RuleBasedStateMachine):
    """Five Jobs, two queues, three checks of others and one that provisions, one manager."""

    def __init__(self) -> None:
        super().__init__()
        self.hub = new_hub()
        self.manager = LifecycleManager(self.hub)

    @invariant()
    def quota_is_held_exactly_by_what_is_reserved(self) -> None:
        STEPS["taken"] += 1
        self.manager.check_quota()

    def teardown(self) -> None:
        """Count what this machine has met."""
        MET.update(self.hub.capacity.met)

    @initialize(asked=st.sampled_from(((), ("a",), ("a", "b"))))
    def start(self, asked: tuple[str, ...]) -> None:
        """The queues that provision, with a Job each."""
        for number, name in enumerate(asked):
            self.change_checks(name, [CAPACITY, *FOREIGN_CHECKS[:number]])
            self.submit(NAMES[number], name, 1, None, None)
        self.manager_does_everything()

    # Users

    @rule(
        name=st.sampled_from(NAMES),
        queue=st.sampled_from(QUEUES),
        cpus=st.integers(1, 4),
        limit=st.sampled_from((None, "150")),
        priority=st.sampled_from((None, "low", "high")),
        parameter=st.sampled_from((None, None, None, "fast", "x" * 300)),
    )
    def submit(
        self, name: str, queue: str, cpus: int, limit: str | None, priority: str | None, parameter: str | None = None
    ) -> None:
        if name in self.hub.jobs:
            return
        self.hub.made += 1
        labels = {"kueue.x-k8s.io/queue-name": queue}
        labels |= {} if limit is None else {MAX_EXEC_TIME_LABEL: limit}
        labels |= {} if priority is None else {PRIORITY_CLASS_LABEL: priority}
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpus)}}}
        self.hub.jobs[name] = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": name,
                "namespace": TEAM,
                "uid": f"uid-{name}-{self.hub.made}",
                "resourceVersion": "1",
                "labels": labels,
                "annotations": {} if parameter is None else {f"{PROVISIONING_PARAMETER_PREFIX}speed": parameter},
                "creationTimestamp": format_time(self.hub.now),
            },
            "spec": {
                "suspend": True,
                "parallelism": 1,
                "completions": 1,
                "template": {
                    "metadata": {"labels": {"batch.kubernetes.io/job-name": name}},
                    "spec": {"restartPolicy": "Never", "containers": [container]},
                },
            },
            "status": {},
        }

    @rule(which=WHICH, suspend=st.booleans())
    def suspend(self, which: int, suspend: bool) -> None:
        if job := self.job(which):
            job["spec"]["suspend"] = suspend

    @rule(which=WHICH, queue=st.sampled_from((*QUEUES, "missing")))
    def change_queue(self, which: int, queue: str) -> None:
        if job := self.job(which):
            job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = queue

    @rule(which=WHICH, priority=st.sampled_from(("low", "high")))
    def change_priority(self, which: int, priority: str) -> None:
        if job := self.job(which):
            job["metadata"]["labels"][PRIORITY_CLASS_LABEL] = priority

    @rule(which=WHICH, cpus=st.integers(1, 4))
    def edit_job(self, which: int, cpus: int) -> None:
        job = self.job(which)
        if job and job["spec"]["suspend"] and not job["status"].get("active"):
            job["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = str(cpus)

    @rule(which=WHICH)
    def delete_job(self, which: int) -> None:
        if job := self.job(which):
            del self.hub.jobs[job["metadata"]["name"]]

    @rule(which=WHICH, active=st.booleans())
    def activate(self, which: int, active: bool) -> None:
        if workload := self.workload(which):
            workload["spec"]["active"] = active
            self.edited(workload)

    @rule(which=WHICH)
    def delete_workload(self, which: int) -> None:
        if workload := self.workload(which):
            workload["metadata"].setdefault("deletionTimestamp", format_time(self.hub.now))
            self.edited(workload)

    # Administrators

    @rule(name=st.sampled_from(QUEUES), policy=st.sampled_from(("None", "None", "Hold", "HoldAndDrain")))
    def stop_cluster_queue(self, name: str, policy: str) -> None:
        self.hub.cluster_queues[name]["spec"]["stopPolicy"] = policy
        self.manager.see_queue(name)

    @rule(name=st.sampled_from(QUEUES), policy=st.sampled_from(("None", "None", "Hold", "HoldAndDrain")))
    def stop_local_queue(self, name: str, policy: str) -> None:
        self.hub.local_queues[name]["spec"]["stopPolicy"] = policy
        self.manager.see_queue(name)

    @rule(name=st.sampled_from(QUEUES), checks=st.lists(st.sampled_from(CHECKS), unique=True, max_size=4))
    def change_checks(self, name: str, checks: list[str]) -> None:
        spec = self.hub.cluster_queues[name]["spec"]
        spec["admissionChecksStrategy"] = {"admissionChecks": strategy(tuple(checks))}
        self.manager.see_queue(name)

    @rule(name=st.sampled_from(FOREIGN_CHECKS), status=st.sampled_from(("True", "True", "False")))
    def controller_of_check(self, name: str, status: str) -> None:
        self.hub.checks[name]["status"]["conditions"][0]["status"] = status
        self.manager.see_check(name)

    # Controllers of checks, and pods

    @rule(
        which=WHICH,
        entry=st.integers(0, 2),
        state=st.sampled_from(("Ready", "Ready", "Ready", "Pending", "Retry", "Rejected")),
        pause=st.sampled_from((None, 0, 30, 120)),
        attempts=st.sampled_from((None, None, 0, 3)),
    )
    def answer(self, which: int, entry: int, state: str, pause: int | None, attempts: int | None = None) -> None:
        workload = self.workload(which)
        listed = ((workload or {}).get("status") or {}).get("admissionChecks") or ()
        entries = [each for each in listed if each["name"] != CAPACITY]
        if workload is None or not entries:
            return
        found = entries[entry % len(entries)]
        if found["state"] != state:
            found.update(state=state, lastTransitionTime=format_time(self.hub.now), message=f"is {state}")
        if attempts is not None:
            found["retryCount"] = attempts
        if pause is not None and state == "Retry":
            found["requeueAfterSeconds"] = pause
        if state == "Ready":
            found["podSetUpdates"] = [{"name": "main", "labels": {"granted": "yes"}}]
        self.edited(workload)

    @rule(which=WHICH)
    def all_ready(self, which: int) -> None:
        for entry in range(3):
            self.answer(which, entry, "Ready", None)

    @rule(which=WHICH, ready=st.booleans())
    def pods_run(self, which: int, ready: bool) -> None:
        job = self.job(which)
        if job and not job["spec"]["suspend"] and not job["status"].get("conditions"):
            job["status"] = {"active": 1, "ready": int(ready), "startTime": format_time(self.hub.now)}

    @rule(which=WHICH)
    def pods_are_gone(self, which: int) -> None:
        job = self.job(which)
        if job and job["spec"]["suspend"] and job["status"].get("active"):
            job["status"] = {}

    @rule(which=WHICH, kind=st.sampled_from(("Complete", "Failed")))
    def job_ends(self, which: int, kind: str) -> None:
        job = self.job(which)
        if job and job["status"].get("active"):
            condition = {"type": kind, "status": "True", "message": "", "reason": ""}
            job["status"] = {"conditions": [condition], "succeeded": int(kind == "Complete")}

    # Time, and the manager

    @rule(seconds=st.sampled_from((1, 7, 30, 60, 101, 300)))
    def time_passes(self, seconds: int) -> None:
        later(self.hub, seconds)

    @rule(which=WHICH, part=st.sampled_from(("job", "workload", "capacity", "cycle")))
    def manager_does_one_thing(self, which: int, part: str) -> None:
        if part == "cycle":
            self.manager.cycle()
        elif part == "job" and (job := self.job(which)):
            self.manager.reconcile_job(job["metadata"]["name"])
        elif part == "workload" and (workload := self.workload(which)):
            metadata = workload["metadata"]
            self.manager.reconcile_workload(next(key for key in self.hub.workloads if key.name == metadata["name"]))
        elif part == "capacity":
            self.manager.capacity.reconcile()  # on what its informers have seen so far

    @rule()
    def manager_does_everything(self) -> None:
        self.manager.settle()
        if self.manager.round():
            raise Violation("a manager that has done everything writes again")
        self.manager.capacity.check_rest()

    @rule()
    def manager_restarts(self) -> None:
        self.manager = LifecycleManager(self.hub)

    @rule(writes=st.integers(1, 8), stored=st.booleans())
    def manager_is_killed_at_a_write(self, writes: int, stored: bool) -> None:
        """What it leaves, its successor brings to the end that it would have come to itself."""
        unharmed = copy.deepcopy(self.hub)
        for _ in range(2):  # that a manager restarts changes nothing either
            LifecycleManager(unharmed).settle()
        self.hub.fuse, self.hub.stored_last = writes, stored
        try:
            LifecycleManager(self.hub).settle()
        except Killed:
            pass
        finally:
            self.hub.fuse = None
        self.manager = LifecycleManager(self.hub)
        self.manager.settle()
        self.manager.capacity.check_rest()
        one, other = unharmed.durable(), self.hub.durable()
        if one != other:
            raise Violation(f"killed at write {writes} (stored: {stored}):\n" + "\n".join(differences(one, other)))

    def job(self, which: int) -> Any:
        """One of the Jobs; None when there is none."""
        names = sorted(self.hub.jobs)
        return self.hub.jobs[names[which % len(names)]] if names else None

    def workload(self, which: int) -> Any:
        """One of the Workloads; None when there is none."""
        keys = sorted(self.hub.workloads)
        return self.hub.workloads[keys[which % len(keys)]] if keys else None

    def edited(self, workload: Any) -> None:
        """The manager sees what another client wrote."""
        metadata = workload["metadata"]
        key = next(key for key in self.hub.workloads if key.name == metadata["name"])
        if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            del self.hub.workloads[key]
        self.manager.see(key)


def differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Where two documents differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            line
            for key in sorted({*one, *other})
            for line in differences(one.get(key), other.get(key), f"{path}.{key}")
        ]
    return [] if one == other else [f"{path}: {one} | {other}"]


def play(*, steps: int, number: int, length: int = 60, shrink: bool = False) -> int:
    """Play until so many steps were taken; how many it were. Raises what a violation raised, with its steps."""
    taken = STEPS["taken"]
    while STEPS["taken"] - taken < steps:
        chosen = settings(
            max_examples=max(1, min(25, (steps - STEPS["taken"] + taken) // length + 1)),
            stateful_step_count=length,
            deadline=None,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
            report_multiple_bugs=False,
        )
        run_state_machine_as_test(seed(number)(Lifecycle), settings=chosen)
        number += 1
    return STEPS["taken"] - taken


def main(arguments: Sequence[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.lifecycle", description=__doc__)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shrink", action="store_true", help="look for fewer steps that fail; takes minutes")
    chosen = parser.parse_args(arguments)
    started = time.monotonic()
    try:
        taken = play(steps=chosen.steps, number=chosen.seed, shrink=chosen.shrink)
    except BaseException as error:
        sys.stderr.write(f"violation with --seed {chosen.seed} --steps {chosen.steps}:\n")
        sys.stderr.write("\n".join(getattr(error, "__notes__", ())) + "\n")
        raise
    seconds = time.monotonic() - started
    sys.stdout.write(f"{taken} steps from seed {chosen.seed} in {seconds:.0f} s: 0 violations\n")
    sys.stdout.write("".join(f"  {name}: {count}\n" for name, count in sorted(MET.items())))
    return 0
