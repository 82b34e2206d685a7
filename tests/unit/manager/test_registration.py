# SPDX-License-Identifier: Apache-2.0
"""Which certificate a registration tells of."""

from __future__ import annotations

from manager.registration.controller import newest_answered
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


def test_of_two_answered_requests_only_the_later_one_is_told_of() -> None:
    first, renewal = request("mk-w1-token", minute=1), request("mk-w1-renewal", minute=2)
    assert newest_answered([first, renewal], "w1") == "uid-mk-w1-renewal"
    assert newest_answered([renewal, first], "w1") == "uid-mk-w1-renewal"


def test_a_request_without_an_answer_and_those_of_other_clusters_do_not_count() -> None:
    first = request("mk-w1-token", minute=1)
    asked = request("mk-w1-renewal", minute=2, certificate="")
    other = request("mk-w2-token", minute=3, cluster="w2")
    assert newest_answered([first, asked, other], "w1") == "uid-mk-w1-token"
    assert newest_answered([asked], "w1") == ""
