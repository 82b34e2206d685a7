# SPDX-License-Identifier: Apache-2.0
"""The name of a job's Workload (`docs/spec/kueue-api.md §4.2`).

Owns the hashing, which other Kueue clients repeat to find the Workload of a job.
"""

from __future__ import annotations

import hashlib
from typing import Final

MAX_NAME: Final = 253
MAX_SHORT_NAME: Final = 63
"""With the gate ShortWorkloadNames."""
_HASH: Final = 5


def workload_name(*, kind: str, group: str, name: str, uid: str, limit: int = MAX_NAME) -> str:
    """`kind-name` cut to leave room for a dash and five hex digits over everything that makes the job unique."""
    digest = hashlib.sha1("\n".join((kind, group, name, uid)).encode(), usedforsecurity=False).hexdigest()[:_HASH]
    return f"{f'{kind.lower()}-{name}'[: limit - _HASH - 1]}-{digest}"
