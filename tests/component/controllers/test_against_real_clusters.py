# SPDX-License-Identifier: Apache-2.0
"""Our controllers and the real ones come to the same end: status, events and pods, down to the words."""

from __future__ import annotations

import pytest

from tests.component.controllers.job_scenarios import SCENARIOS
from tests.component.controllers.playing import ALL_CASES, Outcomes, recorded

jobs = pytest.mark.parametrize("title", [scenario.title for scenario in SCENARIOS])
cases = pytest.mark.parametrize("title", [case.title for case in ALL_CASES])


@jobs
async def test_a_job_on_an_embedded_cluster_ends_as_recorded(title: str, embedded_outcomes: Outcomes) -> None:
    assert embedded_outcomes.jobs[title] == recorded().jobs[title]


@cases
async def test_an_embedded_cluster_does_as_recorded(title: str, embedded_outcomes: Outcomes) -> None:
    assert embedded_outcomes.cluster[title] == recorded().cluster[title]


@pytest.mark.binaries
@pytest.mark.conformance
@pytest.mark.alone
@pytest.mark.timeout(900)
@jobs
async def test_the_record_of_a_job_is_true(title: str, real_outcomes: Outcomes) -> None:
    assert real_outcomes.jobs[title] == recorded().jobs[title]


@pytest.mark.binaries
@pytest.mark.conformance
@pytest.mark.alone
@pytest.mark.timeout(900)
@cases
async def test_the_record_of_a_cluster_is_true(title: str, real_outcomes: Outcomes) -> None:
    assert real_outcomes.cluster[title] == recorded().cluster[title]
