# SPDX-License-Identifier: Apache-2.0
"""Which claims are used."""

from __future__ import annotations

import pytest

from devcluster.controllers.volume_protection import claims_of, is_claimed
from multikueue.api.objects import JsonObject


def pod(*volumes: JsonObject, node: str = "n", phase: str = "Running") -> JsonObject:
    spec: JsonObject = {"nodeName": node, "volumes": [{"name": f"v{at}", **each} for at, each in enumerate(volumes)]}
    return {"metadata": {"name": "p"}, "spec": spec, "status": {"phase": phase}}


DATA: JsonObject = {"persistentVolumeClaim": {"claimName": "data"}}


def test_a_pod_uses_its_claims_and_those_of_ephemeral_volumes() -> None:
    assert list(claims_of(pod(DATA, {"emptyDir": {}}, {"ephemeral": {}}))) == ["data", "p-v2"]


@pytest.mark.parametrize(
    ("using", "used"),
    [
        pytest.param(pod(DATA), True, id="a running pod"),
        pytest.param(pod(DATA, phase="Pending"), True, id="a pod that has a node"),
        pytest.param(pod(DATA, node=""), False, id="a pod without a node"),
        pytest.param(pod(DATA, phase="Succeeded"), False, id="a pod that has ended"),
        pytest.param(pod(), False, id="a pod of other volumes"),
    ],
)
def test_a_claim_is_used_by(using: JsonObject, used: bool) -> None:
    assert is_claimed("data", iter([using])) is used
