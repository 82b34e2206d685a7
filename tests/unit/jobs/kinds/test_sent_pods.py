# SPDX-License-Identifier: Apache-2.0
"""Which pods of a group are sent to a worker cluster, and whether what is reported of them is of its members."""

from __future__ import annotations

from multikueue.jobs.framework.protocol import PodSetInfo
from multikueue.jobs.kinds.pod_group import role_of
from tests.unit.jobs.declared.builders import IDENTITY
from tests.unit.jobs.kinds.pod_builders import DELETING, PAIR, POD, SERVING, Object, group, pod


class TestSentGroup:
    def sent(self, *pods: Object, count: int) -> list[str]:
        made = POD.remote_manifest(group(*pods), [PodSetInfo(name=role_of(PAIR[0]), count=count)], identity=IDENTITY)
        return [each["metadata"]["name"] for each in made["members"]]

    def test_pods_that_have_succeeded_take_none_of_the_quota_that_is_reserved_after_an_eviction(self) -> None:
        done = [pod(name, total=3, phase="Succeeded") for name in ("a1", "a2")]
        assert self.sent(*done, pod("a3", total=3), count=1) == ["a1", "a2", "a3"]
        assert self.sent(*done, pod("a3", total=3), count=3) == ["a1", "a2", "a3"], "it was reserved before they ended"

    def test_a_pod_in_excess_is_not_sent(self) -> None:
        done = pod("a1", total=2, phase="Succeeded")
        assert self.sent(done, pod("a2", total=2), pod("a3", total=2), count=2) == ["a1", "a2"]
        serving = pod("a1", total=2, phase="Succeeded", **SERVING)
        assert self.sent(serving, pod("a2", total=2, **SERVING), pod("a3", total=2, **SERVING), count=2) == [
            "a1",
            "a2",
            "a3",
        ]

    def test_only_a_group_whose_pods_were_all_deleted_has_none_to_send(self) -> None:
        deleted = [pod(name, total=2, **DELETING) for name in ("a1", "a2")]
        assert POD.awaits_members(group(*deleted))
        assert not POD.awaits_members(group(deleted[0], PAIR[1]))
        assert not POD.awaits_members(pod("a1", **DELETING)), "a pod of its own"

    def test_the_end_of_pods_that_others_have_replaced_is_not_the_end_of_the_group(self) -> None:
        def reported(*uids: str, phase: str = "Succeeded") -> Object:
            return {"pods": [{"name": uid[4:], "uid": uid, "status": {"phase": phase}} for uid in uids]}

        assert not POD.has_other_members(group(*PAIR), reported("uid-a1", "uid-a2"))
        assert not POD.has_other_members(group(*PAIR), reported("uid-a1", "uid-a2", phase="Failed"))
        assert POD.has_other_members(group(*PAIR), reported("old-a1", "old-a2")), "both were made anew"
        assert POD.has_other_members(group(*PAIR), reported("uid-a1")), "one was"
        excess = group(*PAIR, pod("a3", total=2))
        assert not POD.has_other_members(excess, reported("uid-a1", "uid-a2")), "the third is not needed"
        assert not POD.has_other_members(pod("a1"), reported("old-a1")), "a pod of its own"
