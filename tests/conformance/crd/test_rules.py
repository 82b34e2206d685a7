# SPDX-License-Identifier: Apache-2.0
"""Every rule of our manifests, kept and broken, judged by a real API server."""

from __future__ import annotations

import pytest

from multikueue.api import crds
from tests.conformance.conftest import Judge
from tests.conformance.crd import rules
from tests.conformance.crd.installed import OLD_GROUP
from tests.conformance.crd.rules import Document, Key, Story
from tests.conformance.harness import Case, Cases, Side

_TYPES = {entry["spec"]["names"]["kind"]: entry["spec"] for entry in crds.manifests()}


def _merged(base: Document, changes: Document) -> Document:
    found = dict(base)
    for name, value in changes.items():
        old = found.get(name)
        found[name] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return found


async def _tell(side: Side, key: Key, story: Story, *, breaks: bool) -> None:
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
        **_merged(plain, story.create),
    }
    answers = [await side.post(where, body)]
    for patch in story.then:
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
        for word, story in (("is kept", pair.kept), ("is broken", pair.broken)):

            async def play(side: Side, key: Key = key, story: Story = story, word: str = word) -> None:
                await _tell(side, key, story, breaks=word == "is broken")

            found.add(f"{key} ({word})", play)
    return found


CASES = _cases()


def test_no_rule_of_the_manifests_is_without_stories() -> None:
    """And no story is of a rule that is gone."""
    assert set(rules.manifests()) == set(rules.pairs())


@pytest.mark.binaries
@pytest.mark.parametrize("case", CASES.params())
async def test_a_rule_is_judged_as_a_real_server_judges(judge: Judge, our_definitions: None, case: Case) -> None:
    """Both stories of every rule."""
    await judge(case)
