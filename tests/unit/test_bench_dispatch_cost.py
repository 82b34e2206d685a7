# SPDX-License-Identifier: Apache-2.0
"""What tests.bench.dispatch_cost calculates from CPU times."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.bench.dispatch_cost import CourseCost, TimedJob, own_cost_ratio, used_beyond_idle


def test_what_a_process_uses_idle_and_what_the_bench_uses_is_not_the_jobs_cost() -> None:
    before = {"hub manager": 1.0, "bench": 5.0}
    after = {"hub manager": 4.0, "bench": 9.0, "came later": 2.0}
    found = used_beyond_idle(before, after, idle={"hub manager": 0.1}, seconds=10.0, jobs=100)
    assert found == {"hub manager": pytest.approx(20.0)}


def test_the_own_cost_is_what_a_job_takes_in_addition() -> None:
    direct = CourseCost([TimedJob(0.0, 1.0, 2.0)], {"worker": 20.0})
    dispatched = CourseCost([TimedJob(0.0, 1.0, 2.0)], {"worker": 25.0, "hub": 15.0})
    assert own_cost_ratio(direct, dispatched) == pytest.approx(1.0)


def test_latency_and_rate_are_those_of_jobs_that_ran() -> None:
    jobs = [TimedJob(0.0, 1.0, 2.0), TimedJob(0.5, 2.0, 3.0), TimedJob(1.0, None, 3.0)]
    figures = CourseCost(jobs, {"hub": 15.0, "idle": 0.2}).figures()
    assert (figures["running_after_p50"], figures["running_after_p99"]) == (1.25, 1.5)
    assert (figures["jobs_per_second"], figures["cpu_ms_of"]) == (1.5, {"hub": 15.0})


def test_hub_writes_are_all_that_its_api_server_answered_but_reads() -> None:
    answered = Counter({("POST", "jobs"): 2, ("PATCH", "jobs/status"): 4, ("GET", "leases"): 9, ("POST", "events"): 3})
    figures = CourseCost([TimedJob(0.0, 1.0, 2.0)] * 2, {}, answered).figures()
    assert figures["hub"] == {
        "writes_per_job": 4.5,
        "writes": {"PATCH jobs/status": 2.0, "POST events": 1.5, "POST jobs": 1.0},
    }
