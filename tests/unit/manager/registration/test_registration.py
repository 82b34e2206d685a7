# SPDX-License-Identifier: Apache-2.0
"""Which certificate a registration reports."""

from __future__ import annotations

from manager.registration.controller import approved_of, newest_answered
from multikueue.api.constants import CLUSTER_LABEL
from multikueue.api.meta import JsonObject


def request(name: str, *, minute: int, cluster: str = "w1", certificate: str = "Y2VydA==") -> JsonObject:
    """A certificate request of an agent."""
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": f"2026-01-01T00:{minute:02}:00Z",
            "labels": {CLUSTER_LABEL: cluster},
        },
        "status": {"certificate": certificate} if certificate else {},
    }


def test_of_two_answered_requests_only_the_later_one_is_reported() -> None:
    first, renewal = request("mk-w1-token", minute=1), request("mk-w1-renewal", minute=2)
    assert newest_answered([first, renewal], "w1") == "uid-mk-w1-renewal"
    assert newest_answered([renewal, first], "w1") == "uid-mk-w1-renewal"


def test_a_request_without_an_answer_and_those_of_other_clusters_do_not_count() -> None:
    first = request("mk-w1-token", minute=1)
    asked = request("mk-w1-renewal", minute=2, certificate="")
    other = request("mk-w2-token", minute=3, cluster="w2")
    assert newest_answered([first, asked, other], "w1") == "uid-mk-w1-token"
    assert newest_answered([asked], "w1") == ""


def approved(name: str, *, by: str = "system:mk:cluster:w1") -> JsonObject:
    """A request of that user which was approved."""
    asked = request(name, minute=1, certificate="")
    return {**asked, "spec": {"username": by}, "status": {"conditions": [{"type": "Approved"}]}}


def test_approved_requests_are_counted_by_who_asked_and_without_the_one_in_question() -> None:
    asked = {**request("new", minute=2, certificate=""), "spec": {"username": "system:mk:cluster:w1"}}
    others = [approved("a"), approved("b"), approved("c", by="system:mk:cluster:w2"), asked]
    assert approved_of(others, asked) == 2
    assert approved_of([approved("a")], approved("a")) == 0
