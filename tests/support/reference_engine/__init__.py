# SPDX-License-Identifier: Apache-2.0
"""The admission engine once more, slowly: the model that `multikueue.engine` is compared with.

A second reading of `docs/spec/engine.md` §1 to §5 without any incremental state: every question is answered from the
list of workloads, every what-if works on a copy. Shares with the engine only its values, the counting of requests and
the texts of messages. Covers local queues only where open, no admission fair sharing, no topology.
"""

from __future__ import annotations

from tests.support.reference_engine.engine import ReferenceEngine
from tests.support.reference_engine.records import Verdict
from tests.support.reference_engine.tree import Tree

__all__ = ["ReferenceEngine", "Tree", "Verdict"]
