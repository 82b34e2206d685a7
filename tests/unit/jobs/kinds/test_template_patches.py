# SPDX-License-Identifier: Apache-2.0
"""Strategic merge of pod templates, as Kueue 0.17.0 merges the patches of TrainJobs."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.jobs.kinds.template_patches import patched, with_container


def pod(**spec: Any) -> dict[str, Any]:
    return {"spec": spec}


def variables(**values: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in values.items()]


@pytest.mark.parametrize(
    ("own", "change", "made"),
    [
        pytest.param(
            {"metadata": {"labels": {"a": "own", "b": "own"}}, "spec": {}},
            {"metadata": {"labels": {"a": "new"}, "annotations": {"c": "new"}}},
            {"metadata": {"labels": {"a": "new", "b": "own"}, "annotations": {"c": "new"}}, "spec": {}},
            id="maps by key",
        ),
        pytest.param(
            pod(tolerations=[{"key": "own"}]),
            pod(tolerations=[{"key": "new"}]),
            pod(tolerations=[{"key": "new"}]),
            id="tolerations are replaced",
        ),
        pytest.param(
            pod(schedulingGates=[{"name": "own"}]),
            pod(schedulingGates=[{"name": "new"}]),
            pod(schedulingGates=[{"name": "new"}, {"name": "own"}]),
            id="gates by name",
        ),
        pytest.param(
            pod(containers=[{"name": "a", "env": variables(A="own", B="own"), "image": "i"}, {"name": "b"}]),
            pod(containers=[{"name": "a", "env": variables(A="new", C="new")}]),
            pod(
                containers=[{"name": "a", "env": variables(A="new", C="new", B="own"), "image": "i"}, {"name": "b"}],
            ),
            id="containers and variables by name",
        ),
        pytest.param(
            pod(containers=[{"name": "a"}, {"name": "b", "image": "i"}]),
            pod(containers=[{"name": "b", "image": "j"}]),
            pod(containers=[{"name": "a"}, {"name": "b", "image": "j"}]),
            id="the order of the template",
        ),
        pytest.param(
            pod(containers=[{"name": "a", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]),
            pod(containers=[{"name": "a", "volumeMounts": [{"name": "w", "mountPath": "/v"}]}]),
            pod(containers=[{"name": "a", "volumeMounts": [{"name": "w", "mountPath": "/v"}]}]),
            id="mounts by path",
        ),
        pytest.param(pod(a=1), {}, pod(a=1), id="nothing"),
    ],
)
def test_a_patch_is_merged(own: Any, change: Any, made: Any) -> None:
    assert patched(own, change) == made


def test_what_only_adds_keeps_tolerations_and_has_none_twice() -> None:
    own, change = pod(tolerations=[{"key": "own"}]), pod(tolerations=[{"key": "own"}, {"key": "new"}])
    assert patched(own, change, adds=True) == pod(tolerations=[{"key": "own"}, {"key": "new"}])
    assert patched(own, pod(tolerations=[{"key": "new"}]), adds=True) == pod(
        tolerations=[{"key": "own"}, {"key": "new"}]
    )


def test_a_patch_changes_no_template_that_it_was_given() -> None:
    own = pod(containers=[{"name": "a", "env": variables(A="own")}])
    patched(own, pod(containers=[{"name": "a", "env": variables(A="new")}]))
    assert own == pod(containers=[{"name": "a", "env": variables(A="own")}])


def test_a_container_gets_fields_variables_and_sources() -> None:
    own = pod(containers=[{"name": "a", "image": "own", "env": variables(A="own", B="own")}, {"name": "b"}])
    made = with_container(own, "a", {"image": "new"}, environment=variables(A="new", C="new"), sources=[{"s": 1}])
    first = {"name": "a", "image": "new", "env": variables(A="new", B="own", C="new"), "envFrom": [{"s": 1}]}
    assert made == pod(containers=[first, {"name": "b"}])


def test_without_that_container_the_template_is_as_before() -> None:
    own = pod(containers=[{"name": "b"}])
    assert with_container(own, "a", {"image": "new"}) is own
