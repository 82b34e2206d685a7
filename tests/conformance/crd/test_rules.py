# SPDX-License-Identifier: Apache-2.0
"""Every rule of our manifests, kept and broken, judged by a real API server."""

from __future__ import annotations

import pytest

from multikueue.api import crds
from tests.conformance.conftest import Judge
from tests.conformance.crd import rules
from tests.conformance.crd.installed import OLD_GROUP
from tests.conformance.crd.rules import Key
from tests.conformance.crd.scenarios import Document, Scenario
from tests.conformance.harness import Case, Cases, Side

_TYPES = {entry["spec"]["names"]["kind"]: entry["spec"] for entry in crds.manifests()}


def _merged(base: Document, changes: Document) -> Document:
    found = dict(base)
    for name, value in changes.items():
        old = found.get(name)
        found[name] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return found


async def _play(side: Side, key: Key, scenario: Scenario, *, breaks: bool) -> None:
    spec = _TYPES[key.kind]
    group = spec["group"] if key.version == spec["versions"][-1]["name"] else OLD_GROUP
    where = f"/apis/{group}/{key.version}"
    if spec["scope"] == "Namespaced":
        where += "/namespaces/{ns}"
    where += f"/{spec['names']['plural']}"
    plain = {"spec": rules.plain(key.kind)}
    body = {
        "kind": key.kind,
        "apiVersion": f"{group}/{key.version}",
        "metadata": {"name": "{id}"},
        **_merged(plain, scenario.create),
    }
    answers = [await side.post(where, body)]
    for patch in scenario.then:
        path = f"{where}/{{id}}/status" if patch.keys() == {"status"} else f"{where}/{{id}}"
        answers.append(await side.patch("merge", path, patch))
    *first, last = answers
    assert all(answer.status < 300 for answer in first), first[-1].body
    if not breaks:
        assert last.status < 300, last.body
    else:
        assert last.status == 422, last.body
        assert key.message in last.body["message"]


def _cases() -> Cases:
    found = Cases("rules")
    for key, pair in rules.pairs().items():
        for outcome, scenario in (("is kept", pair.kept), ("is broken", pair.broken)):

            async def play(side: Side, key: Key = key, scenario: Scenario = scenario, outcome: str = outcome) -> None:
                await _play(side, key, scenario, breaks=outcome == "is broken")

            found.add(f"{key} ({outcome})", play)
    return found


CASES = _cases()


def test_no_rule_of_the_manifests_is_without_scenarios() -> None:
    """And every scenario has its rule."""
    assert set(rules.manifests()) == set(rules.pairs())


@pytest.mark.binaries
@pytest.mark.parametrize("case", CASES.params())
async def test_a_rule_is_judged_as_a_real_server_judges(judge: Judge, our_definitions: None, case: Case) -> None:
    """Both scenarios of every rule."""
    await judge(case)
