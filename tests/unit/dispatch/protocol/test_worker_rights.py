# SPDX-License-Identifier: Apache-2.0
"""The table of rights, its page, and what is said of those that are missing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multikueue.api.reasons import ClusterReason
from multikueue.api.resource import JOBS, PODS
from multikueue.cli.cluster.joining_instructions import newer_manifest
from multikueue.core.conditions import FALSE, Condition
from multikueue.dispatch.hub.health import ClusterHealthFacts, LeaseFacts, LinkFacts, judge_cluster
from multikueue.dispatch.protocol.worker_rights import (
    WorkerRight,
    describe_missing,
    missing_of,
    missing_wire,
    read_missing,
    rights_of,
)

TABLE: Final = rights_of([JOBS])
PAGE: Final = Path(__file__).parents[4] / "docs" / "operations" / "rights.md"
NOW: Final = datetime(2026, 11, 22, 14, 0, tzinfo=UTC)


def right(name: str) -> WorkerRight:
    return next(each for each in TABLE if each.name == name)


def test_the_page_has_the_table() -> None:
    rows: dict[tuple[str, bool, str], list[str]] = {}
    for each in TABLE:
        rows.setdefault((each.resource, each.required, each.gives), []).append(each.verb)
    wanted = [
        f"| `{resource}` | {', '.join(verbs)} | {'required' if required else 'optional'} | {gives} |"
        for (resource, required, gives), verbs in rows.items()
    ]
    assert [line for line in PAGE.read_text().splitlines() if line.startswith("| `")] == wanted


def test_the_role_of_an_agent_has_all_rights_that_are_not_everybodys() -> None:
    role = newer_manifest("east", image="agent:1")
    assert "kind: ClusterRole" in role
    for each in TABLE:
        if not each.resource.startswith("/"):
            plural = each.review["resourceAttributes"]["resource"]
            assert plural in role
    assert len({each.name for each in TABLE}) == len(TABLE)


@given(st.sets(st.sampled_from(TABLE)))
def test_what_a_message_lists_is_read_back_from_it(missing: set[WorkerRight]) -> None:
    message = f"Connected; {describe_missing(missing)}; it takes no new work: (because)"
    assert {each.name for each in read_missing(message)} == {each.name for each in missing}
    assert {(each.name, each.required, each.gives) for each in read_missing(message)} == {
        (each.name, each.required, each.gives) for each in missing
    }


def test_required_rights_come_first_and_rights_for_the_same_thing_together() -> None:
    text = describe_missing([right("list nodes"), right("watch nodes"), right("create jobs.batch")])
    assert text.startswith("missing rights: create jobs.batch (required: without it no Job")
    assert "; list nodes, watch nodes (would give: " in text
    assert describe_missing([]) == ""


def test_a_report_lists_which_and_the_table_what_they_give() -> None:
    missing = (right("patch jobs.batch"), right("get /version"))
    assert missing_of({"missingRights": missing_wire(missing)}, TABLE) == missing


@pytest.mark.parametrize(
    "told",
    [
        None,
        "list nodes",
        [None, 3, {}, {"verb": 1, "resource": "nodes"}],
        [{"verb": "list", "resource": "nodes (required: \u202egone)"}],
        [{"verb": "LIST", "resource": "nodes"}],
        [{"verb": "list", "resource": "n" * 300}],
    ],
    ids=["nothing", "text", "no-rights", "hidden-text", "no-verb", "too-long"],
)
def test_an_entry_of_a_report_that_names_no_right_is_left_out(told: object) -> None:
    assert missing_of({"missingRights": told}, TABLE) == ()


def test_a_right_of_a_later_agent_is_listed_without_its_meaning() -> None:
    told = [{"verb": "list", "resource": "gpus.example.com", "required": True}]
    (found,) = missing_of({"missingRights": told}, TABLE)
    assert found.name == "list gpus.example.com"
    assert found.required


def test_a_report_of_thousands_of_rights_is_cut() -> None:
    told = [{"verb": "list", "resource": f"r{number}"} for number in range(5000)]
    assert len(missing_of({"missingRights": told}, TABLE)) == 64


class TestHealth:
    def judged(self, *missing: str, **facts: object) -> tuple[bool, str, str]:
        health = judge_cluster(
            ClusterHealthFacts(
                created=NOW - timedelta(hours=1),
                missing_rights=tuple(map(right, missing)),
                **facts,  # type: ignore[arg-type]
            ),
            NOW,
        )
        return health.active, health.reason, health.message

    @pytest.mark.parametrize(
        "facts",
        [{"link": LinkFacts(connected=True)}, {"lease": LeaseFacts(renewed=NOW)}],
        ids=["push", "pull"],
    )
    def test_a_cluster_without_an_optional_right_is_active_and_names_it(self, facts: dict[str, object]) -> None:
        active, reason, message = self.judged("patch jobs.batch", **facts)
        assert (active, reason) == (True, ClusterReason.ACTIVE)
        assert message.startswith("Connected; missing rights: patch jobs.batch (would give: ")

    @pytest.mark.parametrize(
        "facts",
        [
            {"link": LinkFacts(connected=True)},
            {"link": LinkFacts()},
            {"lease": LeaseFacts(renewed=NOW)},
            {"lease": LeaseFacts()},
        ],
        ids=["push", "push-that-reads-nothing-yet", "pull", "pull-that-never-renewed"],
    )
    def test_a_cluster_without_a_required_right_is_not_and_names_it(self, facts: dict[str, object]) -> None:
        active, reason, message = self.judged("list nodes", "list jobs.batch", **facts)
        assert (active, reason) == (False, ClusterReason.MISSING_RIGHTS)
        assert message.startswith("missing rights: list jobs.batch (required: ")

    def test_a_lost_link_comes_before_what_was_reported_over_it(self) -> None:
        lost = LinkFacts(lost_since=NOW, message="refused")
        assert self.judged("list jobs.batch", link=lost) == (False, ClusterReason.CLIENT_CONNECTION_FAILED, "refused")

    def test_an_agent_that_may_not_read_its_jobs_cannot_renew_and_both_are_reported(self) -> None:
        lease = LeaseFacts(renewed=NOW - timedelta(minutes=5))
        active, reason, message = self.judged("list jobs.batch", lease=lease)
        assert (active, reason) == (False, ClusterReason.MISSING_RIGHTS)
        assert message.startswith(
            "the agent has not renewed its lease since 2026-11-22T13:55:00Z; missing rights: list"
        )

    def test_the_loss_counts_from_the_first_transition_of_the_condition(self) -> None:
        since = NOW - timedelta(minutes=7)
        before = Condition(type="Active", status=FALSE, reason="MissingRights", message="", last_transition_time=since)
        facts = ClusterHealthFacts(
            created=since, link=LinkFacts(connected=True), active=before, missing_rights=(right("list jobs.batch"),)
        )
        assert judge_cluster(facts, NOW).lost_since == since


def test_a_missing_right_to_pods_that_no_job_needs_is_described_by_what_it_gives_all_jobs() -> None:
    table = rights_of([JOBS, PODS])
    (optional,) = missing_of({"missingRights": [{"verb": "list", "resource": "pods", "required": False}]}, table)
    assert not optional.required
    assert "the capacity that other pods use is counted" in optional.gives
    (required,) = missing_of({"missingRights": [{"verb": "list", "resource": "pods", "required": True}]}, table)
    assert required.gives == "without it the Jobs there are not seen"
