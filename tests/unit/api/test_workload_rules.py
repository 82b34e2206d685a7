# SPDX-License-Identifier: Apache-2.0
"""The CEL rules of a Workload allow and refuse what Kueue's do; ours are written in another order, which costs less."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from devcluster.apiserver.cel.compile import Expression
from devcluster.apiserver.cel.syntax import CelError
from multikueue.api.workload_rules import WORKLOAD_RULES, WORKLOAD_RULES_V1BETA1

REFERENCE = Path(__file__).resolve().parents[4] / "shared/reference/crds/workloads.json"
pytestmark = pytest.mark.skipif(
    not REFERENCE.is_file(), reason=f"Kueue's schema is not beside this checkout ({REFERENCE})"
)

OURS = {"v1beta1": WORKLOAD_RULES_V1BETA1, "v1beta2": WORKLOAD_RULES}
Object = dict[str, Any]
SPECS: dict[str, tuple[Object, ...]] = {
    "v1beta2": (
        {},
        *(
            {"priorityClassRef": {"group": g, "kind": k, "name": n}}
            for g, k, n in (
                ("scheduling.k8s.io", "PriorityClass", "a"),
                ("scheduling.k8s.io", "PriorityClass", "b"),
                ("kueue.x-k8s.io", "WorkloadPriorityClass", "a"),
                ("kueue.x-k8s.io", "WorkloadPriorityClass", "b"),
            )
        ),
    ),
    "v1beta1": (
        {},
        {"priorityClassName": "a"},
        *(
            {"priorityClassSource": source, "priorityClassName": name}
            for source, name in product(
                ("scheduling.k8s.io/priorityclass", "kueue.x-k8s.io/workloadpriorityclass"), "ab"
            )
        ),
        {"priorityClassSource": "scheduling.k8s.io/priorityclass"},
    ),
}
COMMON: tuple[Object, ...] = (
    {},
    {"queueName": "a"},
    {"queueName": "b", "maximumExecutionTimeSeconds": 5},
    {"maximumExecutionTimeSeconds": 6},
)
ADMISSIONS: tuple[Object, ...] = (
    {},
    {"admission": {"podSetAssignments": [{}]}},
    {"admission": {"podSetAssignments": []}},
)


def statuses() -> Iterator[Object]:
    yield {}
    yield {"status": {}}
    for admission in ADMISSIONS:
        for reserved, admitted in (("True", "True"), ("True", "False"), ("False", "False")):
            conditions = [{"type": "QuotaReserved", "status": reserved}, {"type": "Admitted", "status": admitted}]
            yield {"status": {"conditions": conditions, **admission}}


STATUSES = tuple(statuses())


def verdict(expression: Expression, variables: Object) -> bool | None:
    try:
        return bool(expression.evaluate(variables))
    except CelError:
        return None


@pytest.mark.parametrize("version", OURS)
def test_every_pair_of_versions_is_judged_as_by_kueue(version: str) -> None:
    (theirs,) = (
        entry["schema"]["openAPIV3Schema"]["x-kubernetes-validations"]
        for entry in json.loads(REFERENCE.read_text(encoding="utf-8"))["spec"]["versions"]
        if entry["name"] == version
    )
    by_message = {rule["message"]: rule["rule"] for rule in theirs}
    assert [rule.message for rule in OURS[version]] == [rule["message"] for rule in theirs]
    specs = [{"podSets": [{}], **fields} for fields in (*SPECS[version], *COMMON)]
    for rule in OURS[version]:
        judges = [
            Expression(text, variables=frozenset({"self", "oldSelf"})) for text in (rule.rule, by_message[rule.message])
        ]
        refused = 0
        for old_spec, new_spec, old_status, new_status in product(specs, specs, STATUSES, STATUSES):
            variables = {"self": {"spec": new_spec, **new_status}, "oldSelf": {"spec": old_spec, **old_status}}
            ours, kueues = (verdict(judge, variables) for judge in judges)
            assert ours == kueues, (rule.message, variables)
            refused += not ours
        assert refused, f"no pair breaks: {rule.message}"
