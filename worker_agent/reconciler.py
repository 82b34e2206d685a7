# SPDX-License-Identifier: Apache-2.0
"""One assignment at a time: look, decide, act, say.

Owns how `federation.mirror.step` gets its facts on this cluster and how its actions are done, the removal of jobs
whose assignment is gone, and the memory of what this cluster refused. Level-based: it may run twice, late, or on a
stale cache; a job that is there already is recognised by its marks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from multikueue.api.constants import PartitionPolicy
from multikueue.api.meta import JsonObject
from multikueue.api.remoteassignment import Intent, Phase
from multikueue.core.clock import Clock
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.federation.demands import demands
from multikueue.federation.ledger import Demand
from multikueue.federation.mirror import (
    NAME_CONFLICT,
    NO_ROOM,
    AssignmentFacts,
    JobAction,
    JobFacts,
    Obstacle,
    Step,
    Word,
    remove,
    step,
    wants_room,
)
from multikueue.federation.wire import intent_of, word_of
from multikueue.kube.controller import Result
from multikueue.kube.errors import AlreadyExists, BadRequest, Forbidden, Invalid, NotFound
from worker_agent.capacity import Capacity
from worker_agent.hub import MailboxView
from worker_agent.jobs import Jobs
from worker_agent.outbox import Outbox
from worker_agent.queues import CloneWish, Queues, Standing

_log = logging.getLogger(__name__)

GRANT_PATIENCE_SECONDS: Final = 10.0  # pods of work that was removed may take that long to end
REFUSAL_SECONDS: Final = 60.0  # how long a refusal of the API server is believed before it is asked again
NAMESPACE_MISSING: Final = "NamespaceNotFound"
KIND_MISSING: Final = "KindNotSupported"
CREATE_REJECTED: Final = "CreateRejected"
BAD_ASSIGNMENT: Final = "BadAssignment"


@dataclass(frozen=True, slots=True)
class _Refusal:
    obstacle: Obstacle
    until: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    """An assignment as read from the mailbox."""

    facts: AssignmentFacts
    uid: str
    manager_uid: str
    job: Key
    manifest: JsonObject
    jobs: Jobs | None
    demands: tuple[Demand, ...]
    clone: CloneWish
    adopts: tuple[str, str] | None


class Reconciler:
    """The assignments of one mailbox on one cluster."""

    def __init__(
        self,
        *,
        mailbox: MailboxView,
        kinds: dict[tuple[str, str], Jobs],
        capacity: Capacity,
        queues: Queues,
        outbox: Outbox,
        namespace_exists: Callable[[str], bool],
        lease_valid: Callable[[float], bool],
        clock: Clock,
    ) -> None:
        self._mailbox = mailbox
        self._kinds = kinds
        self._capacity = capacity
        self._queues = queues
        self._outbox = outbox
        self._namespace_exists = namespace_exists
        self._lease_valid = lease_valid
        self._clock = clock
        self._waiting: dict[str, None] = {}
        self._refusals: dict[Key, _Refusal] = {}
        self._jobs: dict[str, Key] = {}
        self._short_since: dict[str, tuple[int, float]] = {}
        self._spared: set[str] = set()
        self.phases: dict[str, Phase] = {}

    def waiting(self) -> list[str]:
        """The assignments that found no room, in the order in which they asked."""
        return list(self._waiting)

    def restore(self) -> None:
        """Take the room again that was held before a restart; to be called before any new wish is looked at."""
        held = []
        for name in self._mailbox.names():
            obj = self._mailbox.get(name)
            if obj is not None and word_of(obj).phase in (Phase.RUNNING, Phase.RESERVED):
                held.append((word_of(obj).phase is not Phase.RUNNING, name, obj))
        for _, name, obj in sorted(held, key=lambda entry: entry[:2]):
            try:
                wish = self._read(obj)
            except BadInput as error:
                _log.warning("assignment %s: %s", name, error)
                continue
            self._jobs[name] = wish.job
            if not self._queues.serves(wish.clone):
                self._capacity.ledger.promise(str(wish.job), wish.demands)

    async def reconcile(self, name: str) -> Result | None:
        """Bring the job of one assignment to where it should be, and say where it is."""
        obj = self._mailbox.get(name)
        if obj is None:
            return await self._remove(name)
        self._outbox.heed(obj)
        said = self._outbox.latest(name, obj["metadata"]["uid"]) or word_of(obj)
        try:
            wish = self._read(obj)
        except BadInput as error:
            word = Word(epoch=int(obj["spec"]["epoch"]), phase=Phase.REFUSED, reason=BAD_ASSIGNMENT, message=str(error))
            self._outbox.put(name, obj["metadata"]["uid"], word, said=word_of(obj))
            return None
        job = wish.jobs.get(wish.job) if wish.jobs is not None else None
        standing = None if self._is_settled(wish, job) else await self._ask(wish, said, has_job=job is not None)
        taken = self._step(wish, job, said, standing)
        if taken.action is JobAction.CREATE and wish.jobs is not None:
            await self._create(wish, queued=standing is not None)
            job = wish.jobs.get(wish.job)
            said = taken.word
            taken = self._step(wish, job, said, standing)
            if taken.action is JobAction.CREATE:
                # It was there and is gone again, or is not ours to see yet: look again in a moment.
                return Result(after=0.2)
        self._settle(name, wish, taken)
        self._outbox.put(name, wish.uid, taken.word, said=word_of(obj))
        if taken.action is not None and job is not None and wish.jobs is not None:
            engine_stops_it = self._queues.serves(wish.clone) and (standing is None or standing.end is None)
            # An engine would only resume a job that is suspended beside its clone; without a clone it does nothing.
            told = taken.action is JobAction.SUSPEND and engine_stops_it and await self._queues.deactivate(wish.clone)
            if not told:
                await self._act(wish, job, taken)
        if standing is not None and standing.stuck:
            return Result(after=REFUSAL_SECONDS)
        return self._again(wish, taken)

    def _read(self, obj: JsonObject) -> _Wish:
        spec: JsonObject = obj["spec"]
        reference: JsonObject = spec.get("job") or {}
        manifest: JsonObject = reference.get("manifest") or {}
        group, _, _ = str(reference.get("apiVersion", "")).rpartition("/")
        jobs = self._kinds.get((group, str(reference.get("kind", ""))))
        fenced = spec.get("partitionPolicy") == PartitionPolicy.FENCED
        return _Wish(
            facts=AssignmentFacts(
                name=obj["metadata"]["name"],
                epoch=int(spec["epoch"]),
                intent=intent_of(obj),
                # The hub counts by the length that it wrote, whatever length the agent was started with.
                may_run=not fenced or self._lease_valid(float(spec.get("leaseSeconds") or "inf")),
            ),
            uid=obj["metadata"]["uid"],
            manager_uid=str(spec["managerUID"]),
            job=Key(str(spec["workload"]["namespace"]), str(reference.get("name", ""))),
            manifest=manifest,
            jobs=jobs,
            demands=() if jobs is None else demands(jobs.integration.pod_sets(manifest)),
            clone=CloneWish.of(obj),
            adopts=_adopts(spec.get("adopts")),
        )

    def _is_settled(self, wish: _Wish, job: JsonObject | None) -> bool:
        """Whether the queues here are not to be asked, since the clone that is there is that of a job that runs.

        What is taken over has been admitted here once; to ask for it again would be to make a second clone. And a job
        that a hub which was put back in time has forgotten has its room until it is removed: its clone goes after it.
        """
        facts = None if job is None else self._facts(wish, job)
        return facts is not None and (facts.adoptable or (facts.ours and facts.epoch > wish.facts.epoch))

    async def _ask(self, wish: _Wish, said: Word, *, has_job: bool) -> Standing | None:
        """Where it stands in the queues of this cluster; None where the ledger admits."""
        if not self._queues.serves(wish.clone) or self._obstacle(wish) is not None:
            return None
        if not wants_room(wish.facts, said):
            return Standing()
        standing = await self._queues.ask(wish.clone)
        if standing.obstacle is not None:
            self._refuse(wish.job, standing.obstacle)
        if standing.halt is not None and has_job and standing.end is None:
            # The hub decides where it runs next; a clone without a job may wait for its turn here again.
            await self._queues.deactivate(wish.clone)
        return standing

    def _facts(self, wish: _Wish, job: JsonObject) -> JobFacts:
        assert wish.jobs is not None, "a job that was found is of a kind that is known"
        return wish.jobs.facts(job, assignment=wish.facts.name, manager_uid=wish.manager_uid, adopts=wish.adopts)

    def _step(self, wish: _Wish, job: JsonObject | None, said: Word, standing: Standing | None) -> Step:
        facts: JobFacts | None = None
        if job is not None:
            facts = self._facts(wish, job)
        obstacle = self._obstacle(wish)
        shortage, asked = "", wish.facts
        blocked_since = None if standing is None else standing.blocked_since
        if standing is not None:
            shortage, asked = standing.shortage, replace(wish.facts, halt=standing.halt)
            if facts is not None:
                # A job that waits for its engine is suspended, and not stopped.
                waits = facts.suspended and standing.halt is None and wish.facts.intent is not Intent.EVICT
                # Its queue is done with it; the word goes out when its pods are gone, for it is the last one.
                end = facts.end or (None if facts.live else standing.end)
                facts = replace(facts, suspended=facts.suspended and not waits, end=end)
        elif obstacle is None and wants_room(wish.facts, said):
            short = self._capacity.ledger.promise(str(wish.job), wish.demands)
            shortage = "" if short is None else short.reason
        return step(
            asked,
            facts,
            said=said,
            shortage=shortage,
            obstacle=obstacle,
            patient=not shortage or self._patience_left(wish) > 0,
            blocked_since=blocked_since,
        )

    def _patience_left(self, wish: _Wish) -> float:
        """For how long what was granted without asking may wait for room that is about to come free."""
        now = self._clock.monotonic()
        epoch, since = self._short_since.get(wish.facts.name, (0, 0.0))
        if epoch != wish.facts.epoch:
            since = now
            self._short_since[wish.facts.name] = (wish.facts.epoch, now)
        return since + GRANT_PATIENCE_SECONDS - now

    def _obstacle(self, wish: _Wish) -> Obstacle | None:
        if wish.jobs is None:
            return Obstacle(KIND_MISSING, "this cluster's agent does not know the kind of the job")
        if (wish.manifest.get("metadata") or {}).get("namespace") != wish.job.namespace:
            # The manifest decides where the job lands, the reference which workload it is charged to.
            return Obstacle(BAD_ASSIGNMENT, "the job is not of the namespace of its workload")
        if not self._namespace_exists(wish.job.namespace):
            return Obstacle(NAMESPACE_MISSING, f'namespace "{wish.job.namespace}" does not exist')
        refusal = self._refusals.get(wish.job)
        if refusal is None:
            return None
        if self._clock.monotonic() >= refusal.until:
            del self._refusals[wish.job]
            return None
        return refusal.obstacle

    async def _create(self, wish: _Wish, *, queued: bool) -> None:
        assert wish.jobs is not None
        manifest = self._queues.manifest(wish.manifest, wish.clone) if queued else wish.manifest
        try:
            await wish.jobs.create(manifest)
        except AlreadyExists:
            found = await wish.jobs.look(wish.job)
            if found is None:
                return
            facts = self._facts(wish, found)
            if not (facts.ours or facts.adoptable):
                message = f'{found.get("kind", "a job")} "{wish.job}" is there already and is not of this assignment'
                self._refuse(wish.job, Obstacle(NAME_CONFLICT, message))
        except NotFound:
            self._refuse(wish.job, Obstacle(NAMESPACE_MISSING, f'namespace "{wish.job.namespace}" does not exist'))
        except (Invalid, Forbidden, BadRequest) as error:
            self._refuse(wish.job, Obstacle(CREATE_REJECTED, error.message))
        else:
            _log.info("job %s: created for assignment %s, epoch %d", wish.job, wish.facts.name, wish.facts.epoch)

    def _refuse(self, job: Key, obstacle: Obstacle) -> None:
        _log.warning("job %s: refused: %s: %s", job, obstacle.reason, obstacle.message)
        self._refusals[job] = _Refusal(obstacle, self._clock.monotonic() + REFUSAL_SECONDS)

    def _settle(self, name: str, wish: _Wish, taken: Step) -> None:
        """What follows from the word for the ledger and for who is asked again."""
        self.phases[name] = taken.word.phase
        self._jobs[name] = wish.job
        if not taken.keeps_room:
            self._capacity.release(str(wish.job))
        if taken.word.phase is Phase.PENDING and taken.word.reason == NO_ROOM:
            self._waiting.setdefault(name)
        else:
            self._waiting.pop(name, None)

    async def _act(self, wish: _Wish, job: JsonObject, taken: Step) -> None:
        assert wish.jobs is not None, "a job that was found is of a kind that is known"
        jobs, key, facts = wish.jobs, wish.job, self._facts(wish, job)
        match taken.action:
            case JobAction.SUSPEND:
                _log.info("job %s: told to stop", key)
                await jobs.suspend(key, facts.uid)
            case JobAction.DELETE:
                wished = wish.facts
                if facts.epoch > wished.epoch and not await self._mailbox.stands(wished.name, wished.epoch):
                    return  # what we follow is behind: another agent of this cluster made that copy
                _log.info("job %s: removing the copy of epoch %d", key, facts.epoch)
                await jobs.delete(key, facts.uid, ended=facts.end is not None)
            case JobAction.ADOPT:
                _log.info("job %s: taken over for assignment %s", key, wish.facts.name)
                assert wish.adopts is not None, "there is something to take over"
                manager_uid, _ = wish.adopts
                await self._queues.adopt(wish.clone, jobs.workload(job), manager_uid=manager_uid)
                await jobs.adopt(key, facts.uid, wish.manifest)
            case _:
                return

    def _again(self, wish: _Wish, taken: Step) -> Result | None:
        if taken.word.phase is Phase.PENDING and taken.word.reason == NO_ROOM and wish.facts.intent is Intent.RUN:
            return Result(after=max(0.05, self._patience_left(wish)))
        if taken.word.phase is not Phase.REFUSED:
            return None
        refusal = self._refusals.get(wish.job)
        if refusal is None:
            return None
        return Result(after=max(0.1, refusal.until - self._clock.monotonic()))

    async def _remove(self, name: str) -> Result | None:
        """The assignment is gone: so is what was made for it, if it was this manager's wish and is its absence."""
        self._outbox.forget(name)
        self._waiting.pop(name, None)
        self._short_since.pop(name, None)
        self.phases.pop(name, None)
        wanted = self._jobs.pop(name, None)
        if wanted is not None:
            self._refusals.pop(wanted, None)
            self._capacity.release(str(wanted))
        for jobs in self._kinds.values():
            for key in jobs.of_assignment(name):
                await self._remove_job(jobs, key, name)
        if name in self._queues.assignments() and self._mailbox.informer.synced.is_set():
            try:
                owner = await self._mailbox.owner()
            except NotFound:
                owner = ""
            if owner and self._mailbox.get(name) is None:
                await self._queues.remove(name, manager_uid=owner)
        return None

    async def _remove_job(self, jobs: Jobs, key: Key, name: str) -> None:
        job = jobs.get(key)
        if job is None or not self._mailbox.informer.synced.is_set():
            return
        made_by = jobs.manager_uid(job)
        facts = jobs.facts(job, assignment=name, manager_uid=made_by)
        if not facts.ours or remove(facts) is None:
            return
        try:
            owner = await self._mailbox.owner()
        except NotFound:
            owner = ""
        if self._mailbox.get(name) is not None:
            return  # it came back while we asked
        if not made_by or owner != made_by:
            if facts.uid not in self._spared:
                self._spared.add(facts.uid)
                _log.warning("job %s: its assignment is gone, but the mailbox is not of the manager that made it", key)
            return
        self._spared.discard(facts.uid)
        _log.info("job %s: removed, assignment %s is gone", key, name)
        await jobs.delete(key, facts.uid, ended=facts.end is not None)


def _adopts(adoption: JsonObject | None) -> tuple[str, str] | None:
    return None if adoption is None else (str(adoption["managerUID"]), str(adoption["jobUID"]))
