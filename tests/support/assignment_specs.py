# SPDX-License-Identifier: Apache-2.0
"""The spec of an assignment: quota in a queue for the workload `wl`, whose job is `j`."""

from __future__ import annotations

from copy import deepcopy

from multikueue.api.remoteassignment import Intent
from multikueue.api.resource import REMOTE_ASSIGNMENTS
from tests.support.managers import Object, job_manifest

QUEUE = "batch"


def workload_spec(namespace: str, **more: object) -> Object:
    """Of the Workload, and of its clone."""
    template = job_manifest("j", namespace=namespace, queue=QUEUE)["spec"]["template"]
    return {"queueName": QUEUE, "podSets": [{"name": "main", "count": 1, "template": template}], **more}


def of_job(assignment: Object, name: str, intent: Intent) -> Object:
    """The assignment, now called `name`, with that intent, for the job `job-NAME` and the workload `wl-NAME`."""
    body = deepcopy(assignment)
    namespace = body["spec"]["workload"]["namespace"]
    body["metadata"]["name"] = name
    body["spec"] |= {"workload": {"namespace": namespace, "name": f"wl-{name}", "uid": name}, "intent": str(intent)}
    body["spec"]["job"]["name"] = body["spec"]["job"]["manifest"]["metadata"]["name"] = f"job-{name}"
    return body


def reservation(namespace: str, *, workload: Object, **more: object) -> Object:
    """The assignment `a` to the cluster `w`, for a Workload of that spec; `more` is of the assignment's own."""
    manifest = job_manifest("j", namespace=namespace, queue=QUEUE)
    return {
        "apiVersion": REMOTE_ASSIGNMENTS.api_version,
        "kind": REMOTE_ASSIGNMENTS.kind,
        "metadata": {"name": "a", "namespace": "mk-w"},
        "spec": {
            "workload": {"namespace": namespace, "name": "wl", "uid": "u"},
            "origin": "multikueue",
            "managerUID": "m",
            "epoch": 1,
            "intent": str(Intent.RESERVE),
            "queueName": QUEUE,
            "workloadSpec": workload,
            "job": {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "manifest": manifest},
            **more,
        },
    }
