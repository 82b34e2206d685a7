# SPDX-License-Identifier: Apache-2.0
"""What to do with a remote job that its hub does not know (ADR 0010): an orphan.

Decides for each orphan: create its job on the hub, bind it to the existing job of that name, or leave it, with the
reason. A remote job is never adopted beside another one that was granted or has ended, and never by a job with
different work. `mkctl cluster recover` reads and writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from multikueue.api.constants import ADOPTS_ANNOTATION, ADOPTS_SEAL_ANNOTATION, MULTIKUEUE_MANAGED_BY
from multikueue.api.meta import JsonObject
from multikueue.core.errors import BadInput
from multikueue.dispatch.hub.facts import Adoption
from multikueue.dispatch.protocol.annotations import adoption_of, adoption_text
from multikueue.dispatch.protocol.epochs import epoch_of
from multikueue.jobs.framework.capabilities import RuntimeKind
from multikueue.jobs.framework.pod_templates import same
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.slices import is_elastic

_NO_WORKLOAD: Final = (
    "is being taken over, and the hub has no Workload of it: if that stays so, its kind is not enabled there"
    " (integrations.frameworks), or it is a pod in a namespace that managedJobsNamespaceSelector excludes"
)
_UNREADABLE: Final = (AttributeError, KeyError, TypeError, ValueError)
"""What reading JSON of another shape raises: the manifest of an orphan is whatever its worker has reported."""


class OrphanAction(StrEnum):
    """The action for one orphan."""

    CREATE = "create"
    BIND = "bind"
    WAIT = "wait"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True)
class RecoveryVerdict:
    """The action and its reason; `epoch` is the dispatch that takes the remote job over."""

    action: OrphanAction
    why: str
    epoch: int = 1


def judge(
    orphan: JsonObject, job: JsonObject | None, workload: JsonObject | None, *, of: JobIntegration
) -> RecoveryVerdict:
    """The verdict on an orphan, given the job of its name on the hub and the Workload of that job.

    One whose job cannot be read, or not be made from it, is left: a worker or a tenant wrote it.
    """
    try:
        return _judged(orphan, job, workload, of=of)
    except BadInput as error:
        return RecoveryVerdict(OrphanAction.LEAVE, str(error))
    except _UNREADABLE as error:
        return RecoveryVerdict(OrphanAction.LEAVE, f"its manifest has fields of another type: {error}")


def _judged(
    orphan: JsonObject, job: JsonObject | None, workload: JsonObject | None, *, of: JobIntegration
) -> RecoveryVerdict:
    made = of.local_manifest(orphan["manifest"])
    if job is None:
        return RecoveryVerdict(OrphanAction.CREATE, "the hub has no job of that name")
    status: JsonObject = (workload or {}).get("status") or {}
    counts = (eviction.get("count", 0) for eviction in (status.get("schedulingStats") or {}).get("evictions") or ())
    annotations = ((workload or {}).get("metadata") or {}).get("annotations") or {}
    epoch, ended = epoch_of(counts, annotations), of.finished(job) is not None
    own: dict[str, str] = job["metadata"].get("annotations") or {}
    requested = adoption_of(own) if ADOPTS_SEAL_ANNOTATION in own else None
    # After an eviction the annotation no longer counts: it is for one epoch.
    if requested is not None and (requested.job_uid, requested.epoch) == (orphan["uid"], epoch) and not ended:
        return RecoveryVerdict(OrphanAction.WAIT, "is being taken over" if workload is not None else _NO_WORKLOAD)
    if of.traits.has_managed_by and of.managed_by(job) != MULTIKUEUE_MANAGED_BY:
        return RecoveryVerdict(OrphanAction.LEAVE, "the job of that name on the hub is not managed by MultiKueue")
    if ended:
        return RecoveryVerdict(OrphanAction.LEAVE, "the job of that name on the hub has ended")
    if not of.traits.has_managed_by and not of.is_suspended(job):
        return RecoveryVerdict(OrphanAction.LEAVE, "the job of that name runs on the hub itself")
    if not _same_work(of, of.local_manifest(job), made):
        return RecoveryVerdict(OrphanAction.LEAVE, "the job of that name on the hub is another one: its pods differ")
    if status.get("clusterName"):
        return RecoveryVerdict(OrphanAction.LEAVE, f"the job of that name on the hub runs on {status['clusterName']}")
    return RecoveryVerdict(OrphanAction.BIND, "a job of that name waits on the hub", epoch=epoch)


def recreated(orphan: JsonObject, *, cluster: str, of: JobIntegration) -> JsonObject:
    """The job for the hub, with the annotation by which its workload takes the remote job over."""
    remote: JsonObject = orphan["manifest"]
    metadata = {**remote["metadata"], "name": orphan["name"], "namespace": orphan["namespace"]}
    made = of.local_manifest({**remote, "metadata": metadata})
    made["metadata"]["annotations"] = {
        **made["metadata"]["annotations"],
        **adoption_annotation(orphan, cluster=cluster, epoch=1),
    }
    return made


def adoption_annotation(orphan: JsonObject, *, cluster: str, epoch: int) -> dict[str, str]:
    """The adoption annotation for the job."""
    return {ADOPTS_ANNOTATION: adoption_text(Adoption(cluster, orphan["managerUID"], orphan["uid"], epoch))}


def is_same_work(of: JobIntegration, job: JsonObject, manifest: JsonObject) -> bool:
    """Whether a remote job does what a manifest would; False if one of them, which others write, cannot be read."""
    try:
        return _same_work(of, of.local_manifest(job), of.local_manifest(manifest))
    except (BadInput, *_UNREADABLE):
        return False


def _same_work(of: JobIntegration, job: JsonObject, remote: JsonObject) -> bool:
    """Whether the same number of pods runs the same containers; what admission adds is ignored.

    Both are as their user would submit them. Of a kind whose pods are not known the whole spec is compared, and where a
    runtime describes them, too. An elastic job may have any size: the remote job gets that of the job on the hub.
    """
    if isinstance(of, RuntimeKind):
        return same(job.get("spec"), remote.get("spec"))
    resizable = is_elastic(job) and is_elastic(remote)
    here, there = of.pod_sets(job), of.pod_sets(remote)
    if not here and not there:
        return same(job.get("spec"), remote.get("spec"))
    return len(here) == len(there) and all(
        (resizable or one["count"] == other["count"])
        and same(one["template"]["spec"].get("containers"), other["template"]["spec"].get("containers"))
        for one, other in zip(here, there, strict=True)
    )
