# SPDX-License-Identifier: Apache-2.0
"""The ConfigMaps and Secrets on this cluster that the hub sends with its jobs (ADR 0021).

Owns their creation, updates and owner references. An object is written only once its job exists, with the job as owner,
so that Kubernetes removes it with the last job that names it; pods wait for it. It is written by `create`, or by an
update that is guarded by uid and resourceVersion, and only if it is one that this agent sent. One that a user of this
cluster deletes or edits is restored at the next look, for which the metadata is enough: what this agent has written has
the resourceVersion of that write. Looks are shared by the jobs that name the object. A failure of an API server keeps
the object as it is, and is tried again with back-off; while an object does not exist, the hub is told why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final
from weakref import WeakValueDictionary

from multikueue.api.meta import JsonObject
from multikueue.api.resource import Resource
from multikueue.core.backoff import Backoff
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput, MultikueueError
from multikueue.core.keys import Key
from multikueue.dispatch.protocol.job_problems import StartProblem, start_problem_from
from multikueue.dispatch.sending.sent_copies import (
    CopyMarks,
    Holder,
    copied_version,
    lacks_owner,
    metadata_in,
    owners_of,
    shared,
)
from multikueue.dispatch.sending.sent_objects import SentReference, mailbox_name, received
from multikueue.dispatch.worker.assignment_state import DEPENDENCY_NOT_SENT
from multikueue.dispatch.worker.dependencies import SENDABLE_KINDS, Dependency, conflict_message
from multikueue.kube.errors import ApiError, Invalid, KubeError, NotFound
from multikueue.kube.rest.client import KubeClient
from worker_agent.hub.client import MailboxView
from worker_agent.local.assignment_spec import AssignmentSpec
from worker_agent.local.jobs import RemoteJobKey

_log = logging.getLogger(__name__)

SHOWN_AFTER: Final = 2
"""The hub is told of a failure when that many attempts have failed: most pass by themselves."""
_AGAIN: Final = Backoff(base=0.5, factor=2.0, cap=30.0, jitter=0.2)
_LOOK: Final = Backoff(base=10.0, factor=2.0, cap=60.0, jitter=0.2)
"""How often it is checked that an object is still as it was sent."""
_RESTORED: Final = Backoff(base=10.0, factor=2.0, cap=300.0, jitter=0.2)
"""The same for one that others change again and again."""


class _NotWritten(MultikueueError):
    """The object cannot be written now."""


@dataclass(slots=True, weakref_slot=True)
class _Written:
    """What is known of one object of this cluster, for all jobs that name it."""

    resource_version: str = ""
    """Of the object as this agent wrote it, or found that it was so; none if that is not known."""
    version: str = ""
    owners: frozenset[str] = frozenset()
    until: float = 0.0
    looks: int = 0
    restored: int = 0
    """How many looks in a row have found a change by others."""


@dataclass(slots=True)
class _Copy:
    """What is known of one object for one job."""

    written: _Written
    version: str = ""
    """The one that was listed when it was looked at last; that of what was written may be newer."""
    optional: bool = False
    """Whether the pods start without it."""
    exists: bool = False
    until: float = 0.0
    failures: int = 0
    problem: str = ""


class SentObjects:
    """What is sent to one cluster."""

    def __init__(
        self,
        client: KubeClient,
        mailbox: MailboxView,
        *,
        marks: CopyMarks,
        may_send: Callable[[Resource], bool],
        is_job_kind: Callable[[JsonObject], bool],
        is_remote_job: Callable[[JsonObject, str, str], bool],
        clock: Clock,
        random: Random,
    ) -> None:
        """`is_job_kind` and `is_remote_job` judge owner references, the latter in a namespace and for a manager."""
        self._client = client
        self._mailbox = mailbox
        self._marks = marks
        self._may_send = may_send
        self._is_job_kind = is_job_kind
        self._is_remote_job = is_remote_job
        self._clock = clock
        self._random = random
        self._copies: dict[RemoteJobKey, dict[Dependency, _Copy]] = {}
        self._written: WeakValueDictionary[tuple[str, Dependency], _Written] = WeakValueDictionary()
        """By namespace; an entry goes with the last job that names the object."""

    def kinds(self) -> list[str]:
        """The kinds that may be sent, for a ClusterReport."""
        return [kind for kind, resource in SENDABLE_KINDS.items() if self._may_send(resource)]

    def holder(self, metadata: JsonObject, namespace: str, *, manager_uid: str) -> Holder:
        """Whose the object with that metadata is."""
        return self._marks.holder(
            metadata,
            is_job_kind=self._is_job_kind,
            is_remote_job=lambda owner: self._is_remote_job(owner, namespace, manager_uid),
        )

    async def bring(self, desired: AssignmentSpec, owners: Sequence[JsonObject]) -> None:
        """Bring what is sent with the job up to date; `owners` are the owner references of the job, or its pods."""
        wanted = [each for each in desired.sent if each.version]
        known = self._copies.pop(desired.named, {})
        if not wanted:
            return
        copies = self._copies[desired.named] = {
            each.needed: known.get(each.needed) or self._copy(desired, each.needed) for each in wanted
        }
        uids = frozenset(str(owner["uid"]) for owner in owners)
        for reference in wanted:
            copy = copies[reference.needed]
            copy.optional = reference.optional
            now, written = self._clock.monotonic(), copy.written
            if copy.failures and now < copy.until:
                continue
            if now < written.until and copy.version == reference.version and uids <= written.owners:
                copy.exists, copy.until, copy.failures, copy.problem = True, written.until, 0, ""
                continue
            try:
                await self._bring(desired, reference, owners, copy)
            except (KubeError, BadInput, _NotWritten) as error:
                self._failed(desired, reference.needed, copy, error)
            else:
                copy.version = reference.version
                copy.exists, copy.until, copy.failures, copy.problem = True, written.until, 0, ""

    def problem(self, job: RemoteJobKey) -> StartProblem | None:
        """Why the pods of the job cannot start: an object is not there, and could not be sent."""
        for copy in self._copies.get(job, {}).values():
            if not (copy.exists or copy.optional) and copy.failures >= SHOWN_AFTER:
                return start_problem_from(DEPENDENCY_NOT_SENT, copy.problem)
        return None

    def retry_after(self, job: RemoteJobKey) -> float | None:
        """The seconds until something is to be done for the job; None if nothing is sent with it."""
        moments = [copy.until for copy in self._copies.get(job, {}).values()]
        return max(0.1, min(moments) - self._clock.monotonic()) if moments else None

    def forget(self, job: RemoteJobKey) -> None:
        """Drop what is known of the job, whose assignment is gone; Kubernetes removes its objects with it."""
        self._copies.pop(job, None)

    def _copy(self, desired: AssignmentSpec, needed: Dependency) -> _Copy:
        key = (desired.job.namespace, needed)
        written = self._written.get(key)
        if written is None:
            written = self._written[key] = _Written()
        return _Copy(written)

    def _failed(self, desired: AssignmentSpec, needed: Dependency, copy: _Copy, error: MultikueueError) -> None:
        copy.failures += 1
        copy.problem = f"{needed} could not be sent: {error.message if isinstance(error, ApiError) else error}"
        copy.until = self._clock.monotonic() + _AGAIN.delay(copy.failures, self._random)
        if copy.failures == SHOWN_AFTER:
            _log.warning("object not sent job=%s object=%s error=%s", desired.named, needed, error)

    async def _bring(
        self, desired: AssignmentSpec, reference: SentReference, owners: Sequence[JsonObject], copy: _Copy
    ) -> None:
        needed, namespace = reference.needed, desired.job.namespace
        resource = SENDABLE_KINDS[needed.kind]
        if not self._may_send(resource):
            raise _NotWritten(f"the agent may not write {resource.plural} on this cluster")
        found = await self._metadata(resource, needed.name, namespace)
        if found is None:
            copy.exists = False
            answer = await self._create(desired, reference, owners)
            self._settle(copy.written, reference, answer, desired=desired, before=None)
            return
        match self.holder(found, namespace, manager_uid=desired.manager_uid):
            case Holder.FOREIGN:
                raise _NotWritten(conflict_message(namespace, (needed,)))
            case Holder.LEAVING:
                copy.exists = False
                raise _NotWritten("it is being removed with the last of the jobs that it was sent with")
        copy.exists = True
        as_written = copy.written.resource_version == str(found.get("resourceVersion"))
        if as_written and copied_version(found) == reference.version and not lacks_owner(found, owners):
            self._settle(copy.written, reference, found, desired=desired, before=found)
            return
        answer = await self._update(desired, reference, owners, found)
        self._settle(copy.written, reference, answer, desired=desired, before=found)

    def _settle(
        self,
        written: _Written,
        reference: SentReference,
        metadata: JsonObject,
        *,
        desired: AssignmentSpec,
        before: JsonObject | None,
    ) -> None:
        """The object has this metadata now, and is as it is to be; `before` is what was found, if anything."""
        now_at, owners = str(metadata.get("resourceVersion")), frozenset(str(o.get("uid")) for o in owners_of(metadata))
        version = copied_version(metadata)
        expected = written.version == version and bool(written.resource_version)
        # An update that changes nothing keeps the resourceVersion: then nothing but its owners had been changed.
        changed = before is None or now_at != str(before.get("resourceVersion"))
        if expected and changed and (before is None or owners == written.owners):
            written.restored += 1
            namespace = desired.job.namespace
            _log.info("object restored namespace=%s object=%s", namespace, reference.needed)
            if written.restored == SHOWN_AFTER:
                _log.warning("object changed again by others namespace=%s object=%s", namespace, reference.needed)
        else:
            written.restored = 0
        written.looks = written.looks + 1 if expected and not changed else 1
        written.resource_version, written.version, written.owners = now_at, version, owners
        pause = _RESTORED.delay(written.restored, self._random) if written.restored else 0.0
        written.until = self._clock.monotonic() + max(pause, _LOOK.delay(written.looks, self._random))

    async def _create(
        self, desired: AssignmentSpec, reference: SentReference, owners: Sequence[JsonObject]
    ) -> JsonObject:
        needed, namespace = reference.needed, desired.job.namespace
        obj = await self._mailbox.sent_object(SENDABLE_KINDS[needed.kind], mailbox_name(namespace, needed))
        contents, version = received(obj, source=Key(namespace, needed.name), needed=needed)
        metadata = self._marks.metadata(
            needed.name, namespace, manager_uid=desired.manager_uid, version=version, owners=owners
        )
        answer = await self._client.create(SENDABLE_KINDS[needed.kind], contents.body(metadata), namespace=namespace)
        _log.info("object sent job=%s object=%s", desired.named, needed)
        return metadata_in(answer)

    async def _update(
        self, desired: AssignmentSpec, reference: SentReference, owners: Sequence[JsonObject], found: JsonObject
    ) -> JsonObject:
        """The metadata after the update; its resourceVersion is the former one if nothing had to be changed."""
        needed, namespace = reference.needed, desired.job.namespace
        resource = SENDABLE_KINDS[needed.kind]
        obj = await self._mailbox.sent_object(resource, mailbox_name(namespace, needed))
        contents, version = received(obj, source=Key(namespace, needed.name), needed=needed)
        manager_uid = desired.manager_uid
        metadata = shared(found, marks=self._marks, manager_uid=manager_uid, version=version, owners=owners)
        try:
            answer = await self._client.replace(resource, needed.name, contents.body(metadata), namespace=namespace)
        except NotFound as error:
            raise _NotWritten("it was deleted meanwhile") from error
        except Invalid as error:
            if not _is_immutable(error):
                raise
            # Its type is another one, or a user of this cluster made it immutable: it has to be made anew.
            _log.info("object replaced job=%s object=%s", desired.named, needed)
            await self._client.delete(
                resource,
                needed.name,
                namespace=namespace,
                uid=str(found["uid"]),
                resource_version=str(found["resourceVersion"]),
            )
            kept = {name: value for name, value in metadata.items() if name not in ("uid", "resourceVersion")}
            answer = await self._client.create(resource, contents.body(kept), namespace=namespace)
        updated = metadata_in(answer)
        if updated.get("resourceVersion") != found.get("resourceVersion"):
            _log.info("object brought up to date job=%s object=%s", desired.named, needed)
        return updated

    async def _metadata(self, resource: Resource, name: str, namespace: str) -> JsonObject | None:
        try:
            return metadata_in(await self._client.get(resource, name, namespace=namespace, metadata_only=True))
        except NotFound:
            return None


def _is_immutable(error: Invalid) -> bool:
    """Whether a field cannot be changed: the type of a Secret, or all of an object that a user made immutable.

    What an admission policy of the cluster refuses is invalid as well, and must not cost the object that is there.
    """
    return any("immutable" in cause.message for cause in error.details.causes)
