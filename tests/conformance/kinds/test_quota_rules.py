# SPDX-License-Identifier: Apache-2.0
"""Which ResourceQuotas are refused, and which changes of them."""

from __future__ import annotations

from typing import Final

import pytest

from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange
from tests.conformance.kinds.quota_objects import QUOTAS, Document, document, quota, selecting

pytestmark = pytest.mark.binaries

CASES = Cases("quota rules")
_MERGE: Final = "application/merge-patch+json"
_INVALID: Final[dict[str, Document]] = {
    "of an unknown scope": quota({"pods": "1"}, scopes=["Whim"]),
    "of conflicting scopes": quota({"pods": "1"}, scopes=["BestEffort", "NotBestEffort"]),
    "of two pairs of conflicting scopes": quota(
        {"pods": "1"}, scopes=["BestEffort", "NotBestEffort", "Terminating", "NotTerminating"]
    ),
    "of best effort with cpu": quota({"pods": "1", "cpu": "1"}, scopes=["BestEffort"]),
    "of a scope with services": quota({"services": "1", "secrets": "1"}, scopes=["NotTerminating"]),
    "of a scope with ephemeral storage": quota({"ephemeral-storage": "1"}, scopes=["NotBestEffort"]),
    "of a scope with huge pages": quota({"hugepages-2Mi": "1"}, scopes=["NotBestEffort"]),
    "of a scope with counts": quota({"count/pods": "1", "example.com/a": "1"}, scopes=["BestEffort"]),
    "of a scope of claims with pods": quota({"pods": "1"}, scopes=["VolumeAttributesClass"]),
    "of a scope of claims": quota({"persistentvolumeclaims": "1"}, scopes=["VolumeAttributesClass"]),
    "of a selector of an unknown scope": quota({"pods": "1"}, **selecting("Whim", "Exists")),
    "of a selector that does not fit": quota({"services": "1"}, **selecting("PriorityClass", "In", "a")),
    "of a selector of another operator": quota({"pods": "1"}, **selecting("BestEffort", "DoesNotExist")),
    "of a selector of a strange operator": quota({"pods": "1"}, **selecting("PriorityClass", "Whim")),
    "of a selector without values": quota({"pods": "1"}, **selecting("PriorityClass", "In")),
    "of a selector of values that exist": quota({"pods": "1"}, **selecting("PriorityClass", "Exists", "a")),
    "of a selector of conflicting scopes": quota(
        {"pods": "1"},
        scopeSelector={
            "matchExpressions": [
                {"scopeName": name, "operator": "Exists"} for name in ("Terminating", "NotTerminating")
            ]
        },
    ),
    "of storage": quota({"storage": "1"}),
    "of limits of storage": quota({"limits.storage": "1"}),
    "of a bad domain": quota({"a_b/c": "1"}),
    "of two slashes": quota({"a/b/c": "1"}),
    "of half a service": quota({"services.nodeports": "1.5"}),
    "of half a job": quota({"count/jobs.batch": "500m"}),
    "of half a replication controller": quota({"replicationcontrollers": "500m"}),
    "of half an extended resource": quota({"requests.example.com/gpu": "500m"}),
    "of half of something": quota({"example.com/gpu": "500m"}),
    "of a negative amount": quota({"requests.memory": "-1Gi"}),
    "of more requests than limits": quota(
        {"requests.cpu": "2", "limits.cpu": "1", "memory": "2Gi", "limits.memory": "1Gi"}
    ),
    "of more storage than its limit": quota({"requests.ephemeral-storage": "2", "limits.ephemeral-storage": "1"}),
    "of fine amounts": quota({"cpu": "1001u", "requests.memory": "1.0001Ki", "pods": "1e1"}),
    "of nothing": document("ResourceQuota", "q", spec={}),
    "without a spec": document("ResourceQuota", "q"),
}
for _name, _body in _INVALID.items():
    CASES.exchanges(f"a quota {_name} is made", Exchange("POST", QUOTAS, _body))


def _patched(name: str, before: Document, *patches: Document, subresource: str = "") -> None:
    steps = [Exchange("PATCH", f"{QUOTAS}/q{subresource}", patch, _MERGE) for patch in patches]
    CASES.exchanges(name, Exchange("POST", QUOTAS, before), *steps)


_patched(
    "scopes do not change",
    quota({"pods": "1"}, scopes=["Terminating"]),
    {"spec": {"scopes": ["NotTerminating"]}},
    {"spec": {"scopes": None}},
    {"spec": {"scopes": ["Terminating", "Terminating"]}},
    {"spec": {"hard": {"services": "1"}}},
    {"spec": {"hard": {"cpu": "1"}}},
)
_patched(
    "a selector changes",
    quota({"pods": "1"}, **selecting("PriorityClass", "Exists")),
    {"spec": selecting("PriorityClass", "In", "a")},
    {"spec": {"scopeSelector": None}},
    {"spec": {"hard": {"requests.cpu": "2", "limits.cpu": "1"}}},
)
_patched(
    "the status has what may be in a quota",
    quota({"pods": "1"}),
    {"status": {"hard": {"pods": "1"}, "used": {"pods": "1"}}},
    {"status": {"used": {"pods": "1.5"}}},
    {"status": {"used": {"whim": "1"}}},
    {"status": {"hard": {"memory": "-1"}}},
    {"status": {"used": {"requests.memory": "1024Mi"}}},
    subresource="/status",
)


@pytest.mark.parametrize("case", CASES.params())
async def test_a_quota_is_stored_or_refused_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """Names, amounts and scopes."""
    await judge(case)
