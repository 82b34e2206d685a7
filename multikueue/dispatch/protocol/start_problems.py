# SPDX-License-Identifier: Apache-2.0
"""Why the pods of a remote job do not start, or a change of it is not made, as agent and hub exchange it.

Owns the limits of its texts. Reason and message come from kubelets, schedulers and admission plugins of a worker, and
on the hub from its agent: neither is trusted to be short or printable.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from multikueue.api.reasons import PODS_NOT_STARTED_REASON
from multikueue.core.printable import printable

MAX_MESSAGE: Final = 400
"""In characters; an event and 80 columns have limits of their own."""
_READ: Final = 8 * MAX_MESSAGE
_REASON: Final = re.compile("[A-Za-z](?:[A-Za-z0-9_]{0,62}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class StartProblem:
    """Why no pod of a job has started, or a change is not made; `since`, by the worker's clock, decides nothing."""

    reason: str
    message: str
    since: datetime | None = field(default=None, compare=False)


def start_problem_from(
    reason: object, message: object, *, since: datetime | None = None, otherwise: str = PODS_NOT_STARTED_REASON
) -> StartProblem:
    """The problem in texts of others: an invalid reason is `otherwise`, the message is made printable and short."""
    named = reason if isinstance(reason, str) and _REASON.fullmatch(reason) else otherwise
    # Cut before it is escaped, so that megabytes cost nothing, and after it, since escapes are longer.
    text = printable(" ".join(message[:_READ].split())) if isinstance(message, str) else ""
    return StartProblem(named, text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 4]} ...", since)
