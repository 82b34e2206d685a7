# SPDX-License-Identifier: Apache-2.0
"""The registration and the missing rights in `mkctl cluster describe`."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.api.constants import TRANSPORT_ANNOTATION
from multikueue.cli.cluster import view
from multikueue.dispatch.protocol.worker_rights import SHARED_RIGHTS, describe_missing

CLUSTER: dict[str, Any] = {"metadata": {"name": "w"}, "status": {"conditions": [{"type": "Active", "status": "True"}]}}


def shown(registration: dict[str, Any]) -> dict[str, Any]:
    return view._document(CLUSTER, registration=registration, report={}, configs=[], workloads=0, assignments=0)


@pytest.mark.parametrize(
    ("registration", "accepted", "text"),
    [
        ({}, None, "not needed: set up by an administrator"),
        ({"spec": {"accepted": True}}, True, "approved"),
        ({"spec": {"bootstrap": {"id": "a"}}}, False, "waiting for approval: mkctl cluster approve w"),
        (
            {"spec": {"accepted": False}, "status": {"clusterUID": "u"}},
            False,
            "waiting for approval: mkctl cluster approve w",
        ),
        ({"spec": {"cordoned": True}}, False, "not needed: set up by an administrator"),
    ],
    ids=["no registration", "approved", "not approved yet", "approval withdrawn", "cordoned, never registered"],
)
def test_a_registration_shows_the_next_step(registration: dict[str, Any], accepted: bool | None, text: str) -> None:
    found = shown(registration)
    assert (found["accepted"], found["registration"]) == (accepted, text)


def test_missing_rights_of_an_agent_come_from_its_report_and_those_of_a_push_cluster_from_the_condition() -> None:
    table = {right.name: right for right in (*view._rights(), *SHARED_RIGHTS)}
    report = {"status": {"missingRights": [{"verb": "list", "resource": "nodes", "required": False}]}}
    condition = {"type": "Active", "status": "True", "message": describe_missing([table["list pods"]])}
    for transport, want in (("agent", "nodes"), ("push", "pods")):
        annotations = {TRANSPORT_ANNOTATION: transport}
        cluster = {"metadata": {"name": "w", "annotations": annotations}, "status": {"conditions": [condition]}}
        found = view._document(cluster, registration={}, report=report, configs=[], workloads=0, assignments=0)
        (entry,) = found["missingRights"]
        assert entry == {
            "verb": "list",
            "resource": want,
            "required": False,
            "gives": table[f"list {want}"].gives,
        }
