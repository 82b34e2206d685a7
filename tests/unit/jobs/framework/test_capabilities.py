# SPDX-License-Identifier: Apache-2.0
"""Which capabilities an integration has."""

from __future__ import annotations

import pytest

from multikueue.jobs.framework.capabilities import (
    ForwardingKind,
    GroupedKind,
    PodHoldingKind,
    ReplicatedKind,
    SentGroups,
)
from multikueue.jobs.kinds.batch_job import BATCH_JOB
from multikueue.jobs.kinds.deployment import DEPLOYMENT
from multikueue.jobs.kinds.leader_worker_set import LEADER_WORKER_SET
from multikueue.jobs.kinds.pod import BARE_POD
from multikueue.jobs.kinds.stateful_set import STATEFUL_SET

_ALL = (BATCH_JOB, BARE_POD, DEPLOYMENT, STATEFUL_SET, LEADER_WORKER_SET)


@pytest.mark.parametrize(
    ("capability", "kinds"),
    [
        (GroupedKind, {"pod", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset"}),
    ],
)
def test_a_kind_has_a_capability_if_its_class_has_all_members(capability: type, kinds: set[str]) -> None:
    print({c.__name__: [k.framework for k in _ALL if isinstance(k, c)] for c in (ForwardingKind,GroupedKind,PodHoldingKind,ReplicatedKind,SentGroups)})
    assert {kind.framework for kind in _ALL if isinstance(kind, capability)} == kinds
