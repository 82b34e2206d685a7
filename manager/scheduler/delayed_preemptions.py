# SPDX-License-Identifier: Apache-2.0
"""Preemptions that were decided, and whose evictions wait for `preemptionDelay`.

Pure: times are passed in, in seconds, and the engine is only asked for figures. Quota that is released meanwhile may
be enough for the preemptor, or for a part of what it needs. So no eviction of the first decision is written: when the
delay ends, the preemptor is decided again, and the victims of that decision are evicted at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from multikueue.core.keys import Key
from multikueue.engine import Engine
from multikueue.engine.decisions import Victim

_SHORT_RUN: Final = 600.0  # times the shortest delay
_LONGEST: Final = 40.0  # times the shortest delay
_RELEASES: Final = 10.0
_DUE_SECONDS: Final = 10.0


def delay_for_victims(victims: Iterable[Victim], engine: Engine, shortest: float) -> float:
    """How many seconds the evictions of these wait, so that quota may be released without them."""
    found = list(victims)
    runs = engine.mean_runs(each.cluster_queue for each in found)
    released = engine.seconds_until_released(each.workload for each in found)
    return max(delay_for_runs(runs, shortest), delay_for_releases(released, shortest))


def delay_for_runs(runs: Iterable[float | None], shortest: float) -> float:
    """The delay for victims whose queues' workloads ran for so many seconds on the mean; None is not known.

    If all these runs are short, up to a minute with the default, it is twice the longest of them, but four seconds at
    most: by then many of them have ended, and each eviction costs writes and the victim its run.
    """
    known = list(runs)
    short = [run for run in known if run is not None and run <= _SHORT_RUN * shortest]
    if not short or len(short) < len(known):
        return shortest
    return max(shortest, min(2.0 * max(short), _LONGEST * shortest))


def delay_for_releases(seconds: float | None, shortest: float) -> float:
    """The delay for victims that hold as much as workloads of their cohort release in so many seconds on the mean.

    If that is within four seconds with the default, it is ten times as long, as others take most of what is released,
    but four seconds at most.
    """
    if seconds is None or seconds > _LONGEST * shortest:
        return shortest
    return max(shortest, min(_RELEASES * seconds, _LONGEST * shortest))


@dataclass(slots=True)
class _Delayed:
    until: float
    victims: dict[Key, None] = field(default_factory=dict)


class DelayedPreemptions:
    """The preemptors whose delay runs with the victims chosen for them, and those whose delay has ended."""

    def __init__(self) -> None:
        self._delayed: dict[Key, _Delayed] = {}
        self._due: dict[Key, float | None] = {}
        """Since when they need no victims; None if they were not decided again."""

    @property
    def next_end(self) -> float | None:
        """When the next delay ends; None if none runs."""
        return min((delayed.until for delayed in self._delayed.values()), default=None)

    def delay(self, preemptor: Key, victims: Iterable[Key], *, until: float) -> None:
        """Keep victims of a decision; a delay of the same preemptor that runs already ends when it would have."""
        delayed = self._delayed.setdefault(preemptor, _Delayed(until))
        delayed.victims.update(dict.fromkeys(victims))

    def needs_no_victims(self, preemptor: Key, now: float) -> None:
        """The preemptor was decided again, and preempts nothing now."""
        if preemptor in self._due and self._due[preemptor] is None:
            self._due[preemptor] = now

    def take_due(self, preemptor: Key, now: float) -> bool:
        """Whether its delay has ended, so that the victims of this decision are evicted now; once for each delay.

        One that needed no victims for ten seconds has to wait again: quota is released that others take before it.
        """
        if preemptor not in self._due:
            return False
        since = self._due.pop(preemptor)
        return since is None or now <= since + _DUE_SECONDS

    def end(self, now: float, *, is_pending: Callable[[Key], bool]) -> list[Key]:
        """The victims of the delays that end: at their time, or because the preemptor is no longer pending."""
        self._due = {preemptor: since for preemptor, since in self._due.items() if is_pending(preemptor)}
        ended = [
            preemptor
            for preemptor, delayed in self._delayed.items()
            if delayed.until <= now or not is_pending(preemptor)
        ]
        victims: list[Key] = []
        for preemptor in ended:
            victims.extend(self._delayed.pop(preemptor).victims)
            if is_pending(preemptor):
                self._due[preemptor] = None
        return victims

    def clear(self) -> None:
        """Forget all, as the engine that decided them is gone."""
        self._delayed.clear()
        self._due.clear()
