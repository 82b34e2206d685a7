# SPDX-License-Identifier: Apache-2.0
"""Which rights the rules of a SelfSubjectRulesReview grant."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.dispatch.protocol.granted_rules import GrantedRules
from multikueue.dispatch.protocol.worker_rights import WorkerRight


def right(verb: str, resource: str) -> WorkerRight:
    return WorkerRight(verb=verb, resource=resource, gives="")


def rule(verbs: str, groups: list[str], resources: str, **more: Any) -> dict[str, Any]:
    return {"verbs": verbs.split(), "apiGroups": groups, "resources": resources.split(), **more}


def grants(found: Any, wanted: WorkerRight, *, paths: Any = (), incomplete: Any = False) -> bool:
    status = {"resourceRules": found, "nonResourceRules": paths, "incomplete": incomplete}
    return GrantedRules.of({"status": status}).grant(wanted)


@pytest.mark.parametrize(
    ("found", "wanted", "granted"),
    [
        (rule("get list", ["batch"], "jobs"), right("list", "jobs.batch"), True),
        (rule("get", ["batch"], "jobs"), right("list", "jobs.batch"), False),
        (rule("list", ["apps"], "jobs"), right("list", "jobs.batch"), False),
        (rule("list", [""], "jobs"), right("list", "jobs.batch"), False),
        (rule("list", [""], "nodes"), right("list", "nodes"), True),
        (rule("*", ["*"], "*"), right("list", "jobs.batch"), True),
        (rule("*", ["*"], "*"), right("get", "pods/log"), True),
        (rule("get", [""], "pods"), right("get", "pods/log"), False),
        (rule("get", [""], "pods/log"), right("get", "pods"), False),
        (rule("get", [""], "pods/log"), right("get", "pods/log"), True),
        (rule("get", [""], "*/log"), right("get", "pods/log"), True),
        (rule("get", [""], "pods/*"), right("get", "pods/log"), False),
        (
            rule("patch", ["kueue.x-k8s.io"], "workloads/status"),
            right("patch", "workloads.kueue.x-k8s.io/status"),
            True,
        ),
        (rule("get", [""], "secrets", resourceNames=["one"]), right("get", "secrets"), False),
        (rule("get", [""], "secrets", resourceNames=[]), right("get", "secrets"), True),
        (rule("*", ["*"], "*"), right("get", "/readyz"), False),
    ],
    ids=str,
)
def test_a_rule_grants_what_rbac_allows_by_it_for_all_objects(
    found: dict[str, Any], wanted: WorkerRight, granted: bool
) -> None:
    assert grants([rule("watch", ["x"], "others"), found], wanted) is granted


@pytest.mark.parametrize(
    ("path", "granted"),
    [("/readyz", True), ("*", True), ("/ready*", True), ("/readyz/*", False), ("/version", False), ("", False)],
)
def test_a_rule_for_paths_grants_what_begins_as_it_does(path: str, granted: bool) -> None:
    assert grants([], right("get", "/readyz"), paths=[{"verbs": ["get"], "nonResourceURLs": [path]}]) is granted


@pytest.mark.parametrize("incomplete", [True, None, "false", 0])
def test_an_incomplete_list_grants_nothing_since_some_of_it_may_be_denied(incomplete: Any) -> None:
    assert not grants([rule("*", ["*"], "*")], right("get", "pods"), incomplete=incomplete)


@pytest.mark.parametrize("found", [None, {}, "rules", [None], [[]], [{"verbs": "get"}], [{"verbs": [["get"], {}]}]])
def test_rules_that_are_none_grant_nothing(found: Any) -> None:
    assert not grants(found, right("get", "pods"), paths=found)
    assert not grants(found, right("get", "/readyz"), paths=found)
