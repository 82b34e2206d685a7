# SPDX-License-Identifier: Apache-2.0
"""Pods that name an owner's Workload: those that claim more than its pod template are not started."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from manager.cache.caches import Caches
from manager.cache.indexes import followed
from manager.controllers.held_pods import HeldPods
from multikueue.api.resource import PODS
from multikueue.core.clock import ManualClock
from multikueue.jobs.framework.capabilities import HeldPod, PodHoldingKind
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.jobs.kinds.stateful_set import STATEFUL_SET
from multikueue.kube.cache.store import read_row
from multikueue.kube.rest import credentials
from multikueue.kube.rest.client import KubeClient
from tests.unit.manager.builders import NOW

Object = dict[str, Any]
KUBECONFIG = {
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {}}],
}
SMALL = {"name": "x", "resourceClaimTemplateName": "small"}


def spec(*claims: Object) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {"containers": [container], "resourceClaims": list(claims)}


def problems(template: Object, *pods: Object) -> list[str]:
    """Why the pods of a StatefulSet with this template may not be started."""
    client = KubeClient(credentials.from_dict(KUBECONFIG, source="a test"))
    caches = Caches(
        client, followed(namespace="own", jobs=JobRegistry(("statefulset",)).followed), clock=ManualClock(NOW)
    )
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "u", "controller": True}
    for number, each in enumerate(pods):
        metadata = {"name": f"web-{number}", "namespace": "team", "uid": f"p{number}", "resourceVersion": "1"}
        body = {"metadata": metadata | {"ownerReferences": [owner]}, "spec": each, "status": {}}
        caches.view(PODS).store.put(read_row(orjson.dumps(body)))
    job = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "web", "namespace": "team", "uid": "u"},
        "spec": {"replicas": len(pods), "template": {"spec": template}},
    }
    assert isinstance(STATEFUL_SET, PodHoldingKind)
    held: list[HeldPod] = []
    kind: Any = _Noting(STATEFUL_SET, held)
    HeldPods(caches).added_to(job, kind)
    return [each.problem for each in held]


class _Noting:
    """The kind, and what it is given of its pods."""

    def __init__(self, kind: PodHoldingKind, held: list[HeldPod]) -> None:
        self._kind, self._held = kind, held

    def with_pods(self, job: Object, held: Any) -> Object:
        """Note the pods."""
        self._held.extend(held)
        return job

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kind, name)


@pytest.mark.parametrize(
    ("claims", "want"),
    [
        pytest.param((SMALL,), "", id="the same"),
        pytest.param((), "", id="none"),
        pytest.param(({**SMALL, "name": "y"},), "", id="the same by another name"),
        pytest.param((SMALL, {**SMALL, "name": "y"}), "ResourceClaimTemplate small 2 instead of 1", id="one more"),
        pytest.param(
            ({"name": "x", "resourceClaimTemplateName": "large"},),
            "ResourceClaimTemplate large 1 instead of 0",
            id="of another template",
        ),
        pytest.param(
            ({"name": "x", "resourceClaimName": "small"},), "ResourceClaim small 1 instead of 0", id="that exists"
        ),
    ],
)
async def test_a_pod_that_claims_more_than_the_template_of_its_owner_is_not_started(
    claims: tuple[Object, ...], want: str
) -> None:
    prefix = "it requests more than the pod template, which quota is reserved for: "
    assert problems(spec(SMALL), spec(*claims)) == [f"{prefix}{want}" if want else ""]
