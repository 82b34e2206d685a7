# SPDX-License-Identifier: Apache-2.0
"""Jobs that are left to the quota of an owner: together they request no more than quota is held for.

Who wrote the reference to an owner is not known of a job that was created while the webhook was not installed. So it
is a hint, and what all jobs below a queued owner request, whatever is in between, is compared with its Workloads. The
oldest are served first.

Owns what each job requests, and the sum for each owner that is named directly. A check adds up one sum for the owner
and for each object in between, so that it does not depend on the number of jobs; these are looked at only if the total
is too much. Owners are known by kind, name and uid: a reference from another namespace, or by a wrong name, leads to
none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import orjson

from manager.cache.ancestors import MAX_DEPTH
from manager.cache.indexes import owner_term
from manager.owners.amounts import ZERO, Amounts, above, add, held_by, requests_in
from multikueue.api.meta import JsonObject
from multikueue.api.objects import controller_of
from multikueue.api.resource import Resource
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.quantity import Quantity
from multikueue.jobs.framework.protocol import JobIntegration


@dataclass(frozen=True, slots=True, kw_only=True)
class _Owned:
    """A job that runs, or may, in the name of an owner. `problem` is why its requests are not known."""

    key: Key
    uid: str
    version: tuple[int, int]
    age: tuple[str, str]
    requests: Amounts
    problem: str = ""


def known_as(resource: Resource, key: Key, uid: str) -> str:
    """The term by which an owner is known here."""
    term = owner_term(api_version=resource.api_version, kind=resource.kind, namespace=key.namespace, name=key.name)
    return f"{term} {uid}"


def named_as(owner: JsonObject | None, *, namespace: str) -> str:
    """The same term, of a reference to an owner; empty without one."""
    if owner is None:
        return ""
    version, kind, name = (str(owner.get(field) or "") for field in ("apiVersion", "kind", "name"))
    return f"{owner_term(api_version=version, kind=kind, namespace=namespace, name=name)} {owner.get('uid')}"


class OwnedJobs:
    """The running jobs of one kind that have an owner, by the terms of all owners above them."""

    def __init__(self, integration: JobIntegration) -> None:
        self._integration = integration
        self._jobs: dict[str, dict[str, _Owned]] = {}  # by the owner, and by their own uid
        self._sums: dict[str, dict[str, Quantity]] = {}
        self._owners: dict[str, str] = {}  # of each job
        self._between: dict[str, dict[str, None]] = {}  # objects by their owner
        self._above: dict[str, str] = {}  # the owner of each object in between

    @property
    def is_empty(self) -> bool:
        """Whether no job has an owner."""
        return not self._jobs

    def set(self, job: JsonObject) -> None:
        """Take in a job as it is now."""
        metadata = job["metadata"]
        key, uid = Key(metadata["namespace"], metadata["name"]), str(metadata.get("uid") or "")
        owner = named_as(controller_of(job), namespace=key.namespace)
        if not owner or not _runs(job, self._integration):
            self.remove(uid)
            return
        version = _version(metadata)
        known = self._jobs.get(owner, {}).get(uid)
        if known is not None and known.version == version:
            return
        self.remove(uid)
        requests: Amounts = {}
        problem = ""
        try:
            requests = requests_in(self._integration.pod_sets(job))
        except BadInput as error:
            problem = str(error)
        self._owners[uid] = owner
        self._jobs.setdefault(owner, {})[uid] = _Owned(
            key=key,
            uid=uid,
            version=version,
            age=(str(metadata.get("creationTimestamp") or ""), key.name),
            requests=requests,
            problem=problem,
        )
        add(self._sums.setdefault(owner, {}), requests)

    def remove(self, uid: str) -> None:
        """Forget a job that is gone, or does not run."""
        owner = self._owners.pop(uid, None)
        if owner is None:
            return
        gone = self._jobs[owner].pop(uid)
        left = self._sums[owner]
        for name, amount in gone.requests.items():
            left[name] = left[name] - amount
        if not self._jobs[owner]:
            del self._jobs[owner], self._sums[owner]

    def set_between(self, own: str, owner: str) -> bool:
        """Take in the owner of an object that may own jobs, empty without one; whether it changed."""
        before = self._above.get(own, "")
        if owner == before:
            return False
        if before:
            del self._above[own], self._between[before][own]
            if not self._between[before]:
                del self._between[before]
        if owner:
            self._above[own] = owner
            self._between.setdefault(owner, {})[own] = None
        return True

    def below(self, owner: str) -> list[Key]:
        """The running jobs below an owner."""
        return [each.key for each in self._below(owner)]

    def fits(self, owner: str, workloads: Iterable[JsonObject]) -> bool:
        """Whether all jobs below an owner request no more than its Workloads hold."""
        return not above(self._total(owner), held_by(workloads))

    def excess(self, job: JsonObject, *, top: str, workloads: Iterable[JsonObject]) -> tuple[str, list[Key]]:
        """What `job` requests beyond the Workloads of `top`, with the older jobs that fit; empty if nothing.

        The keys are those of younger jobs for which there is nothing left. A job that cannot be understood has its
        problem as the answer, and counts for nothing.
        """
        self.set(job)
        uid = str(job["metadata"].get("uid") or "")
        own = self._jobs.get(self._owners.get(uid, ""), {}).get(uid)
        if own is None:
            return "", []
        held = held_by(workloads)
        if own.problem or not above(self._total(top), held):
            return own.problem, []
        served: dict[str, Quantity] = {}
        answer, beyond = "", []
        for each in sorted(self._below(top), key=lambda one: one.age):
            wanted = {name: served.get(name, ZERO) + amount for name, amount in each.requests.items()}
            more = above(wanted, held)
            if not more:
                served |= wanted
            elif each.uid == uid:
                answer = ", ".join(f"{name} {wanted[name]} instead of {held.get(name, ZERO)}" for name in more)
            elif each.age > own.age:
                beyond.append(each.key)
        return answer, beyond

    def _total(self, owner: str) -> Amounts:
        total: dict[str, Quantity] = {}
        for each in self._from(owner):
            add(total, self._sums.get(each, {}))
        return total

    def _below(self, owner: str) -> Iterator[_Owned]:
        for each in self._from(owner):
            yield from self._jobs.get(each, {}).values()

    def _from(self, owner: str) -> Iterator[str]:
        """An owner, and what it owns that may own jobs; each once, since users may write circles."""
        found, level = {owner}, [owner]
        yield owner
        for _ in range(MAX_DEPTH - 1):
            level = [each for one in level for each in self._between.get(one, ()) if each not in found]
            if not level:
                return
            found.update(level)
            yield from level


def _version(metadata: JsonObject) -> tuple[int, int]:
    """Changes with all that the requests of a job depend on: its spec, and its annotations."""
    return int(metadata.get("generation") or 0), hash(orjson.dumps(metadata.get("annotations")))


def _runs(job: JsonObject, integration: JobIntegration) -> bool:
    if "deletionTimestamp" in job["metadata"] or integration.is_suspended(job):
        return False
    return integration.finished(job) is None
