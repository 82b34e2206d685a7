# SPDX-License-Identifier: Apache-2.0
"""A job of a queue with a provisioning check on the hub: what an administrator makes, and what an autoscaler answers.

Owns the script of that course. The script plays the autoscaler.
"""

from __future__ import annotations

from typing import Any, Final

from devcluster.provisioner.definition import definition
from tests.simulation.scripts.stage import Stage
from tests.simulation.world import federation
from tests.simulation.world.federation import GROUP, NAMESPACE, USER_JOBS, call, create, job, kueue

REQUESTS: Final = "provisioningrequests.autoscaling.x-k8s.io"
_PATH: Final = f"/apis/autoscaling.x-k8s.io/v1/namespaces/{NAMESPACE}/provisioningrequests"
_NAME: Final = "grow"

Object = dict[str, Any]


def prepare(stage: Stage) -> None:
    """A queue of the hub that runs its jobs here, when capacity was provisioned."""
    create(stage.hub, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition())
    retry = {"backoffLimitCount": 2, "backoffBaseSeconds": 5, "backoffMaxSeconds": 5}
    config = {"provisioningClassName": "check-capacity.autoscaling.x-k8s.io", "retryStrategy": retry}
    create(stage.hub, f"{GROUP}/provisioningrequestconfigs", kueue("ProvisioningRequestConfig", _NAME, spec=config))
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": _NAME}
    check = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}
    create(stage.hub, f"{GROUP}/admissionchecks", kueue("AdmissionCheck", _NAME, spec=check))
    flavor = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "6"}]}
    queue = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}],
        "admissionChecksStrategy": {"admissionChecks": [{"name": _NAME}]},
    }
    create(stage.hub, f"{GROUP}/clusterqueues", kueue("ClusterQueue", _NAME, spec=queue))
    local = f"{GROUP}/namespaces/{NAMESPACE}/localqueues"
    create(stage.hub, local, kueue("LocalQueue", _NAME, spec={"clusterQueue": _NAME}))


def submit(stage: Stage, name: str) -> None:
    """A job of that queue."""
    made = job(name, cpu=1, labels={"kueue.x-k8s.io/queue-name": _NAME})
    made["spec"]["suspend"] = True
    create(stage.hub, USER_JOBS, made)


def requests(stage: Stage) -> list[Object]:
    """All requests."""
    return stage.objects(REQUESTS) if REQUESTS in stage.hub.context.store.names else []


async def requested(stage: Stage, attempt: int, *, without: str = "") -> Object:
    """The request of that attempt, once it and its template are there."""

    def find() -> Object | None:
        owners = {
            owner["uid"] for each in stage.objects("podtemplates") for owner in each["metadata"]["ownerReferences"]
        }
        return next(
            (
                each
                for each in requests(stage)
                if each["metadata"]["name"].endswith(f"-{attempt}")
                and each["metadata"]["uid"] in owners
                and each["metadata"]["uid"] != without
            ),
            None,
        )

    await stage.until(f"request {attempt} and its template are there", lambda: find() is not None)
    found = find()
    assert found is not None, "it was there"
    return found


def answer(stage: Stage, request: Object, kind: str) -> None:
    """The autoscaler sets a condition."""
    condition = {
        "type": kind,
        "status": "True",
        "reason": kind,
        "message": f"{kind} by the script",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    path = f"{_PATH}/{request['metadata']['name']}/status"
    call(stage.hub, "PATCH", path, {"status": {"conditions": [condition]}})


async def provisioning(stage: Stage) -> None:
    """Requested, failed, requested again with other parameters, provisioned, and deleted with the job."""
    prepare(stage)
    federation.create_clusters(stage.hub, stage.workers, pushed=())
    stage.start(clusters=False)
    submit(stage, "a")
    answer(stage, await requested(stage, 1), "Failed")
    second = await requested(stage, 2)
    for template in stage.objects("podtemplates"):
        call(stage.hub, "DELETE", f"/api/v1/namespaces/{NAMESPACE}/podtemplates/{template['metadata']['name']}")
    second = await requested(stage, 2)
    stage.change(f"{GROUP}/provisioningrequestconfigs/{_NAME}", {"spec": {"parameters": {"mode": "fast"}}})
    third = await requested(stage, 2, without=second["metadata"]["uid"])
    answer(stage, third, "Accepted")
    await stage.until("the check shows the answer", lambda: "Accepted by" in str(stage.workload("a")["status"]))
    answer(stage, third, "Provisioned")
    await stage.until("a is admitted", lambda: stage.condition("a", "Admitted") == "True")
    await stage.until("a is started", lambda: stage.hub.context.get("jobs.batch", "team/a")["spec"]["suspend"] is False)  # type: ignore[index]
    stage.delete_job("a")
    await stage.is_gone("a")
    await stage.until("no request is left", lambda: not requests(stage))
    await stage.until("no template is left", lambda: not stage.objects("podtemplates"))
