# SPDX-License-Identifier: Apache-2.0
"""What must hold after every write and at every instant, whatever goes wrong.

Owns the checks and the timeline of a run: one line for each thing that matters, in true time. A check looks at what the
API servers store and at the pods that truly run, never at what a process believes.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from devcluster.apiserver.storage.entry import StoredChange
from multikueue.api.constants import EPOCH_ANNOTATION, ORIGIN_LABEL, PREBUILT_WORKLOAD_LABEL
from multikueue.dispatch.protocol.epochs import epoch_of
from multikueue.jobs.framework.slices import assigned_as, replaces
from tests.simulation.seeds.queued_workers import of_user
from tests.simulation.seeds.user_work import UserWork
from tests.simulation.world.federation import NAMESPACE
from tests.simulation.world.pods import JOBS, Copy, Pods
from tests.simulation.world.slow_pods import SlowPods

Object = dict[str, Any]

_WORKLOADS: Final = "workloads.kueue.x-k8s.io"
_ASSIGNMENTS: Final = "remoteassignments.multikueue.io"
_IN_FLIGHT_SECONDS: Final = 0.1
_STEPS: Final = ("QuotaReserved", "Admitted", "Evicted", "Finished")


class Violated(Exception):
    """An invariant does not hold."""


@dataclass(slots=True)
class Record:
    """What is known of one workload, by its uid: one that is deleted and made again begins anew."""

    cluster: str = ""
    epoch: int = 0
    granted: dict[int, str] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    """For how many pods quota was held when an epoch was granted."""
    started: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Watcher:
    """Follows every store; `problem` is the first violation."""

    now: Callable[[], float]
    policy: Callable[[str], str]
    work: UserWork
    pods: dict[str, Pods] = field(default_factory=dict)
    timeline: list[str] = field(default_factory=list)
    problem: str = ""
    rebuilt: bool = False
    """Whether the hub is another one by now: what runs for the first counts beside what the second starts."""
    calm_after: float = float("inf")
    """From when on nothing takes long any more."""
    one_starts: bool = False
    """Whether no Workload gets quota before the pods of all that hold some are ready."""
    unready: dict[str, float] = field(default_factory=dict)
    """The uids of the Workloads that hold quota and are not shown as ready, and since when if they were."""
    anew: set[str] = field(default_factory=set)
    """The jobs that their users have deleted and made anew: two of a name are two."""
    records: dict[str, Record] = field(default_factory=dict)
    forgotten: dict[str, Record] = field(default_factory=dict)
    """What a restored hub stored before the restore, and an agent may still act on."""
    of_job: dict[str, str] = field(default_factory=dict)
    """The uid of the workload of a job, by the job's uid."""
    slices: dict[str, set[str]] = field(default_factory=dict)
    """The uids of all workloads that a job has had, by the job's uid."""
    largest: dict[str, int] = field(default_factory=dict)
    """For how many pods of a job quota was held at most."""
    begun: dict[str, int] = field(default_factory=dict)
    """The epoch in which an assignment was made, by its uid."""
    of_name: dict[str, list[str]] = field(default_factory=dict)
    """The uids of all workloads that had a name, the newest last."""

    def tell(self, line: str) -> None:
        """One line of the timeline."""
        self.timeline.append(f"{self.now():9.3f}  {line}")

    def remember(self) -> dict[str, Record]:
        """What is known now of all that is on the hub, for a restore to this moment."""
        return deepcopy(self.records)

    def lose(self) -> None:
        """The hub is lost, and another one comes."""
        self.rebuilt = True
        self.unready.clear()

    def restore(self, known: dict[str, Record]) -> None:
        """The hub knows no more than it did then: what it granted since, it may grant to another."""
        self.lose()
        self.forgotten, self.records = self.records, deepcopy(known)

    def on_hub_write(self, collection: str, event: StoredChange) -> None:
        """Follow the management cluster."""
        if collection == _WORKLOADS:
            self._workload(event)
        elif collection == _ASSIGNMENTS:
            self._assignment(event)
        elif collection == self.work.submitted:
            self._user_job(event)

    def on_worker_write(self, cluster: str, collection: str, event: StoredChange) -> None:
        """Follow a worker."""
        if collection not in (JOBS, self.work.collection):
            return
        job = event.value()
        name = job["metadata"]["name"]
        if of_user(job):
            return
        if ORIGIN_LABEL not in (job["metadata"].get("labels") or {}):
            if event.old is not None:
                self.violated(f"{cluster}: another user's job {name} was changed")
            return
        if event.old is None:
            epoch = int(job["metadata"]["annotations"][EPOCH_ANNOTATION])
            self.tell(f"{cluster}: job {name} is made, epoch {epoch}")
            uids = self.of_name.get(job["metadata"]["annotations"][PREBUILT_WORKLOAD_LABEL], [])
            known = [found for uid in uids for found in (self.forgotten.get(uid), self._record(uid)) if found]
            grants = [record for record in known if record.granted.get(epoch) == cluster]
            if not grants:
                self.violated(f"{cluster}: job {name} was made in epoch {epoch} without a grant")
            for record in grants[-1:]:
                if epoch < record.started.get(cluster, 0):
                    self.violated(f"{cluster}: an assignment of old epoch {epoch} made job {name}")
                record.started[cluster] = epoch
        elif event.entry is None:
            self.tell(f"{cluster}: job {name} is gone")
        if self.work.is_elastic and event.entry is not None:
            self._size(cluster, event)

    def _size(self, cluster: str, event: StoredChange) -> None:
        """No remote job is larger than its quota has ever been."""
        job = event.value()
        name, size = job["metadata"]["name"], job["spec"]["parallelism"]
        if event.old is not None and (event.old_value() or {})["spec"]["parallelism"] != size:
            self.tell(f"{cluster}: job {name} has the size {size}")
        if size > self.largest.get(name, 0):
            self.violated(
                f"{cluster}: job {name} has the size {size}, and its quota was for {self.largest.get(name, 0)}"
            )

    def on_pods(self, cluster: str, what: str, copy: Copy) -> None:
        """Follow what truly runs."""
        name = copy.key.rpartition("/")[2]
        self.tell(f"{cluster}: the pods of {name} {what.removesuffix('s')}")
        self._counted(cluster, copy)
        if what != "starts" or self.policy(self.work.name_of(name)) != "fenced":
            return
        live = [
            there
            for there, pods in self.pods.items()
            for other in pods.copies.values()
            if other.live
            and (there != cluster or other.key == copy.key)  # a group has several pods on one cluster
            and (self._is_same(copy, other) or (self.rebuilt and self._is_first(name) and other.key == copy.key))
        ]
        if len(live) > 1:
            self.violated(f"fenced {name} runs on {' and '.join(sorted(live))} at once")

    def _counted(self, cluster: str, copy: Copy) -> None:
        """What starts anew on a cluster has quota for all its pods, whatever had ended elsewhere."""
        records = [self._record(uid) for uid in self.of_name.get(copy.workload, ())]
        held = [each.counts[copy.epoch] for each in records if each.granted.get(copy.epoch) == cluster]
        if held and copy.live and copy.count > max(held):
            self.violated(f"{cluster}: {copy.key} runs with {copy.count} pods, and its quota was for {max(held)}")

    def _is_same(self, copy: Copy, other: Copy) -> bool:
        """Whether both are of one Workload; that of a group that was made anew has the name of the former."""
        if self.work.is_group and not self._is_first(copy.key.rpartition("/")[2]):
            return other.origin == copy.origin
        if self.work.is_elastic and self._is_first(copy.key.rpartition("/")[2]):
            return other.key == copy.key  # its slices have names of their own
        return other.workload == copy.workload

    def _is_first(self, name: str) -> bool:
        return self.work.name_of(name) not in self.anew

    def _workload(self, event: StoredChange) -> None:
        if event.entry is None:
            self.unready.pop((event.old_value() or {})["metadata"]["uid"], None)
            return
        workload = event.value()
        owners = workload["metadata"].get("ownerReferences") or ()
        name: str = self.work.name_of(owners[0]["name"]) if owners else workload["metadata"]["name"]
        admission = (workload.get("status") or {}).get("admission") or {}
        for each in admission.get("podSetAssignments") or ():
            self.largest[name] = max(self.largest.get(name, 0), each.get("count", 0))
        for owner in owners:
            self.slices.setdefault(owner["uid"], set()).add(workload["metadata"]["uid"])
        self.of_job.update({owner["uid"]: workload["metadata"]["uid"] for owner in owners})
        uids = self.of_name.setdefault(workload["metadata"]["name"], [])
        if workload["metadata"]["uid"] not in uids:
            uids.append(workload["metadata"]["uid"])
        record = self._record(workload["metadata"]["uid"])
        if self.work.is_elastic:  # its slices have one assignment
            if event.old is None and not replaces(workload):
                self.records[assigned_as(workload)[1]] = Record()  # a user has deleted the Workload that it had
            whole = self._record(assigned_as(workload)[1])
            record.granted, record.started, record.counts = whole.granted, whole.started, whole.counts
        status: Object = workload.get("status") or {}
        cluster: str = status.get("clusterName") or ""
        if cluster != record.cluster:
            self.tell(f"hub: {name} has cluster {cluster or 'none'}, was {record.cluster or 'none'}")
            if cluster and record.cluster:
                self.violated(f"{name} went from {record.cluster} to {cluster} without an eviction between")
            if not cluster and not _evicted(event) and not _true(status, "Finished"):
                self.violated(f"{name} lost its cluster {record.cluster} without an eviction")
            record.cluster = cluster
            if cluster:
                self._grant(name, record, workload)
        before: Object = (event.old_value() or {}).get("status") or {}
        for kind in (*_STEPS, *(("PodsReady",) if self.work.is_slow else ())):
            if _true(status, kind) != _true(before, kind):
                self.tell(f"hub: {name} {kind} is {_true(status, kind)}: {_message(status, kind)}")
        if self.work.is_slow:
            self._starts(name, record, workload, before=before)

    def _grant(self, name: str, record: Record, workload: Object) -> None:
        """The API is what decides: the cluster in the Workload has it, and no other in this epoch."""
        status: Object = workload["status"]
        evictions = (status.get("schedulingStats") or {}).get("evictions") or ()
        epoch = epoch_of((each["count"] for each in evictions), workload["metadata"].get("annotations") or {})
        if record.granted.setdefault(epoch, record.cluster) != record.cluster:
            self.violated(f"{name} is granted to {record.granted[epoch]} and to {record.cluster} in epoch {epoch}")
        assigned = (status.get("admission") or {}).get("podSetAssignments") or ()
        record.counts.setdefault(epoch, sum(each.get("count", 1) for each in assigned))
        if not _true(status, "QuotaReserved"):
            self.violated(f"{name} is granted to {record.cluster} without quota")

    def _starts(self, name: str, record: Record, workload: Object, *, before: Object) -> None:
        """Quota goes to one at a time until its pods are ready, and what is shown as ready was so where it was granted.

        `before` is the status before. A Workload that is deactivated holds up no other.
        """
        uid: str = workload["metadata"]["uid"]
        status: Object = workload.get("status") or {}
        reserved, ready, evicted = (_true(status, kind) for kind in ("QuotaReserved", "PodsReady", "Evicted"))
        # A write of quota may be on its way when the pods of another one stop being ready.
        others = [at for other, at in self.unready.items() if other != uid and self.now() - at > _IN_FLIGHT_SECONDS]
        if reserved and not _true(before, "QuotaReserved") and self.one_starts and others:
            self.violated(f"{name} gets quota while the pods of another one are not ready")
        waits = reserved and not ready and not _true(status, "Finished") and workload["spec"].get("active", True)
        if waits:
            self.unready.setdefault(uid, self.now() if _true(before, "PodsReady") else 0.0)
        else:
            self.unready.pop(uid, None)
        late = evicted and not _true(before, "Evicted") and _reason(status, "Evicted") == "PodsReadyTimeout"
        if late and self.now() > self.calm_after:
            self.violated(f"{name} is evicted since its pods are not ready, and none takes long any more")
        if ready and not _true(before, "PodsReady") and not self.rebuilt:
            epoch = max(record.granted, default=0)
            cluster = record.granted.get(epoch, "no cluster")
            pods = self.pods.get(cluster)
            if not isinstance(pods, SlowPods) or not pods.was_ready(f"{NAMESPACE}/{name}", epoch):
                self.violated(f"{name} is shown as ready, and was not so on {cluster} in epoch {epoch}")

    def _assignment(self, event: StoredChange) -> None:
        if event.entry is None:
            return
        assignment = event.value()
        spec: Object = assignment["spec"]
        name: str = spec["job"]["name"]
        cluster = assignment["metadata"]["namespace"].removeprefix("mk-")
        before = event.old_value()
        if before is None:
            self.begun[assignment["metadata"]["uid"]] = spec["epoch"]
        reported = assignment.get("status") or {}
        seen = (reported.get("epoch"), reported.get("phase"), reported.get("reason"))
        old = ((before or {}).get("status")) or {}
        if seen != (old.get("epoch"), old.get("phase"), old.get("reason")):
            self.tell(f"hub: {cluster} reports {name}: epoch {seen[0]} {seen[1]} {seen[2] or ''}".rstrip())
            began = self.begun[assignment["metadata"]["uid"]]
            if reported and reported["epoch"] < began:
                self.violated(f"a status of {cluster} for epoch {seen[0]} of {name} counts for epoch {began}")
        if before is not None and (before["spec"]["intent"], before["spec"]["epoch"]) == (
            spec["intent"],
            spec["epoch"],
        ):
            return
        self.tell(f"hub: {cluster} shall {spec['intent']} {name}, epoch {spec['epoch']}")
        if before is not None and spec["epoch"] < before["spec"]["epoch"]:
            self.violated(f"the epoch of {name} on {cluster} went back to {spec['epoch']}")
        if spec["intent"] == "Run":
            record = self._record(spec["workload"]["uid"])
            granted = record.granted.get(spec["epoch"], "no cluster")
            if granted != cluster:
                self.violated(f"{name} is to run on {cluster}, and epoch {spec['epoch']} was granted to {granted}")

    def _user_job(self, event: StoredChange) -> None:
        if event.entry is None or event.old is None:
            return
        if self.work.has_succeeded(event.value()) and not self.work.has_succeeded(event.old_value() or {}):
            name = event.key.rpartition("/")[2]
            self.tell(f"hub: job {name} is complete")
            uid = self.of_job[event.value()["metadata"]["uid"]]
            granted = self._record(uid).granted
            epoch = max(granted, default=0)
            valid = {(granted.get(epoch, ""), epoch)}
            if self.work.is_group:  # what had ended when the others were stopped does not run again
                former = (self._record(each).granted for each in self.of_name.get(self.work.name_of(name), ()))
                valid |= {(cluster, number) for each in former for number, cluster in each.items()}
            if self.work.is_elastic:  # it runs on by a former slice until the next one is admitted
                slices = self.slices.get(event.value()["metadata"]["uid"], ())
                valid |= {
                    (cluster, number) for each in slices for number, cluster in self._record(each).granted.items()
                }
            # A remote job that the hub has forgotten, and that ran to its end, completes the job.
            if uid in self.forgotten:
                valid |= {(cluster, number) for number, cluster in self.forgotten[uid].granted.items()}
            if not any(self._ended(cluster, number, event.key) for cluster, number in valid):
                self.violated(
                    f"job {name} is complete on the hub, and its remote job of epoch {epoch} did not run to its end"
                )

    def _ended(self, cluster: str, epoch: int, key: str) -> bool:
        """Whether the remote job there, of that epoch, ran to its end."""
        copies = self.pods[cluster].copies.values() if cluster in self.pods else ()
        return any(copy.ended and (copy.key, copy.epoch) == (key, epoch) for copy in copies)

    def _record(self, uid: str) -> Record:
        return self.records.setdefault(uid, Record())

    def violated(self, text: str) -> None:
        """An invariant does not hold."""
        self.tell(f"VIOLATED: {text}")
        self.problem = self.problem or text


def _true(status: Object, kind: str) -> bool:
    return any(entry["type"] == kind and entry["status"] == "True" for entry in status.get("conditions") or ())


def _message(status: Object, kind: str) -> str:
    return next((str(entry["message"]) for entry in status.get("conditions") or () if entry["type"] == kind), "")


def _reason(status: Object, kind: str) -> str:
    return next((str(entry["reason"]) for entry in status.get("conditions") or () if entry["type"] == kind), "")


def _evicted(event: StoredChange) -> bool:
    """Whether the workload was being evicted before or is by this write."""
    return any(_true((value or {}).get("status") or {}, "Evicted") for value in (event.old_value(), event.value()))
