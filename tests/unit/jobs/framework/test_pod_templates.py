# SPDX-License-Identifier: Apache-2.0
"""What admission added to a pod template is taken out of it again."""

from __future__ import annotations

from typing import Any

from multikueue.jobs.framework.pod_templates import injected, restored_metadata
from multikueue.jobs.framework.protocol import PodSetInfo

REQUEST = "autoscaling.x-k8s.io/consume-provisioning-request"
CLASS = "autoscaling.x-k8s.io/provisioning-class-name"


def info(request: str) -> PodSetInfo:
    return PodSetInfo(name="main", count=1, annotations={REQUEST: request, CLASS: "check-capacity"})


def test_the_next_request_can_be_consumed_where_the_workload_does_not_know_the_original_template() -> None:
    template: dict[str, Any] = {"metadata": {"annotations": {"mine": "kept"}}, "spec": {}}
    started = injected(template, info("w-check-2"))
    stopped = {**started, "metadata": restored_metadata(started["metadata"], {})}
    assert stopped == template
    assert injected(stopped, info("w-check-1"))["metadata"]["annotations"][REQUEST] == "w-check-1"
