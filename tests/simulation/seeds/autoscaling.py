# SPDX-License-Identifier: Apache-2.0
"""Provisioning across clusters in a seed: the autoscaler of each worker, and what must hold of the requests.

A request belongs to a cluster that the hub nominated for that workload in that epoch; the dispatcher of this project
nominates no more clusters than it may ask; no job is made while its request is not provisioned; and in the end no
request is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final

import orjson

from devcluster.apiserver.http.requests import LOOPBACK, Answer, Request
from devcluster.apiserver.server import ApiServer
from devcluster.apiserver.storage.entry import StoredChange
from devcluster.provisioner.definition import definition
from multikueue.api.constants import ASSIGNMENT_ANNOTATION, DISPATCHER_CAPACITY, EPOCH_ANNOTATION, ORIGIN_LABEL
from multikueue.api.remoteassignment import assignment_name
from multikueue.core.conditions import is_true_in
from multikueue.dispatch.protocol.epochs import epoch_of
from multikueue.jobs.framework.slices import assigned_as
from tests.simulation.world.federation import GROUP, SPARE, call, create, kueue
from tests.simulation.world.network import Server
from tests.simulation.world.pods import JOBS

Object = dict[str, Any]

REQUESTS: Final = "provisioningrequests.autoscaling.x-k8s.io"
CHECK: Final = "grow"
_WORKLOADS: Final = "workloads.kueue.x-k8s.io"
_ENDS: Final = ("Failed", "BookingExpired", "CapacityRevoked")
_HURRY: Final = 2.0  # seconds to an answer once nothing goes wrong any more


def prepare(name: str, server: ApiServer) -> None:
    """What a seed with provisioning needs on a server besides."""
    if name in ("hub", SPARE):
        prepare_hub(server)
    else:
        prepare_worker(server)


def prepare_hub(hub: ApiServer) -> None:
    """Have the queue start jobs when a cluster has provisioned their capacity; attempts do not run out."""
    retry = {"backoffLimitCount": 1000, "backoffBaseSeconds": 1, "backoffMaxSeconds": 5}
    config = {"provisioningClassName": "check-capacity.autoscaling.x-k8s.io", "retryStrategy": retry}
    create(hub, f"{GROUP}/provisioningrequestconfigs", kueue("ProvisioningRequestConfig", CHECK, spec=config))
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": CHECK}
    check = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}
    create(hub, f"{GROUP}/admissionchecks", kueue("AdmissionCheck", CHECK, spec=check))
    checks = {"admissionChecks": [{"name": "mk"}, {"name": CHECK}]}
    call(hub, "PATCH", f"{GROUP}/clusterqueues/queue", {"spec": {"admissionChecksStrategy": checks}})


def prepare_worker(worker: ApiServer) -> None:
    """Install ProvisioningRequests."""
    create(worker, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition())


class Autoscaler:
    """Answers the requests of one worker, sooner or later, and takes capacity away again."""

    def __init__(self, server: Server, random: Random, *, tell: Callable[[str], None]) -> None:
        self._server = server
        self._random = random
        self._tell = tell
        self._hurried = False

    def on_write(self, collection: str, event: StoredChange) -> None:
        """Note a new request."""
        if collection != REQUESTS or event.entry is None or event.old is not None:
            return
        self._later(event.key, event.value()["metadata"]["uid"], self._random.uniform(0.5, 25.0))

    def hurry(self) -> None:
        """From now on capacity is provisioned, and soon."""
        self._hurried = True
        for request in self.requests():
            metadata = request["metadata"]
            self._later(f"{metadata['namespace']}/{metadata['name']}", metadata["uid"], _HURRY)

    def requests(self) -> Iterable[Object]:
        """All that are there."""
        return list(self._server.api.context.objects(REQUESTS))

    def _later(self, key: str, uid: str, seconds: float) -> None:
        asyncio.get_running_loop().call_later(
            min(seconds, _HURRY) if self._hurried else seconds, self._answer, key, uid
        )

    def _answer(self, key: str, uid: str) -> None:
        request = self._server.api.context.get(REQUESTS, key)
        if request is None or request["metadata"]["uid"] != uid or "deletionTimestamp" in request["metadata"]:
            return
        status = request.get("status") or {}
        if any(is_true_in(status, kind) for kind in _ENDS):
            return
        if not self._server.up:
            self._later(key, uid, 2.0)
            return
        provisioned = is_true_in(status, "Provisioned")
        if self._hurried:
            kind = "" if provisioned else "Provisioned"
        elif provisioned:
            kind = self._random.choice(("BookingExpired", "CapacityRevoked"))
        else:
            kind = self._random.choice(("Provisioned",) * 7 + _ENDS)
        if not kind:
            return
        self._write(key, status, kind)
        if kind == "Provisioned" and self._random.random() < 0.4:
            self._later(key, uid, self._random.uniform(1.0, 40.0))

    def _write(self, key: str, status: Object, kind: str) -> None:
        self._tell(f"{self._server.name}: request {key.rpartition('/')[2]} is {kind}")
        kept = [each for each in status.get("conditions") or () if each["type"] != kind]
        condition = {
            "type": kind,
            "status": "True",
            "reason": kind,
            "message": f"{kind} by the seed",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        namespace, _, name = key.partition("/")
        answer = self._server.api.handle(
            Request(
                method="PATCH",
                path=f"/apis/autoscaling.x-k8s.io/v1/namespaces/{namespace}/provisioningrequests/{name}/status",
                query_text="",
                headers={"content-type": "application/merge-patch+json"},
                body=orjson.dumps({"status": {"conditions": [*kept, condition]}}),
                certificate=LOOPBACK,
            )
        )
        assert isinstance(answer, Answer)
        assert answer.status == 200, answer.body


class AskedClusters:
    """Follows which clusters the hub nominates, and holds the requests against it."""

    def __init__(self, *, dispatcher: str, most: int, tell: Callable[[str], None], violated: Callable[[str], None]):
        self._most = most if dispatcher == DISPATCHER_CAPACITY else None
        self._tell = tell
        self._violated = violated
        self._nominated: dict[tuple[str, int], set[str]] = {}
        self._requests: dict[tuple[str, str, int], Object] = {}
        self.made = 0

    def on_hub_write(self, collection: str, event: StoredChange) -> None:
        """Follow the Workloads."""
        if collection != _WORKLOADS or event.entry is None:
            return
        workload = event.value()
        status: Object = workload.get("status") or {}
        metadata = workload["metadata"]
        evictions = (status.get("schedulingStats") or {}).get("evictions") or ()
        epoch = epoch_of((each["count"] for each in evictions), metadata.get("annotations") or {})
        nominated = status.get("nominatedClusterNames") or []
        # The slices of an elastic job have one assignment.
        assigned, _ = assigned_as(workload)
        name = assignment_name(assigned)
        self._nominated.setdefault((name, epoch), set()).update(nominated)
        checks = {each["name"]: each["state"] for each in status.get("admissionChecks") or ()}
        if self._most is not None and checks.get(CHECK) == "Pending" and len(nominated) > self._most:
            self._violated(f"{metadata['name']}: {nominated} are asked to provision, and {self._most} may be")

    def on_worker_write(self, cluster: str, collection: str, event: StoredChange) -> None:
        """Follow the requests and the jobs of a worker."""
        if collection == REQUESTS:
            self._on_request(cluster, event)
        elif collection == JOBS and event.old is None and event.entry is not None:
            self._on_job(cluster, event.value())

    def _on_request(self, cluster: str, event: StoredChange) -> None:
        value = event.value() if event.entry is not None else event.old_value() or {}
        name, epoch = _assignment(value)
        if not name:
            self._violated(f"{cluster}: request {event.key} belongs to no assignment")
            return
        if event.entry is None:
            self._tell(f"{cluster}: request {value['metadata']['name']} is gone")
            self._requests.pop((cluster, name, epoch), None)
            return
        self._requests[cluster, name, epoch] = value
        if event.old is None:
            self.made += 1
            self._tell(f"{cluster}: request {value['metadata']['name']} is made, epoch {epoch}")
            if cluster not in self._nominated.get((name, epoch), set()):
                self._violated(f"{cluster}: request {value['metadata']['name']} was made without a nomination")

    def _on_job(self, cluster: str, job: Object) -> None:
        if ORIGIN_LABEL not in (job["metadata"].get("labels") or {}):
            return
        name, epoch = _assignment(job)
        request = self._requests.get((cluster, name, epoch))
        if request is not None and not is_true_in(request.get("status") or {}, "Provisioned"):
            self._violated(f"{cluster}: job {job['metadata']['name']} was made before its capacity was provisioned")


def _assignment(obj: Object) -> tuple[str, int]:
    """The assignment that an object is annotated with, and its epoch."""
    annotations = obj["metadata"].get("annotations") or {}
    return annotations.get(ASSIGNMENT_ANNOTATION, ""), int(annotations.get(EPOCH_ANNOTATION, 0))
