# SPDX-License-Identifier: Apache-2.0
"""What the webhook repeats of a Deployment in its pod template."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.api.constants import CLUSTERS_ANNOTATION, PARTITION_POLICY_ANNOTATION, QUEUE_NAME_LABEL
from multikueue.api.defaulting import JobSurroundings
from multikueue.jobs.framework.templated_queue import annotations_of, template_of
from multikueue.jobs.kinds.deployment import DeploymentIntegration

DEPLOYMENT = DeploymentIntegration()
Object = dict[str, Any]


def deployment(*, queue: str = "q", template: dict[str, str] | None = None, **annotations: str) -> Object:
    own = {"clusters": CLUSTERS_ANNOTATION, "policy": PARTITION_POLICY_ANNOTATION}
    metadata = {
        "name": "web",
        "labels": {QUEUE_NAME_LABEL: queue} if queue else {},
        "annotations": {own.get(key, key): value for key, value in annotations.items()},
    }
    return {"metadata": metadata, "spec": {"template": {"metadata": {"annotations": template or {}}}}}


def repeated(made: Object) -> dict[str, str]:
    """The annotations of dispatch in the template."""
    found = annotations_of(template_of(made))
    return {key: found[key] for key in (CLUSTERS_ANNOTATION, PARTITION_POLICY_ANNOTATION) if key in found}


def test_its_pods_are_sent_as_its_annotations_say() -> None:
    made = DEPLOYMENT.defaulted(deployment(policy="fenced", clusters="w1,w2", note="mine"), JobSurroundings())
    assert repeated(made) == {PARTITION_POLICY_ANNOTATION: "fenced", CLUSTERS_ANNOTATION: "w1,w2"}
    assert "note" not in annotations_of(template_of(made))


def test_annotations_of_the_template_alone_stay() -> None:
    own = {PARTITION_POLICY_ANNOTATION: "keep"}
    made = DEPLOYMENT.defaulted(deployment(template=own), JobSurroundings())
    assert repeated(made) == own
    assert repeated(DEPLOYMENT.updated(deployment(template=own), deployment(template=own))) == own


@pytest.mark.parametrize(
    ("new", "want"),
    [
        pytest.param(deployment(policy="keep"), {PARTITION_POLICY_ANNOTATION: "keep"}, id="changed"),
        pytest.param(deployment(), {}, id="taken off"),
        pytest.param(
            deployment(queue="", policy="keep"), {PARTITION_POLICY_ANNOTATION: "fenced"}, id="without a queue"
        ),
    ],
)
def test_a_change_of_them_is_repeated_in_a_queued_one(new: Object, want: dict[str, str]) -> None:
    old = deployment(queue=new["metadata"]["labels"].get(QUEUE_NAME_LABEL, ""), policy="fenced")
    new["spec"]["template"]["metadata"]["annotations"] = {PARTITION_POLICY_ANNOTATION: "fenced"}
    assert repeated(DEPLOYMENT.updated(new, old)) == want
