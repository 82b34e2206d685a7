# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from multikueue.dispatch.sending.sending_policy import MAX_SENT_BYTES, SendingRules
from multikueue.dispatch.sending.sent_objects import SentReference
from multikueue.dispatch.sending.sent_references import NOT_FOUND, NOT_READ, SourceState, sent_references
from multikueue.dispatch.worker.dependencies import Dependency, SendableObjects

DB, SETTINGS = Dependency("Secret", "db"), Dependency("ConfigMap", "settings")
BOTH = SendingRules(frozenset({"Secret", "ConfigMap"}))
SOURCES = {DB: SourceState("v1", 10), SETTINGS: SourceState("w1", 10)}


def references(
    sources: dict[Dependency, SourceState] = SOURCES,
    *,
    rules: SendingRules = BOTH,
    agent_kinds: tuple[str, ...] = ("Secret", "ConfigMap"),
    before: tuple[SentReference, ...] = (),
    optional: bool = False,
) -> list[str]:
    names = SendableObjects((DB,), (SETTINGS,)) if optional else SendableObjects((DB, SETTINGS))
    found = sent_references(names, sources, rules=rules, agent_kinds=agent_kinds, before=before)
    return [f"{each.needed.name} {each.version or each.problem}" for each in found]


def test_what_is_allowed_and_there_is_sent() -> None:
    assert references() == ["db v1", "settings w1"]


def test_a_kind_that_is_not_allowed_is_left_to_the_worker() -> None:
    assert references(rules=SendingRules(frozenset({"ConfigMap"}))) == ["settings w1"]
    assert references(rules=SendingRules()) == []


def test_an_invalid_annotation_is_the_reason_for_each() -> None:
    assert references(rules=SendingRules(problem="wrong")) == ["db wrong", "settings wrong"]


def test_what_the_agent_may_not_write_is_not_sent() -> None:
    db, settings = references(agent_kinds=("ConfigMap",))
    assert db.startswith("db the agent of the cluster may not write Secrets there")
    assert settings == "settings w1"


def test_what_the_hub_lacks_or_could_not_read_is_not_sent() -> None:
    assert references({DB: SourceState(problem=NOT_FOUND)}) == [f"db {NOT_FOUND}", f"settings {NOT_READ}"]


def test_what_was_sent_stays_when_it_is_gone_or_cannot_be_read() -> None:
    before = (SentReference(DB, "v0"), SentReference(SETTINGS, problem="no"))
    assert references({DB: SourceState(problem=NOT_FOUND)}, before=before)[0] == "db v0"
    assert references({}, before=before)[0] == "db v0"
    assert references(rules=SendingRules(problem="wrong"), before=before)[0] == "db wrong"


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"sources": {DB: SOURCES[DB], SETTINGS: SourceState(problem=NOT_FOUND)}}, id="the hub has none"),
        pytest.param({"sources": {DB: SOURCES[DB]}}, id="it could not be read"),
        pytest.param({"agent_kinds": ("Secret",)}, id="the agent may not write it"),
        pytest.param({"sources": {DB: SOURCES[DB], SETTINGS: SourceState("w1", MAX_SENT_BYTES)}}, id="it is too large"),
    ],
)
def test_what_is_optional_is_sent_or_left_out(fields: dict[str, Any]) -> None:
    assert references(optional=True) == ["db v1", "settings w1"]
    assert references(**fields, optional=True) == ["db v1"]
    assert references(**fields)[1].startswith("settings it") or references(**fields)[1].startswith("settings the")


def test_what_is_optional_and_was_sent_stays() -> None:
    gone = {DB: SOURCES[DB], SETTINGS: SourceState(problem=NOT_FOUND)}
    assert references(gone, optional=True, before=(SentReference(SETTINGS, "w0"),)) == ["db v1", "settings w0"]


def test_all_objects_of_one_job_have_a_limit_together() -> None:
    large = {DB: SourceState("v1", MAX_SENT_BYTES - 5), SETTINGS: SourceState("w1", 10)}
    db, settings = references(large)
    assert db == "db v1"
    assert settings == f"settings it has 10 bytes, and at most {MAX_SENT_BYTES} are sent with one job"
