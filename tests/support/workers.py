# SPDX-License-Identifier: Apache-2.0
"""Worker clusters that a test plays itself: enrolled on the hub, with a Lease that the test renews or does not.

Owns the objects of a federation on the hub and a scripted agent that reports what the test wants.
"""

from __future__ import annotations

from typing import Any

from devcluster.federation import enrolment
from multikueue.api.constants import EPOCH_ANNOTATION, MULTIKUEUE_CONTROLLER
from multikueue.api.remoteassignment import assignment_name, mailbox_namespace
from multikueue.api.resource import (
    ADMISSION_CHECKS,
    LEASES,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    NAMESPACES,
    REMOTE_ASSIGNMENTS,
    SECRETS,
)
from multikueue.core.clock import SystemClock
from multikueue.core.keys import Key
from multikueue.core.timestamps import format_micro_time, format_time
from multikueue.kube.rest.client import KubeClient, PatchKind
from tests.support.jobs import succeeded_status
from tests.support.managers import Object, ensure, eventually, get

KUEUE = "kueue.x-k8s.io/v1beta2"
SCALED_DOWN = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
multiKueue: {workerLostTimeout: 3s, gcInterval: 2s}
"""
PATIENT = SCALED_DOWN.replace("workerLostTimeout: 3s", "workerLostTimeout: 60s")
"""For tests that lose no cluster, on a machine that may be busy for some seconds."""


async def make_check(client: KubeClient, name: str, clusters: tuple[str, ...]) -> None:
    """An AdmissionCheck and its MultiKueueConfig, both of that name."""
    await ensure(
        client,
        MULTIKUEUE_CONFIGS,
        {
            "apiVersion": KUEUE,
            "kind": "MultiKueueConfig",
            "metadata": {"name": name},
            "spec": {"clusters": list(clusters)},
        },
    )
    await ensure(
        client,
        ADMISSION_CHECKS,
        {
            "apiVersion": KUEUE,
            "kind": "AdmissionCheck",
            "metadata": {"name": name},
            "spec": {
                "controllerName": MULTIKUEUE_CONTROLLER,
                "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": name},
            },
        },
    )


class FakeWorker:
    """One worker cluster as the hub sees it."""

    def __init__(self, client: KubeClient, name: str) -> None:
        self.client = client
        self.name = name
        self.mailbox = mailbox_namespace(name)

    async def enrol(self) -> None:
        """The MultiKueueCluster and its Secret."""
        await ensure(self.client, NAMESPACES, enrolment.system_namespace())
        for obj, resource in zip(enrolment.manifests(self.name), (SECRETS, MULTIKUEUE_CLUSTERS), strict=True):
            await ensure(self.client, resource, obj)

    async def connect(self, *, seconds: int = 600) -> None:
        """Renew the Lease, for long; waits for the mailbox."""
        await eventually(
            lambda: get(self.client, LEASES, "agent", namespace=self.mailbox), what=f"the mailbox of {self.name}"
        )
        spec = {
            "holderIdentity": self.name,
            "leaseDurationSeconds": seconds,
            "renewTime": format_micro_time(SystemClock().now()),
        }
        await self.client.patch(LEASES, "agent", {"spec": spec}, namespace=self.mailbox)

    async def disconnect(self) -> None:
        """The Lease is over from now on."""
        await self.connect(seconds=1)

    async def assignment(self, workload: Key) -> Object | None:
        """The objects in the mailbox."""
        return await get(self.client, REMOTE_ASSIGNMENTS, assignment_name(workload), namespace=self.mailbox)

    async def assigned(self, workload: Key, *, intent: str = "Reserve", epoch: int = 1) -> Object:
        """Wait until its assignment has that intent."""
        found = await eventually(
            lambda: self.assignment(workload),
            what=f"{self.name} has intent {intent} for {workload} in epoch {epoch}",
            until=lambda seen: seen is not None and (seen["spec"]["intent"], seen["spec"]["epoch"]) == (intent, epoch),
        )
        assert found is not None
        return found

    async def relieved(self, workload: Key) -> None:
        """Wait until the assignment is gone."""
        await eventually(
            lambda: self.assignment(workload),
            what=f"the assignment of {workload} is gone from {self.name}",
            until=lambda seen: seen is None,
        )

    async def say(self, workload: Key, phase: str, *, epoch: int = 1, **status: Any) -> None:
        """Write the status."""
        await self.client.patch(
            REMOTE_ASSIGNMENTS,
            assignment_name(workload),
            [{"op": "add", "path": "/status", "value": {"epoch": epoch, "phase": phase, **status}}],
            namespace=self.mailbox,
            kind=PatchKind.JSON,
            subresource="status",
        )

    async def say_finished(self, workload: Key, *, epoch: int = 1) -> None:
        """The job succeeded there."""
        now = format_time(SystemClock().now())
        job_status = {"startTime": now, **succeeded_status()}
        finished = {"reason": "Succeeded", "message": "done", "time": now}
        await self.say(workload, "Finished", epoch=epoch, jobStatus=job_status, finished=finished)


def check_of(workload: Object | None, name: str) -> Object:
    """The state of one check."""
    entries = ((workload or {}).get("status") or {}).get("admissionChecks") or ()
    return next((entry for entry in entries if entry["name"] == name), {})


def manifest_epoch(assignment: Object) -> str:
    """The epoch in the annotations of the job to be made."""
    return str(assignment["spec"]["job"]["manifest"]["metadata"]["annotations"][EPOCH_ANNOTATION])
