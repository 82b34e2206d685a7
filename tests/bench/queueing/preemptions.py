# SPDX-License-Identifier: Apache-2.0
"""Who was preempted for whom, read off a watch: whether the preemptor had waited before its victim was admitted."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from tests.bench.queueing.workloads import class_of, seconds_of
from tests.support.managers import condition

Object = dict[str, Any]

_UID: Final = re.compile(r"\(UID: ([^,)]+)")


@dataclass(slots=True)
class _Pair:
    evictions: int = 0
    waited: int = 0
    over: int = 0
    other_queue: int = 0


class Preemptions:
    """Evictions by the classes of preemptor and victim."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, str, float]] = {}
        self._pairs: dict[str, _Pair] = {}

    def on_created(self, workload: Object, now: float) -> None:
        """A Workload was seen for the first time, at a moment in seconds."""
        self._known[workload["metadata"]["uid"]] = (class_of(workload), workload["spec"]["queueName"], now)

    def on_evicted(self, victim: Object, *, admitted: float, now: float) -> None:
        """A Workload that was admitted at a moment is evicted now."""
        found = _UID.search(condition(victim, "Evicted").get("message", ""))
        preemptor = self._known.get(found[1]) if found else None
        if preemptor is None:
            self._pairs.setdefault("unknown", _Pair()).evictions += 1
            return
        name, queue, created = preemptor
        pair = self._pairs.setdefault(f"{class_of(victim)} for {name}", _Pair())
        pair.evictions += 1
        pair.waited += created < admitted
        pair.over += now - admitted >= seconds_of(victim)
        pair.other_queue += queue != victim["spec"]["queueName"]

    def figures(self) -> dict[str, dict[str, int]]:
        """By "victim for preemptor": how many, and of how many the preemptor had waited before the victim's admission,
        the victim's run was over though its end was not reported, and the preemptor is of another queue."""
        return {
            name: {
                "evictions": pair.evictions,
                "preemptor_waited_before_admission": pair.waited,
                "run_was_over": pair.over,
                "for_another_queue": pair.other_queue,
            }
            for name, pair in sorted(self._pairs.items(), key=lambda found: -found[1].evictions)
        }
