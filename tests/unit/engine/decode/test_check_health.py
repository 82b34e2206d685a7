# SPDX-License-Identifier: Apache-2.0
"""Whether the controller of an AdmissionCheck is alive."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.api.constants import MULTIKUEUE_CONTROLLER
from multikueue.engine import decode
from multikueue.engine.decode.check_health import check_health


def check(controller: str = "example.com/c", *, generation: int = 2, **active: Any) -> dict[str, Any]:
    conditions = [{"type": "Active", "reason": "R", "message": "m", **active}] if active else []
    return {
        "metadata": {"name": "c", "generation": generation},
        "spec": {"controllerName": controller},
        "status": {"conditions": conditions},
    }


@pytest.mark.parametrize(
    ("given", "problem", "step"),
    [
        pytest.param(check(status="True"), "", "", id="Active without an observed generation"),
        pytest.param(check(status="True", observedGeneration=2), "", "", id="Active of the spec as it is"),
        pytest.param(check(status="True", observedGeneration=0), "", "", id="an observed generation that is not set"),
        pytest.param(
            check(MULTIKUEUE_CONTROLLER, status="True", observedGeneration=1), "", "", id="our own reads it in a moment"
        ),
        pytest.param(check(), "no controller has set the Active condition", "start or repair", id="never set"),
        pytest.param(check(status="False"), "not Active: R: m", "correct what the message names", id="False"),
        pytest.param(check(status="Unknown"), "not Active: R: m", "correct what the message names", id="Unknown"),
        pytest.param(
            check(status="True", observedGeneration=1),
            "observedGeneration 1, the AdmissionCheck has generation 2",
            "start or repair",
            id="of an earlier spec",
        ),
    ],
)
def test_a_check_is_active_while_its_controller_is_alive(given: dict[str, Any], problem: str, step: str) -> None:
    found = check_health(given)
    assert found.active is (not problem)
    assert problem in found.problem
    assert found.step.startswith(step)
    assert found.line == ("" if found.active else f"AdmissionCheck c of example.com/c: {found.problem}; {found.step}")
    assert decode.admission_check(given).active is found.active
