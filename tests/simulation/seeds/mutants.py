# SPDX-License-Identifier: Apache-2.0
"""Deliberate faults, each of which some seed has to catch: what shows that the simulation bites.

Owns the replacement of one decision of the real code by a wrong one. It is applied in the process of a seed, which
ends with the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from manager.dispatch import assumed_observations, controller, gather
from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.dispatch.hub.actions import DispatchPlan, RemoveAssignment
from multikueue.dispatch.hub.facts import DispatchFacts, Observation
from multikueue.dispatch.hub.plan import plan
from worker_agent.hub.heartbeat import Heartbeat
from worker_agent.hub.status_reporter import StatusReporter
from worker_agent.reconciler import Reconciler


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault, and the guarantee that it breaks."""

    breaks: str
    apply: Callable[[], None]


def _remove_epoch_check() -> None:
    def always_first(counts: Iterable[int], annotations: Mapping[str, str]) -> int:
        return 1

    for module in (gather, assumed_observations):
        setattr(module, "epoch_of", always_first)  # noqa: B010 (mypy would have it that modules are final)


def _let_earliest_win() -> None:
    honest = plan

    def hasty(facts: DispatchFacts, now: datetime) -> DispatchPlan:
        workload = facts.workload
        if workload is None or not workload.cluster_name or workload.stopping:
            return honest(facts, now)
        first = next((o.cluster for o in facts.observations.values() if o.has_phase(AssignmentPhase.RESERVED)), "")
        if first:
            facts = replace(facts, workload=replace(workload, cluster_name=first))
        found = honest(facts, now)
        # Who decides by the first admission keeps the others as long as none has come.
        return replace(
            found, actions=tuple(action for action in found.actions if not isinstance(action, RemoveAssignment))
        )

    setattr(controller, "plan", hasty)  # noqa: B010


def _ignore_lease() -> None:
    def always(self: Heartbeat, *, within: float = 0.0) -> bool:
        return True

    setattr(Heartbeat, "valid", always)  # noqa: B010


def _skip_clean_up() -> None:
    async def nothing(self: Reconciler, name: str) -> None:
        return None

    setattr(Reconciler, "_remove", nothing)  # noqa: B010


def _accept_stale_status() -> None:
    """On both sides: the agent's status is not bound to one object, and the hub does not check its epoch."""
    bound = StatusReporter._send

    class Loose:
        def __init__(self, client: object) -> None:
            self._client = client

        async def patch(self, resource: object, name: str, patch: list[object], **how: object) -> object:
            return await self._client.patch(resource, name, patch[1:], **how)  # type: ignore[attr-defined]

    async def send(self: StatusReporter, name: str) -> object:
        client: object = self._client
        if not isinstance(client, Loose):
            setattr(self, "_client", Loose(client))  # noqa: B010
        return await bound(self, name)

    setattr(StatusReporter, "_send", send)  # noqa: B010
    setattr(Observation, "answered", property(lambda self: True))  # noqa: B010


MUTANTS: Final[Mapping[str, Mutant]] = {
    "epoch-check-removed": Mutant("one grant for each epoch", _remove_epoch_check),
    "earliest-admission-wins": Mutant("clusterName is the only winner", _let_earliest_win),
    "lease-ignored": Mutant("fenced work runs once", _ignore_lease),
    "clean-up-skipped": Mutant("nothing is left behind", _skip_clean_up),
    "stale-status-accepted": Mutant("status for an older epoch is ignored", _accept_stale_status),
}
