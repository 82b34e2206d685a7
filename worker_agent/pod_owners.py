# SPDX-License-Identifier: Apache-2.0
"""Which pods are those of a remote job: its own, and those of objects that it controls, such as the Jobs of a JobSet.

Owns the owners that were read for one request: of each only the metadata, once. An owner of a kind that the agent may
not read, such as the RayCluster of a RayJob, cannot be followed; the pod then belongs to the job if it has the labels
by which the kind finds its pods. Promises that no object of another namespace is read, and at most `MOST_OWNERS`.

Whoever may create pods in the namespace on the worker can give them the labels and the owner of the job, and so have
their lines shown with those of the job; the lines of other pods, or of another namespace, are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import orjson

from multikueue.api.meta import JsonObject
from multikueue.api.objects import controller_of
from multikueue.api.resource import Resource
from multikueue.dispatch.protocol.job_problems import object_name
from multikueue.jobs.framework.capabilities import GroupedKind
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.kube.errors import Forbidden, NotFound
from multikueue.kube.rest.client import KubeClient

MAX_DEPTH: Final = 10
"""How many owners of one pod are followed."""
MOST_OWNERS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedPods:
    """How the pods of a remote job are found."""

    namespace: str
    job_uid: str
    selector: str
    direct: bool = False
    """Whether each of its pods names it as an owner, or is one of `members`."""
    members: frozenset[str] = field(default=frozenset(), compare=False)
    """The uids of pods that are the job, or one of its group; they change while the job stays the same."""


def logged_pods(integration: JobIntegration, namespace: str, job: JsonObject) -> LoggedPods:
    """How the pods of this remote job are found; it is a pod itself, or a group of pods, for some kinds."""
    members = integration.members(job) if isinstance(integration, GroupedKind) else ()
    return LoggedPods(
        namespace=namespace,
        job_uid=str(job["metadata"]["uid"]),
        selector=integration.pod_selector(job),
        direct=integration.traits.owns_pods_itself,
        members=frozenset(str(each["metadata"]["uid"]) for each in members if each["metadata"].get("uid")),
    )


@dataclass(frozen=True, slots=True)
class _Owner:
    """An owner of a pod: what controls it, and whether that is known."""

    controller: JsonObject | None = None
    readable: bool = True


_GONE: Final = _Owner()
_UNREADABLE: Final = _Owner(readable=False)


class PodOwners:
    """The owners of the pods of one remote job, as far as they were read."""

    def __init__(self, client: KubeClient, kinds: Iterable[Resource]) -> None:
        """`kinds` are those of jobs that the agent serves; it has no right to read others."""
        self._client = client
        self._kinds: Mapping[tuple[str, str], Resource] = {(kind.group, kind.kind): kind for kind in kinds}
        self._refused: set[str] = set()
        self._known: dict[tuple[str, ...], _Owner] = {}
        self.left_out = False
        """Whether an owner was not read, since `MOST_OWNERS` were."""

    async def lead_to(self, pods: LoggedPods, pod: JsonObject) -> bool:
        """Whether a pod with the labels of the job's pods is one of them. Raises `KubeError`."""
        metadata: JsonObject = pod["metadata"]
        if metadata.get("namespace") != pods.namespace:
            return False
        owners = (str(owner.get("uid")) for owner in metadata.get("ownerReferences") or ())
        if metadata["uid"] in pods.members or pods.job_uid in owners:
            return True
        controller = None if pods.direct else controller_of(pod)
        for _ in range(MAX_DEPTH):
            if controller is None:
                return False
            if controller.get("uid") == pods.job_uid:
                return True
            owner = await self._owner(pods.namespace, controller)
            if not owner.readable:
                return True  # by its labels
            controller = owner.controller
        return False

    async def _owner(self, namespace: str, reference: JsonObject) -> _Owner:
        group = str(reference.get("apiVersion")).rpartition("/")[0]
        resource = self._kinds.get((group, str(reference.get("kind"))))
        if resource is None or resource.qualified in self._refused:
            return _UNREADABLE
        name, uid = object_name(reference.get("name")), str(reference.get("uid"))
        key = (resource.qualified, name, uid)
        if not name or key in self._known:
            return self._known.get(key, _GONE)
        if len(self._known) >= MOST_OWNERS:
            self.left_out = True
            return _GONE
        try:
            raw = await self._client.get(resource, name, namespace=namespace, metadata_only=True)
        except NotFound:
            found = _GONE
        except Forbidden:
            self._refused.add(resource.qualified)
            return _UNREADABLE
        else:
            owner: JsonObject = orjson.loads(raw)
            found = _Owner(controller_of(owner)) if owner["metadata"].get("uid") == uid else _GONE
        self._known[key] = found
        return found
