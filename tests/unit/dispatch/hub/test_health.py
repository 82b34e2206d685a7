# SPDX-License-Identifier: Apache-2.0
"""The Active conditions of clusters and checks, and the loss clock."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from multikueue.api.reasons import AdmissionCheckReason, ClusterReason
from multikueue.core.conditions import Condition
from multikueue.dispatch.hub.health import ClusterHealthFacts, LeaseFacts, assumed_renewal, judge_check, judge_cluster
from multikueue.dispatch.protocol import kubeconfigs
from multikueue.dispatch.protocol.epochs import epoch_of
from tests.unit.dispatch.builders import NOW, minutes_ago

LEASE = timedelta(seconds=40)


def test_a_renewed_lease_is_active_until_it_runs_out() -> None:
    facts = ClusterHealthFacts(created=minutes_ago(60), lease=LeaseFacts(renewed=NOW - timedelta(seconds=15)))
    health = judge_cluster(facts, NOW)
    assert (health.active, health.reason, health.message) == (True, ClusterReason.ACTIVE, "Connected")
    assert health.recheck_after == timedelta(seconds=25)


def test_a_lease_that_ran_out_is_lost_since_it_was_renewed_last() -> None:
    facts = ClusterHealthFacts(created=minutes_ago(60), lease=LeaseFacts(renewed=minutes_ago(5)))
    health = judge_cluster(facts, NOW)
    assert (health.reason, health.lost_since) == (ClusterReason.CLIENT_CONNECTION_FAILED, minutes_ago(5))
    assert "2026-01-01T11:55:00Z" in health.message


def test_a_lease_that_ran_out_because_the_agent_is_cut_off_is_reported_so() -> None:
    facts = ClusterHealthFacts(created=minutes_ago(60), lease=LeaseFacts(renewed=minutes_ago(5), cannot_stop=True))
    assert judge_cluster(facts, NOW).message.endswith("11:55:00Z: it cannot reach its own API server")


def test_an_agent_that_never_came_is_lost_since_the_cluster_was_made() -> None:
    health = judge_cluster(ClusterHealthFacts(created=minutes_ago(60)), NOW)
    assert (health.reason, health.lost_since) == (ClusterReason.CLIENT_CONNECTION_FAILED, minutes_ago(60))


def test_a_bad_secret_counts_though_the_agent_is_there_and_its_clock_survives_a_restart() -> None:
    problem = kubeconfigs.KubeconfigProblem(ClusterReason.BAD_KUBE_CONFIG, "not YAML")
    lease = LeaseFacts(renewed=NOW)
    fresh = judge_cluster(ClusterHealthFacts(created=minutes_ago(60), problem=problem, lease=lease), NOW)
    assert (fresh.reason, fresh.lost_since) == (ClusterReason.BAD_KUBE_CONFIG, NOW)
    assert fresh.message == "load client config failed: not YAML"
    stands = Condition(type="Active", status="False", reason="BadKubeConfig", last_transition_time=minutes_ago(7))
    facts = ClusterHealthFacts(created=minutes_ago(60), problem=problem, lease=lease, active=stands)
    assert judge_cluster(facts, NOW).lost_since == minutes_ago(7)


@pytest.mark.parametrize(
    ("said_minutes_ago", "want_minutes_ago"),
    [
        pytest.param(5, 5, id="a clock that is right is believed"),
        pytest.param(-60, 0, id="a renewal in the future was now"),
        pytest.param(14, 14, id="a long silence counts, so that a restart does not start it anew"),
        pytest.param(600, 14, id="an agent that may be there has one lease left to be seen"),
    ],
)
def test_what_an_agents_clock_is_assumed_when_nothing_else_is_known(
    said_minutes_ago: float, want_minutes_ago: float
) -> None:
    found = assumed_renewal(
        minutes_ago(said_minutes_ago), duration=timedelta(minutes=1), lost_timeout=timedelta(minutes=15), now=NOW
    )
    assert found == minutes_ago(want_minutes_ago)


@pytest.mark.parametrize(
    ("clusters", "active", "want"),
    [
        pytest.param(
            ["a", "b"],
            {"a": True, "b": True},
            (True, AdmissionCheckReason.ACTIVE, "The admission check is active"),
            id="all active",
        ),
        pytest.param(
            ["a", "b", "c", "d"],
            {"a": True, "d": False},
            (
                True,
                AdmissionCheckReason.SOME_ACTIVE_CLUSTERS,
                "Missing clusters: [b c], Inactive clusters: [d]",
            ),
            id="some active",
        ),
        pytest.param(
            ["a", "b"],
            {"b": False},
            (False, AdmissionCheckReason.NO_USABLE_CLUSTERS, "Missing clusters: [a], Inactive clusters: [b]"),
            id="none active",
        ),
        pytest.param(
            [],
            {"a": True},
            (False, AdmissionCheckReason.NO_USABLE_CLUSTERS, "The MultiKueueConfig lists no clusters"),
            id="none listed",
        ),
        pytest.param(None, {}, (False, AdmissionCheckReason.BAD_CONFIG, "why"), id="no config"),
    ],
)
def test_the_health_of_a_check(clusters: Any, active: Any, want: Any) -> None:
    found = judge_check(clusters, active, problem="why")
    assert (found.active, found.reason, found.message) == want


def kubeconfig(*, user: Any = None, cluster: Any = None, **changes: Any) -> dict[str, Any]:
    return {
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://w1.agent.invalid"} | (cluster or {})}],
        "users": [{"name": "u", "user": user or {"token": "t"}}],
    } | changes


@pytest.mark.parametrize(
    "good",
    [
        kubeconfig(),
        kubeconfig(cluster={"server": "https://10.0.0.1:6443"}),
        kubeconfig(cluster={"server": "https://[fd00::1]:6443"}),
        kubeconfig(cluster={"certificate-authority-data": "eA=="}, user={"client-certificate-data": "eA=="}),
    ],
    ids=["by name", "by IPv4", "by IPv6", "with inline certificates"],
)
def test_a_kubeconfig_that_may_be_used(good: Any) -> None:
    assert kubeconfigs.judge(good) is None


@pytest.mark.parametrize(
    ("bad", "reason", "detail"),
    [
        pytest.param("text", ClusterReason.BAD_KUBE_CONFIG, "not a kubeconfig", id="text"),
        pytest.param(kubeconfig(**{"current-context": "y"}), ClusterReason.BAD_KUBE_CONFIG, "no context", id="context"),
        pytest.param(kubeconfig(clusters=[]), ClusterReason.BAD_KUBE_CONFIG, '"c", which does not exist', id="cluster"),
        pytest.param(kubeconfig(users=None), ClusterReason.BAD_KUBE_CONFIG, '"u", which does not exist', id="user"),
        pytest.param(
            kubeconfig(cluster={"server": "https://a b"}), ClusterReason.BAD_KUBE_CONFIG, "neither", id="bad host"
        ),
        pytest.param(
            kubeconfig(cluster={"server": "https://a:port"}), ClusterReason.BAD_KUBE_CONFIG, "Port", id="bad port"
        ),
        pytest.param(kubeconfig(cluster={"server": "a"}), ClusterReason.BAD_KUBE_CONFIG, "not a URL", id="no URL"),
        pytest.param(kubeconfig(cluster={"server": ""}), ClusterReason.INSECURE_KUBE_CONFIG, "empty", id="no server"),
        pytest.param(
            kubeconfig(user={"tokenFile": "/x"}), ClusterReason.INSECURE_KUBE_CONFIG, "tokenFile", id="S5 tokenFile"
        ),
        pytest.param(
            kubeconfig(cluster={"certificate-authority": "/x"}),
            ClusterReason.INSECURE_KUBE_CONFIG,
            "certificate-authority",
            id="S4 a CA file",
        ),
        pytest.param(
            kubeconfig(cluster={"insecure-skip-tls-verify": True}),
            ClusterReason.INSECURE_KUBE_CONFIG,
            "insecure-skip",
            id="unchecked TLS",
        ),
        pytest.param(
            kubeconfig(user={"exec": {"command": "x"}}), ClusterReason.INSECURE_KUBE_CONFIG, "exec", id="a program"
        ),
        pytest.param(
            kubeconfig(user={"username": "a"}), ClusterReason.INSECURE_KUBE_CONFIG, "basic auth", id="a password"
        ),
    ],
)
def test_a_kubeconfig_that_is_refused(bad: Any, reason: ClusterReason, detail: str) -> None:
    problem = kubeconfigs.judge(bad)
    assert problem is not None
    assert problem.reason is reason
    assert detail in problem.message


@pytest.mark.parametrize(
    ("counts", "annotations", "want"),
    [
        pytest.param([], {}, 1, id="the first dispatch"),
        pytest.param([2, 1], {}, 4, id="after three evictions"),
        pytest.param([1], {"multikueue.io/epoch": "9"}, 9, id="the annotation is a floor"),
        pytest.param([9], {"multikueue.io/epoch": "3"}, 10, id="and no ceiling"),
        pytest.param([], {"multikueue.io/epoch": "-1"}, 1, id="nonsense in it says nothing"),
        pytest.param([], {"multikueue.io/first-epoch": "4"}, 4, id="a slice goes on with that of the one before it"),
        pytest.param([2], {"multikueue.io/first-epoch": "4"}, 6, id="and counts its own evictions"),
        pytest.param([1], {"multikueue.io/first-epoch": "0"}, 2, id="from the first epoch"),
        pytest.param([1], {"multikueue.io/first-epoch": "²"}, 2, id="which nonsense does not change"),
        pytest.param([1], {"multikueue.io/first-epoch": "2147483648"}, 2, id="nor a number that is too large"),
    ],
)
def test_the_epoch(counts: list[int], annotations: dict[str, str], want: int) -> None:
    assert epoch_of(counts, annotations) == want
