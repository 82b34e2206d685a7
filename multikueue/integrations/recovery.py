# SPDX-License-Identifier: Apache-2.0
"""What becomes of a copy that runs on a worker and is unknown to its management cluster (ADR 0010).

Owns the decision for each orphan: make its job here anew, bind it to the job of that name that is here already, or
leave it, with the reason. Promises that a copy is never adopted beside another one that was granted or has ended, and
never by a job that is not the same work. Pure; `mkctl cluster recover` reads and writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from multikueue.api.constants import ADOPTS_ANNOTATION, MULTIKUEUE_MANAGED_BY
from multikueue.api.meta import JsonObject
from multikueue.federation.annotations import adoption_of, adoption_text
from multikueue.federation.epochs import epoch_of
from multikueue.federation.facts import Adoption
from multikueue.integrations.pod_templates import same
from multikueue.integrations.protocol import JobIntegration


class Fate(StrEnum):
    """What is to be done about one orphan."""

    CREATE = "create"
    BIND = "bind"
    WAIT = "wait"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The fate and why; `epoch` is the dispatch that goes on with it."""

    fate: Fate
    why: str
    epoch: int = 1


def judge(orphan: JsonObject, job: JsonObject | None, workload: JsonObject | None, *, of: JobIntegration) -> Verdict:
    """The verdict on an orphan, given the job of its name on the management cluster and that job's Workload."""
    if job is None:
        return Verdict(Fate.CREATE, "no job of that name is here")
    status: JsonObject = (workload or {}).get("status") or {}
    counts = (eviction.get("count", 0) for eviction in (status.get("schedulingStats") or {}).get("evictions") or ())
    annotations = ((workload or {}).get("metadata") or {}).get("annotations") or {}
    epoch = epoch_of(counts, annotations)
    noted = adoption_of(job["metadata"].get("annotations") or {})
    # A workload that was evicted before it was granted goes on in a later dispatch, for which the note does not count.
    if noted is not None and noted.job_uid == orphan["uid"] and noted.epoch == epoch and of.finished(job) is None:
        return Verdict(Fate.WAIT, "is about to be taken over")
    if of.managed_by(job) != MULTIKUEUE_MANAGED_BY:
        return Verdict(Fate.LEAVE, "the job of that name here is not dispatched")
    if of.finished(job) is not None:
        return Verdict(Fate.LEAVE, "the job of that name here has ended")
    if not _same_work(of, job, orphan["manifest"]):
        return Verdict(Fate.LEAVE, "the job of that name here is another one: its pods differ")
    if status.get("clusterName"):
        return Verdict(Fate.LEAVE, f"the job of that name here runs on {status['clusterName']}")
    return Verdict(Fate.BIND, "a job of that name waits here", epoch=epoch)


def recreated(orphan: JsonObject, *, cluster: str, of: JobIntegration) -> JsonObject:
    """The job for the management cluster, with the note by which its workload goes on with the copy."""
    remote: JsonObject = orphan["manifest"]
    metadata = {**remote["metadata"], "name": orphan["name"], "namespace": orphan["namespace"]}
    made = of.local_manifest({**remote, "metadata": metadata})
    made["metadata"]["annotations"] = {**made["metadata"]["annotations"], **note(orphan, cluster=cluster, epoch=1)}
    return made


def note(orphan: JsonObject, *, cluster: str, epoch: int) -> dict[str, str]:
    """The annotation for the job."""
    return {ADOPTS_ANNOTATION: adoption_text(Adoption(cluster, orphan["managerUID"], orphan["uid"], epoch))}


def _same_work(of: JobIntegration, job: JsonObject, remote: JsonObject) -> bool:
    """Whether as many pods would run the same containers; what admission adds to a template is left out."""
    here, there = of.pod_sets(job), of.pod_sets(remote)
    return len(here) == len(there) and all(
        one["count"] == other["count"]
        and same(one["template"]["spec"].get("containers"), other["template"]["spec"].get("containers"))
        for one, other in zip(here, there, strict=True)
    )
