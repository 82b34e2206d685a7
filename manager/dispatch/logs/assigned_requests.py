# SPDX-License-Identifier: Apache-2.0
"""The requests for logs in the assignments of workers, with either transport.

Owns `spec.logs` of an assignment, which the rest of dispatch leaves as it is; an assignment that is updated keeps its
requests, and one that is removed takes them along.
"""

from __future__ import annotations

from collections.abc import Sequence

from manager.context import ManagerContext
from manager.dispatch.transport.job_slices import JobSlices
from manager.dispatch.transport.push_transport import PushTransport
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import assignment_name, mailbox_namespace
from multikueue.api.resource import REMOTE_ASSIGNMENTS
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.job_logs import RelayedRequest, relayed_requests
from multikueue.dispatch.protocol.wire import workload_of
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import PatchKind


class AssignedLogRequests:
    """Reads assignments, and writes the requests in them."""

    def __init__(self, context: ManagerContext, push: PushTransport) -> None:
        self._client = context.client
        self._view = context.caches.view(REMOTE_ASSIGNMENTS)
        self._push = push
        self._slices = JobSlices(context.caches)

    def assignment(self, cluster: str, workload: Key) -> JsonObject | None:
        """The assignment of the workload to that cluster; None if there is none (any more)."""
        assigned = self._slices.assigned(workload)[0]
        name = assignment_name(assigned)
        if self._push.serves(cluster):
            found = self._push.mailbox(cluster).get(name)
        else:
            found = self._view.object(Key(mailbox_namespace(cluster), name))
        return found if found is not None and workload_of(found) == assigned else None

    def with_requests(self) -> list[Key]:
        """The workloads whose assignment has requests now, in a mailbox on the hub."""
        found = (obj["spec"]["workload"] for obj in self._view.objects() if obj["spec"].get("logs"))
        keys = ((Key(each["namespace"], each["name"]), str(each.get("uid", ""))) for each in found)
        return [self._slices.holder(*each) or each[0] for each in keys]

    async def request(self, cluster: str, workload: Key, wanted: Sequence[RelayedRequest]) -> None:
        """Have these requests in the assignment; one that is gone is ignored. Raises `KubeError`."""
        found = self.assignment(cluster, workload)
        if found is None or relayed_requests(found) == tuple(wanted):
            return
        entries = [each.wire() for each in wanted]
        name, namespace = assignment_name(workload_of(found)), mailbox_namespace(cluster)
        if self._push.serves(cluster):
            self._push.mailbox(cluster).request_logs(name, entries)
            return
        patch = {"metadata": {"uid": found["metadata"]["uid"]}, "spec": {"logs": entries or None}}
        try:
            answer = await self._client.patch(
                REMOTE_ASSIGNMENTS, name, patch, namespace=namespace, kind=PatchKind.MERGE
            )
        except NotFound:
            return
        self._view.on_write(answer)
