# SPDX-License-Identifier: Apache-2.0
"""The engine against what a live upstream engine decided (see README.md beside this file)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest

from multikueue.core.quantity import Quantity
from multikueue.core.timestamps import format_time
from multikueue.engine import decode
from multikueue.engine.decisions import Outcome
from multikueue.engine.settings import Settings
from multikueue.simulation.manifests import Manifest
from multikueue.simulation.run import run
from multikueue.simulation.simulated_cluster import build

HERE = Path(__file__).parent
START = datetime(2026, 1, 1, tzinfo=UTC)
FAIR = {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]}
SETTLED = 4  # seconds after the last workload of a phase; the live engine looked once more a second later

Json = dict[str, Any]


def scenarios() -> Iterator[Any]:
    for name in ("classical", "fair"):
        for line in (HERE / f"{name}.jsonl").read_bytes().splitlines():
            scenario = orjson.loads(line)
            yield pytest.param(scenario, id=scenario["name"])


def at(seconds: float) -> str:
    return format_time(START + timedelta(seconds=seconds))


GATE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "AdmissionCheck",
    "metadata": {"name": "gate"},
    "spec": {"controllerName": "example.com/gate"},
    "status": {"conditions": [{"type": "Active", "status": "True"}]},
}


def reservation(manifest: Json, state: Json, held_since: float) -> Json:
    """The status of a workload that holds quota as recorded."""
    assignments = []
    for pod_set, got in zip(manifest["spec"]["podSets"], state["podSets"], strict=True):
        requests = pod_set["template"]["spec"]["containers"][0]["resources"]["requests"]
        usage = {name: str(Quantity.parse(amount) * got["count"]) for name, amount in requests.items()}
        assignments.append(
            {"name": pod_set["name"], "count": got["count"], "flavors": got["flavors"], "resourceUsage": usage}
        )
    times = {"lastTransitionTime": at(held_since)}
    return {
        "admission": {"clusterQueue": manifest["spec"]["queueName"], "podSetAssignments": assignments},
        "conditions": [{"type": "QuotaReserved", "status": "True", "reason": "QuotaReserved", "message": "", **times}],
        "admissionChecks": [{"name": "gate", "state": "Pending", "message": "", **times}],
    }


@dataclass(slots=True)
class Phase:
    """The state before a phase, and the outcome of the engine."""

    scenario: Json
    known: list[Json]
    before: Json
    held_since: dict[str, float]

    def decide(self, now: float, state: Json, evictions: dict[str, list[str]], held_since: dict[str, float]) -> None:
        """Let the engine settle at `now`; `state` and `evictions` are brought up to date."""
        settings = decode.settings({"fairSharing": FAIR} if self.scenario["fairSharing"] else {})
        assert isinstance(settings, Settings)
        objects = [GATE, *self.scenario["objects"], *(self._workload(m, state, held_since) for m in self.known)]
        moment = START + timedelta(seconds=now)
        context = build([Manifest(obj, "scenario") for obj in objects], settings=settings, now=moment)
        for cycle in run(context, now=moment).cycles:
            for decision in cycle.decisions:
                name = decision.workload.name
                if decision.outcome is Outcome.RESERVED:
                    pod_sets = [
                        {"name": p.name, "count": p.count, "flavors": dict(p.flavors)} for p in decision.pod_sets
                    ]
                    state[name] = {"reserved": True, "podSets": pod_sets}
                    held_since[name] = now
                for victim in decision.victims:
                    state[victim.workload.name] = {"reserved": False}
                    evictions.setdefault(victim.workload.name, []).append(str(victim.reason))

    def _workload(self, manifest: Json, state: Json, held_since: dict[str, float]) -> Json:
        name = manifest["metadata"]["name"]
        workload = copy.deepcopy(manifest)
        workload["metadata"] |= {"creationTimestamp": at(self.scenario["created"][name]), "uid": f"uid-{name}"}
        if state.get(name, {}).get("reserved"):
            workload["status"] = reservation(manifest, state[name], held_since.get(name, 0))
        return workload

    def settles_as(self, outcome: Json, now: float) -> list[str]:
        """What differs from the recording after the release and, if anything does, after the second look."""
        state, held_since = copy.deepcopy(self.before), dict(self.held_since)
        evictions: dict[str, list[str]] = {}
        differences: list[str] = []
        for look in range(2):
            self.decide(now + look, state, evictions, held_since)
            differences = list(self._differences(outcome, state, evictions))
            if not differences:
                break
        return differences

    def _differences(self, outcome: Json, state: Json, evictions: dict[str, list[str]]) -> Iterator[str]:
        for name, want in outcome.items():
            got = state.get(name, {"reserved": False})
            former = self.before.get(name, {}).get("evictions", [])
            if got["reserved"] != want["reserved"]:
                yield f"{name}: reserved is {got['reserved']}, recorded {want['reserved']} ({want.get('message')})"
            elif want["reserved"] and got["podSets"] != want["podSets"]:
                yield f"{name}: {got['podSets']}, recorded {want['podSets']}"
            if evictions.get(name, []) != want["evictions"][len(former) :]:
                yield f"{name}: evicted for {evictions.get(name, [])}, recorded {want['evictions'][len(former) :]}"


@pytest.mark.parametrize("scenario", list(scenarios()))
def test_the_engine_settles_as_the_live_one_did(scenario: Json) -> None:
    phase = Phase(scenario, [], {}, {})
    for workloads, outcome in zip(scenario["phases"], scenario["outcomes"], strict=True):
        phase.known += workloads
        now = max(scenario["created"][w["metadata"]["name"]] for w in workloads) + SETTLED
        assert phase.settles_as(outcome, now) == []
        _note_reservations(phase, outcome, now)
        phase.before = outcome


def _note_reservations(phase: Phase, outcome: Json, now: float) -> None:
    """Those of one phase count as seconds apart, in queue order: recordings that hang on it were left out."""
    created = phase.scenario["created"]
    priority = {m["metadata"]["name"]: m["spec"]["priority"] for m in phase.known}
    fresh = [
        name
        for name, state in outcome.items()
        if state["reserved"]
        and (
            not phase.before.get(name, {}).get("reserved")
            or len(state["evictions"]) > len(phase.before[name]["evictions"])
        )
    ]
    for rank, name in enumerate(sorted(fresh, key=lambda name: (-priority[name], created[name]))):
        phase.held_since[name] = now + rank
