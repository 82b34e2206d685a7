# SPDX-License-Identifier: Apache-2.0
"""Which AdmissionChecks are those of our controller, and their clusters."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from manager.cache.views import View
from manager.dispatch.checks import CheckSource, is_multikueue, source_of
from multikueue.api.constants import MULTIKUEUE_CONTROLLER
from multikueue.api.resource import MULTIKUEUE_CONFIGS
from multikueue.core.clock import ManualClock

PARAMETERS = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "config"}


@pytest.mark.parametrize(
    ("check", "expected"),
    [
        pytest.param({"spec": {"controllerName": MULTIKUEUE_CONTROLLER}}, True, id="of our controller"),
        pytest.param({"spec": {"controllerName": "example.com/other"}}, False, id="of another controller"),
        pytest.param({}, False, id="without a spec, which its schema allows"),
    ],
)
def test_a_check_is_ours_by_its_controller(check: dict[str, Any], expected: bool) -> None:
    assert is_multikueue(check) is expected


def configs(**spec: Any) -> View:
    view = View(MULTIKUEUE_CONFIGS, clock=ManualClock())
    metadata = {"name": "config", "uid": "u", "resourceVersion": "1"}
    view.on_write(orjson.dumps({"metadata": metadata, "spec": spec}))
    return view


def test_the_clusters_of_a_check_are_those_of_its_config_in_that_order() -> None:
    check = {"spec": {"controllerName": MULTIKUEUE_CONTROLLER, "parameters": PARAMETERS}}
    assert source_of(check, configs(clusters=["b", "a"])) == CheckSource(("b", "a"))


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        pytest.param({**PARAMETERS, "name": "missing"}, 'MultiKueueConfig "missing" not found', id="no such config"),
        pytest.param({**PARAMETERS, "kind": "ConfigMap"}, "must name a MultiKueueConfig", id="another kind"),
        pytest.param(None, "must name a MultiKueueConfig", id="no parameters"),
    ],
)
def test_a_check_without_a_usable_config_has_a_problem(parameters: Any, problem: str) -> None:
    source = source_of({"spec": {"parameters": parameters}}, configs(clusters=["a"]))
    assert source.clusters is None
    assert problem in source.problem
