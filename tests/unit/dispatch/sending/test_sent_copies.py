# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from multikueue.core.errors import BadInput
from multikueue.dispatch.sending.sent_copies import (
    CopyMarks,
    Holder,
    copied_version,
    lacks_owner,
    metadata_in,
    owner_reference,
    shared,
)

MARKS = CopyMarks(cluster="east", origin="multikueue")
JOB = owner_reference(api_version="batch/v1", kind="Job", name="a", uid="1")
OTHER_JOB = owner_reference(api_version="batch/v1", kind="Job", name="b", uid="2")
DEPLOYMENT = owner_reference(api_version="apps/v1", kind="Deployment", name="d", uid="3")
RUNNING = {"1", "2"}


def sent(*owners: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The metadata of an object that this agent has sent."""
    made = MARKS.metadata("db", "team", manager_uid="m", version="v1", owners=owners)
    return {**made, "uid": "u", "resourceVersion": "7", **changes}


def holder(metadata: dict[str, Any], marks: CopyMarks = MARKS) -> Holder:
    return marks.holder(
        metadata,
        is_job_kind=lambda owner: owner.get("kind") == "Job",
        is_remote_job=lambda owner: owner.get("uid") in RUNNING,
    )


def test_what_was_sent_with_a_job_that_exists_is_ours() -> None:
    assert holder(sent(JOB)) is Holder.OURS
    assert holder(sent({**JOB, "uid": "gone"}, OTHER_JOB)) is Holder.OURS


def test_what_has_no_job_left_is_leaving() -> None:
    assert holder(sent({**JOB, "uid": "gone"})) is Holder.LEAVING
    assert holder(sent(JOB, deletionTimestamp="2026-01-01T00:00:00Z")) is Holder.LEAVING


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({"name": "db"}, id="no marks"),
        pytest.param(sent(JOB, labels={}), id="no label"),
        pytest.param(sent(JOB, annotations={}), id="no annotations"),
        pytest.param(sent(JOB, annotations="x"), id="unreadable annotations"),
        pytest.param(sent(), id="no owner"),
        pytest.param(sent(ownerReferences=["x"]), id="unreadable owners"),
        pytest.param(sent(DEPLOYMENT), id="an owner that is no job"),
        pytest.param(sent(JOB, DEPLOYMENT), id="an owner beside the job"),
    ],
)
def test_everything_else_is_of_others(metadata: dict[str, Any]) -> None:
    assert holder(metadata) is Holder.FOREIGN


def test_what_another_agent_has_sent_is_of_others() -> None:
    assert holder(sent(JOB), CopyMarks(cluster="west", origin="multikueue")) is Holder.FOREIGN
    assert holder(sent(JOB), CopyMarks(cluster="east", origin="another")) is Holder.FOREIGN


def test_a_second_job_becomes_an_owner_beside_the_first_and_what_users_added_stays() -> None:
    metadata = sent(JOB)
    metadata["annotations"]["team.example/note"] = "x"
    assert lacks_owner(metadata, [OTHER_JOB])
    assert not lacks_owner(metadata, [JOB])
    made = shared(metadata, marks=MARKS, manager_uid="m", version="v2", owners=[OTHER_JOB])
    assert made["ownerReferences"] == [JOB, OTHER_JOB]
    assert (made["uid"], made["resourceVersion"]) == ("u", "7"), "they guard the write"
    assert made["annotations"]["team.example/note"] == "x"
    assert copied_version(made) == "v2"
    assert not any(owner.get("controller") or owner.get("blockOwnerDeletion") for owner in made["ownerReferences"])


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b'{"metadata": 1}', b"<html>"])
def test_an_answer_without_metadata_is_an_error(answer: bytes) -> None:
    with pytest.raises(BadInput):
        metadata_in(answer)
