# SPDX-License-Identifier: Apache-2.0
"""JobLogRequest: a request of a user for the logs of a Job on a worker cluster that they cannot reach themselves.

The user creates it in the namespace of the Job and owns the spec, of which only `cursor` changes; the manager answers
in the status with one chunk at a time, and removes the object when it has ended or is not used any more. A request
counts only with the seal that the manager's webhook adds once it has checked the right to `get pods/log` there.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from multikueue.api.meta import Int32, Int64, KubeObject, Time, WireModel
from multikueue.api.resource import JOB_LOG_REQUESTS
from multikueue.api.schema import AGE, CelRule, Column, Schema

_IMMUTABLE = "only cursor may be changed; create another request"
_OPTIONAL = ("tailLines", "sinceTime")
_FIELDS = ("job", "container", "follow", "allPods")


class LoggedJob(WireModel):
    """The job on the management cluster, in the namespace of the request."""

    api_version: Annotated[str, Schema(min_length=1, max_length=317)]
    kind: Annotated[str, Schema(min_length=1, max_length=63)]
    name: Annotated[str, Schema(min_length=1, max_length=253)]


class JobLogRequestSpec(WireModel):
    """What to read, and how far the user has read."""

    job: LoggedJob
    container: Annotated[str, Schema(max_length=63, defaulted=True)] = ""
    tail_lines: Annotated[Int32 | None, Schema(minimum=0)] = None
    since_time: Time | None = None
    follow: Annotated[bool, Schema(defaulted=True)] = False
    all_pods: Annotated[bool, Schema(defaulted=True)] = False
    cursor: Annotated[Int64, Schema(minimum=0, defaulted=True)] = 0


class JobLogRequestStatus(WireModel):
    """The chunk with the number `cursor`; the next one follows when the cursor of the spec has that number."""

    cursor: Annotated[Int64, Schema(minimum=0)] = 0
    cluster: Annotated[str, Schema(max_length=253)] = ""
    pod: Annotated[str, Schema(max_length=253)] = ""
    container: Annotated[str, Schema(max_length=63)] = ""
    chunk: Annotated[str, Schema(max_length=65536)] = ""
    ended: bool = False
    message: Annotated[str, Schema(max_length=1024)] = ""


class JobLogRequest(KubeObject):
    """A request for the logs of a job on a worker cluster."""

    RESOURCE = JOB_LOG_REQUESTS
    SCHEMA = Schema(
        rules=(
            CelRule(" && ".join(f"self.spec.{name} == oldSelf.spec.{name}" for name in _FIELDS), _IMMUTABLE),
            *(
                CelRule(
                    f"has(self.spec.{name}) == has(oldSelf.spec.{name})"
                    f" && (!has(self.spec.{name}) || self.spec.{name} == oldSelf.spec.{name})",
                    _IMMUTABLE,
                )
                for name in _OPTIONAL
            ),
            CelRule("self.spec.cursor >= oldSelf.spec.cursor", "cursor must not go back"),
        )
    )
    COLUMNS = (
        Column(name="Job", path=".spec.job.name"),
        Column(name="Cluster", path=".status.cluster"),
        Column(name="Read", path=".spec.cursor", type="integer"),
        Column(name="Ended", path=".status.ended", type="boolean"),
        AGE,
    )

    spec: JobLogRequestSpec
    status: JobLogRequestStatus = Field(default_factory=JobLogRequestStatus)
