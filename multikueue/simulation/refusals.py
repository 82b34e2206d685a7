# SPDX-License-Identifier: Apache-2.0
"""What never comes to a queue, with the words in which the manager says so."""

from __future__ import annotations

from dataclasses import dataclass

from multikueue.core.keys import Key


@dataclass(frozen=True, slots=True)
class Refusal:
    """A workload that is not queued, and why."""

    workload: Key
    reason: str
    message: str
