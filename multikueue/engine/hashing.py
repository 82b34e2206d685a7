# SPDX-License-Identifier: Apache-2.0
"""When two pending workloads are the same to the engine (`docs/spec/engine.md §1.13`).

Owns the equivalence hash. Only equality of hashes means anything.
"""

from __future__ import annotations

import hashlib

from multikueue.engine.requests import PodSetRequests
from multikueue.engine.workloads import Workload


def equivalence(workload: Workload, requests: tuple[PodSetRequests, ...], *, priority: int) -> str:
    """Sixteen hex digits, or nothing where a shape is not known well enough to be compared."""
    parts = [str(priority)]
    for pod_set, counted in zip(workload.pod_sets, requests, strict=True):
        if not pod_set.shape.fingerprint:
            return ""
        topology = pod_set.topology.fingerprint if pod_set.topology is not None else ""
        totals = ",".join(f"{name}={counted.total[name]}" for name in sorted(counted.total))
        parts.append(
            f"{pod_set.name}|{pod_set.shape.fingerprint}|{counted.count}|{totals}|{pod_set.min_count}|{topology}"
        )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
