# SPDX-License-Identifier: Apache-2.0
"""What some job kinds can do beyond `JobIntegration`; a kind that has none of it need not say so.

What a kind can do is decided by its class: all integrations of one class have the same capabilities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from multikueue.api.defaulting import JobSurroundings
from multikueue.api.featuregates import Gate
from multikueue.api.objects import JsonObject
from multikueue.api.resource import Resource
from multikueue.core.keys import Key
from multikueue.jobs.framework.protocol import JobEnd, JobIntegration, JobWrite
from multikueue.jobs.framework.traits import JobTraits

if TYPE_CHECKING:
    from abc import ABCMeta as ProtocolMeta
else:
    ProtocolMeta = type(Protocol)

_KNOWN: Final[dict[tuple[type, type], bool]] = {}


class Capability(ProtocolMeta):
    """Has `isinstance` compare the members of a protocol and a class once: each event asks several times."""

    def __instancecheck__(cls, instance: object) -> bool:
        asked = cls, type(instance)
        known = _KNOWN.get(asked)
        if known is None:
            known = _KNOWN[asked] = super().__instancecheck__(instance)
        return known


@runtime_checkable
class ValidatedKind(Protocol, metaclass=Capability):
    """A kind with rules of its own for what the webhook accepts."""

    def refusals(
        self, new: JsonObject, old: JsonObject | None, *, has_default_queue: bool, gate: Gate
    ) -> tuple[str, ...]:
        """Why `new` is refused, including what holds for every kind; `old` is what it replaces."""


@runtime_checkable
class DefaultedKind(Protocol, metaclass=Capability):
    """A kind that is held in another way than its `Hold` says."""

    def defaulted(self, job: JsonObject, surroundings: JobSurroundings) -> JsonObject:
        """The job as it is created, from one with its queue and its priority class."""


@runtime_checkable
class UpdatedKind(Protocol, metaclass=Capability):
    """A kind whose changed objects the webhook completes as well."""

    def updated(self, new: JsonObject, old: JsonObject) -> JsonObject:
        """The changed job as it is stored; `old` is what it replaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberWrite:
    """One write to a member of a group, and the event that records it; without a reason none is."""

    write: JobWrite
    reason: str = ""
    message: str = ""


@runtime_checkable
class GroupedKind(Protocol, metaclass=Capability):
    """A kind of which several objects may share one Workload.

    A group is passed to all methods of the integration as one object, which `composed` makes of its members.
    """

    def group_of(self, member: JsonObject) -> str:
        """The name of its group, which is that of the Workload; empty for an object of its own."""

    def composed(self, members: Sequence[JsonObject]) -> JsonObject:
        """The members of one group, of which there is at least one, as one object."""

    def members(self, job: JsonObject) -> tuple[JsonObject, ...]:
        """The objects of a group; the job itself if it is none."""

    def incomplete(self, job: JsonObject) -> str:
        """Why no Workload is made yet; empty if it can be. Raises `BadInput` for members that contradict each other."""

    def waits(self, job: JsonObject) -> bool:
        """Whether a member is still held, although others may run."""

    def replacements(self, job: JsonObject, workload: JsonObject) -> str:
        """Which members have to be replaced by their user before the group can go on; empty if none."""

    def upkeep(self, job: JsonObject, workload: JsonObject | None) -> tuple[MemberWrite, ...]:
        """The writes to members that are due whatever the state of the admission."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPod:
    """A pod of a job, and why it may not be started; `problem` is empty if it may."""

    pod: JsonObject
    problem: str = ""


@runtime_checkable
class PodHoldingKind(GroupedKind, Protocol, metaclass=Capability):
    """A kind with one Workload and no field that suspends it: its pods are gated, started and deleted.

    It is passed to all methods of the integration with its pods, which `with_pods` adds to it.
    """

    framework: str
    resource: Resource
    traits: JobTraits

    def with_pods(self, job: JsonObject, pods: Sequence[HeldPod]) -> JsonObject:
        """The job and its pods as one object."""

    def pod_template(self, job: JsonObject, pod: JsonObject) -> JsonObject:
        """The template that quota for the pod is requested by."""

    def held_back(self, job: JsonObject) -> str:
        """Why gated pods of it may not be started; empty if all may."""

    def is_empty(self, job: JsonObject) -> bool:
        """Whether it is to have no pods, and so no Workload once the last one is gone."""


@dataclass(frozen=True, slots=True)
class RuntimeReference:
    """The object that describes the pods of a job; its key has no namespace if the kind has none."""

    resource: Resource
    key: Key


@dataclass(frozen=True, slots=True)
class RecordedPods:
    """The pod sets of a Workload, and the version of the runtime that they were made of."""

    pod_sets: Sequence[JsonObject]
    version: str


@runtime_checkable
class PodSetsKind(Protocol, metaclass=Capability):
    """A kind of whose pod sets its Workload says more than the job."""

    def with_pod_sets(self, job: JsonObject, pod_sets: Sequence[JsonObject]) -> JsonObject:
        """The job with the pod sets of its Workload."""


@runtime_checkable
class RuntimeKind(PodSetsKind, Protocol, metaclass=Capability):
    """A kind whose jobs name a runtime, another object that describes their pods.

    It is passed to methods that need its pod sets with these, which `with_runtime` or `with_pod_sets` adds to it.
    """

    runtimes: tuple[Resource, ...]
    """The kinds of runtimes."""

    def runtime_of(self, job: JsonObject) -> RuntimeReference | None:
        """The runtime that a job names; None if it names none that could be."""

    def with_runtime(
        self, job: JsonObject, runtime: JsonObject | None, *, recorded: RecordedPods | None = None
    ) -> JsonObject:
        """The job with the pods that its runtime describes, None if that is not there.

        With `recorded` those that it described when the Workload was made, whatever it describes by now.
        """

    def own_description(self, job: JsonObject) -> JsonObject:
        """What the job itself says of its pods, beside its runtime, without what admission added."""

    def runtime_version(self, job: JsonObject) -> str:
        """Of the runtime that the pods of the job, to which it was added, are made of; empty without one."""


@runtime_checkable
class SentSpec(Protocol, metaclass=Capability):
    """A kind whose Workload on a worker differs from that on the hub."""

    def sent_spec(self, spec: JsonObject) -> JsonObject:
        """The spec of the Workload on a worker, from that on the hub."""


@runtime_checkable
class ForwardingKind(Protocol, metaclass=Capability):
    """A kind with fields that may change while a job runs, and are then changed in the remote job too.

    The size of an elastic job is one of them, with the Workload that has this size.
    """

    def forwards(self) -> bool:
        """Whether it has others than its size."""

    def without_forwarding(self) -> JobIntegration:
        """The same kind without such fields."""

    def forwarded_digest(self, job: JsonObject) -> str:
        """Equal as long as these fields of the job are; empty for a kind without them."""

    def forwarded_patch(self, remote: JsonObject, manifest: JsonObject) -> JsonObject | None:
        """The merge patch that gives the remote job these fields of the manifest; None if it has them."""

    def limited(self, job: JsonObject, sizes: Mapping[str, int]) -> JsonObject | None:
        """The job with at most these pods in its pod sets, to be sent; None if that cannot be. Raises `BadInput`."""

    def as_sent(self, manifest: JsonObject, sent: JsonObject) -> JsonObject:
        """The manifest of a running job with the fields whose changes are not forwarded as they were sent.

        Unchanged for a kind that forwards them.
        """


@runtime_checkable
class ReplicatedKind(PodHoldingKind, Protocol, metaclass=Capability):
    """A kind with a Workload for each of its replicas.

    It is passed to all methods of the integration as one of its replicas, which `replica` makes of it.
    """

    def replicas(self, job: JsonObject) -> int:
        """How many it is to have; their indices begin with 0. Raises `BadInput`."""

    def replica(self, job: JsonObject, index: int) -> JsonObject:
        """The job as its replica of that index, which may be one that it is not to have."""

    def replica_of(self, job: JsonObject) -> int:
        """The index that `replica` was given."""

    def replica_of_pod(self, pod: JsonObject, *, owner: str) -> int:
        """The index of the replica that a pod of the job with the name `owner` belongs to."""


@runtime_checkable
class SentGroups(Protocol, metaclass=Capability):
    """A kind whose groups are one remote job: its manifest has their members in the field `members`."""

    def not_sent(self, job: JsonObject) -> str:
        """Why the job cannot be sent to a worker; empty if it can. Raises `BadInput`."""

    def sent_digest(self, job: JsonObject) -> str:
        """Equal as long as the same members are sent; empty for an object of its own."""

    def awaits_members(self, job: JsonObject) -> bool:
        """Whether there is no member that could be sent."""

    def has_other_members(self, job: JsonObject, remote_status: JsonObject) -> bool:
        """Whether it needs members that an end on a worker does not include, since they replaced others meanwhile."""


@runtime_checkable
class RemoteGroups(SentGroups, Protocol, metaclass=Capability):
    """A kind whose remote jobs are stopped by deletion only, so that their end and their deletion are distinguished."""

    def remote_end(self, job: JsonObject) -> JobEnd | None:
        """How the remote job ended; None while it has not, or while it is being deleted."""

    def remotely_stopped(self, job: JsonObject) -> bool:
        """Whether the remote job is held or was deleted, and nothing of it runs."""

    def remote_status(self, job: JsonObject) -> JsonObject | None:
        """What an agent reports of the remote job."""

    def is_same_member(self, member: JsonObject, manifest: JsonObject) -> bool:
        """Whether a member on a worker does what one of that manifest would; what admission adds is ignored."""
