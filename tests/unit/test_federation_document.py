# SPDX-License-Identifier: Apache-2.0
"""The state diagrams of docs/concepts/federation.md are true to the code."""

from __future__ import annotations

import re
from pathlib import Path

from multikueue.api.remoteassignment import AssignmentPhase
from multikueue.dispatch.hub.actions import Rule
from multikueue.dispatch.protocol.phases import TRANSITIONS

DOCUMENT = (Path(__file__).parents[2] / "docs" / "concepts" / "federation.md").read_text()
DIAGRAMS = re.findall(r"```mermaid\n(stateDiagram-v2.*?)```", DOCUMENT, re.DOTALL)
_EDGE = re.compile(r"^\s*(\S+) --> (\S+?)(?:: (.+))?$", re.MULTILINE)
_GROUP = re.compile(r"state (\w+) \{(.*?)\}", re.DOTALL)


def test_the_phases_of_an_assignment_change_as_the_table_says() -> None:
    _, diagram = DIAGRAMS
    groups = {
        name: {source for source, _, _ in _EDGE.findall(body)} | {target for _, target, _ in _EDGE.findall(body)}
        for name, body in _GROUP.findall(diagram)
    }
    drawn = {
        (source, target, event)
        for start, target, event in _EDGE.findall(diagram)
        for source in groups.get(start, {start})
        if "[*]" not in (source, target)
    }
    wanted = {
        (str(source), str(target), str(event))
        for source, row in TRANSITIONS.items()
        for event, target in row.items()
        if source is not target
    }
    assert drawn == wanted
    ended = {source for source, target, _ in _EDGE.findall(diagram) if target == "[*]"}
    assert ended == {str(phase) for phase in AssignmentPhase if set(TRANSITIONS[phase].values()) == {phase}}


def test_every_rule_of_the_plan_is_in_the_diagram_or_named_beside_it() -> None:
    diagram, _ = DIAGRAMS
    named = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)*\b", diagram))
    beside = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)*\b", DOCUMENT.partition("```mermaid")[0]))
    rules = {rule.name for rule in Rule}
    assert rules - named - {"GONE"} == set()
    assert "GONE" in beside
    assert {name for name in named if "_" in name} <= rules, "the diagram names a rule that there is not"
