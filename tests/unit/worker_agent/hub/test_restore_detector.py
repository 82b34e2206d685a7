# SPDX-License-Identifier: Apache-2.0
"""What tells an agent that its hub is not the one that it followed."""

from __future__ import annotations

import orjson
import pytest

from multikueue.api.resource import CLUSTER_REPORTS, LEASES, Resource
from worker_agent.hub.restore_detector import FollowedVersion, RestoreDetector

Answer = tuple[Resource, str, int]


@pytest.mark.parametrize(
    ("followed", "answers", "alarms"),
    [
        pytest.param(
            [FollowedVersion(1, 5), FollowedVersion(1, 7)],
            [(LEASES, "l", 6), (CLUSTER_REPORTS, "r", 8)],
            0,
            id="a hub that goes on is the same",
        ),
        pytest.param(
            [FollowedVersion(1, 9)], [(LEASES, "l", 6)], 1, id="a write gets an older version: restored from a backup"
        ),
        pytest.param([FollowedVersion(1, 5)], [(LEASES, "l", 6), (LEASES, "m", 7)], 1, id="another Lease: made anew"),
        pytest.param(
            [FollowedVersion(1, 5)],
            [(LEASES, "l", 6), (CLUSTER_REPORTS, "r", 7), (LEASES, "m", 8), (CLUSTER_REPORTS, "s", 9)],
            1,
            id="all objects are others, and it is told once",
        ),
        pytest.param(
            [FollowedVersion(2, 0)],
            [(LEASES, "l", 6)],
            0,
            id="while it is read anew nothing is known that an answer could contradict",
        ),
    ],
)
def test_a_rebuilt_or_restored_hub_is_notified(
    followed: list[FollowedVersion], answers: list[Answer], alarms: int
) -> None:
    heard: list[None] = []
    stages = iter(followed)
    now = next(stages)
    restore_detector = RestoreDetector("w", followed=lambda: now, broken=lambda: heard.append(None))
    for resource, uid, version in answers:
        answer = {"metadata": {"uid": uid, "resourceVersion": str(version)}}
        restore_detector.check(resource, orjson.dumps(answer), since=restore_detector.followed())
        now = next(stages, now)
    assert len(heard) == alarms


def test_an_answer_that_was_asked_for_before_the_mailbox_was_read_anew_proves_nothing() -> None:
    now, heard = FollowedVersion(1, 900), list[None]()
    restore_detector = RestoreDetector("w", followed=lambda: now, broken=lambda: heard.append(None))
    before, now = restore_detector.followed(), FollowedVersion(2, 30)
    restore_detector.check(LEASES, {"metadata": {"uid": "l", "resourceVersion": "29"}}, since=before)
    assert not heard
