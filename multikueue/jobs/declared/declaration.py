# SPDX-License-Identifier: Apache-2.0
"""The form of the declaration of a job kind, `multikueue.io/v1alpha1` `JobKind` (docs/jobs/your-own-kind.md)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from multikueue.api import names
from multikueue.api.reasons import FinishedReason
from multikueue.api.resource import OWN_GROUP, OWN_VERSION
from multikueue.jobs.declared.amounts import PodAmount
from multikueue.jobs.declared.checks import JobCheck
from multikueue.jobs.declared.model import DeclarationModel, FieldPath, Query
from multikueue.jobs.declared.paths import JobPath, Keys
from multikueue.jobs.framework.traits import Hold

JOB_KIND: Final = "JobKind"
API_VERSION: Final = f"{OWN_GROUP}/{OWN_VERSION}"
MAX_POD_SETS: Final = 18
"""As many as a Workload may have."""
_MAX_LIST: Final = 64
_FRAMEWORK: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_KIND: Final = r"^[A-Z][A-Za-z0-9]*$"
_PLURAL: Final = r"^[a-z][a-z0-9]*$"
_VERSION: Final = r"^v[0-9]+((alpha|beta)[0-9]+)?$"


class DeclaredResource(DeclarationModel):
    """The resource; of several versions the first is read and written."""

    group: str
    versions: Annotated[tuple[Annotated[str, Field(pattern=_VERSION)], ...], Field(min_length=1, max_length=8)]
    kind: Annotated[str, Field(pattern=_KIND, max_length=63)]
    plural: Annotated[str, Field(pattern=_PLURAL, max_length=63)]
    namespaced: Literal[True] = True

    @field_validator("group")
    @classmethod
    def _is_group(cls, value: str) -> str:
        for problem in names.dns_subdomain(value):
            raise ValueError(problem)
        return value


class SuspendField(DeclarationModel):
    """The boolean field that keeps a job from running."""

    path: FieldPath
    value: bool = True
    """The value that means suspended; an absent field means false."""


class ManagedByField(DeclarationModel):
    """The field that names the controller that runs the job."""

    path: FieldPath
    controller: str = ""
    """The value that means the kind's own controller, as an absent field does."""


class DeclaredPodSet(DeclarationModel):
    """One pod set, or with `forEach` one for each entry of a list or field of an object.

    In paths `$.each` is the entry and `$.key` its index or name.
    """

    for_each: FieldPath | None = None
    name: str
    """The name, or the path to it; put into lower case."""
    when: JobCheck | None = None
    """The pod set exists only then."""
    optional: bool = False
    """Whether a job without the template has no such pod set."""
    count: PodAmount = PodAmount(value=1)
    template: FieldPath
    pod_index_label: str = ""
    sub_group_index_label: str = ""
    sub_group_count: PodAmount | None = None
    ready: JobCheck | None = None
    reclaimable: PodAmount | None = None
    """How many of its pods have ended and will not be replaced."""

    @property
    def name_path(self) -> JobPath | None:
        """The path to the name; None for a fixed one."""
        return JobPath(self.name) if self.name.startswith("$") else None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.name.startswith("$"):
            for problem in names.dns_label(self.name):
                raise ValueError(f"name: {problem}")
            if self.for_each is not None:
                raise ValueError("name: expected a path such as $.each.name, since forEach makes several pod sets")
        elif JobPath(self.name).keys is None:
            raise ValueError(f"name: {self.name}: expected the path of one field, without wildcards and filters")
        keys = self.template.keys or ()
        if self.for_each is not None and keys[0] != "each":
            raise ValueError(f"template: expected a path below $.each, found {self.template}")
        if self.for_each is None and keys[0] == "each":
            raise ValueError(f"template: {self.template} needs forEach")
        return self


class FinishRule(DeclarationModel):
    """One way to end; the first rule that applies counts."""

    when: JobCheck
    result: Literal["Succeeded", "Failed"]
    message: Query | None = None
    """Without it, the message of the condition in `when`; without one, that the job has succeeded or failed."""

    @property
    def reason(self) -> str:
        """The reason of the Workload's condition Finished."""
        return FinishedReason.SUCCEEDED if self.result == "Succeeded" else FinishedReason.FAILED


class RemoteRules(DeclarationModel):
    """What the job on a worker does not have; `managedBy` and `suspend` are always taken care of."""

    strip: Annotated[tuple[FieldPath, ...], Field(max_length=_MAX_LIST)] = ()
    forwarded: Annotated[tuple[FieldPath, ...], Field(max_length=_MAX_LIST)] = ()
    """Fields that may change while the job runs, and are then changed in the remote job too; none of its pods."""

    @model_validator(mode="after")
    def _below_spec(self) -> Self:
        for index, path in enumerate(self.forwarded):
            keys = path.keys or ()
            if len(keys) < 2 or keys[0] != "spec":
                raise ValueError(f"forwarded[{index}]: expected a path below $.spec, found {path}")
            if any(_overlap(keys, stripped.keys or ()) for stripped in self.strip):
                raise ValueError(f"forwarded[{index}]: {path} is not sent, as strip says")
        return self


class StatusRules(DeclarationModel):
    """Which fields of the remote status the job on the hub shows, and which are removed when the job has stopped."""

    shown: Annotated[tuple[FieldPath, ...], Field(min_length=1, max_length=_MAX_LIST)] | None = None
    """Without it, all."""
    cleared: Annotated[tuple[FieldPath, ...], Field(max_length=_MAX_LIST)] = ()

    @model_validator(mode="after")
    def _below_status(self) -> Self:
        for field, paths in (("shown", self.shown or ()), ("cleared", self.cleared)):
            for index, path in enumerate(paths):
                if len(path.keys or ()) < 2 or (path.keys or ("",))[0] != "status":
                    raise ValueError(f"{field}[{index}]: expected a path below $.status, found {path}")
        return self


class RefusalRule(DeclarationModel):
    """A job for which `when` holds is refused."""

    when: JobCheck
    path: FieldPath
    message: Annotated[str, Field(min_length=1, max_length=512)]


class DeclaredValidation(DeclarationModel):
    """What the webhook refuses."""

    immutable: Annotated[tuple[FieldPath, ...], Field(max_length=_MAX_LIST)] = ()
    """Fields that cannot change unless the job is suspended."""
    refused: Annotated[tuple[RefusalRule, ...], Field(max_length=_MAX_LIST)] = ()


class DeclaredPods(DeclarationModel):
    """How the pods of a job are found."""

    labels: dict[str, str | FieldPath]
    """Labels of the pods with their values, or the paths to them in the job."""

    @field_validator("labels", mode="before")
    @classmethod
    def _compile(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        return {key: JobPath(text) if str(text).startswith("$") else text for key, text in value.items()}


class ParentKind(DeclarationModel):
    """A kind whose objects own jobs of this kind, which then are not queued themselves."""

    group: str
    kind: Annotated[str, Field(pattern=_KIND)]


class DeclarationSpec(DeclarationModel):
    """What is to be known of the kind."""

    resource: DeclaredResource
    hold: Hold = Hold.SUSPEND
    resizable: bool = False
    dispatched: bool = True
    """Whether workers can run it for the hub."""
    feature_gate: str = ""
    suspend: SuspendField | None = None
    managed_by: ManagedByField | None = None
    pod_sets: tuple[DeclaredPodSet, ...]
    priority_class: Query | None = None
    finished: Annotated[tuple[FinishRule, ...], Field(max_length=_MAX_LIST)] = ()
    active: JobCheck | None = None
    """Whether the job still has pods; without it, a job is active until it is suspended or has ended."""
    stopped: JobCheck | None = None
    """Whether the controllers of the kind have stopped a suspended job, of which no new pods are to be expected."""
    pods_ready: JobCheck | None = None
    """Holds together with `ready` of each pod set."""
    remote: RemoteRules = RemoteRules()
    status: StatusRules = StatusRules()
    validation: DeclaredValidation = DeclaredValidation()
    pods: DeclaredPods | None = None
    parents: Annotated[tuple[ParentKind, ...], Field(max_length=_MAX_LIST)] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problems = list(self._problems())
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        if self.hold is Hold.SUSPEND and self.suspend is None:
            yield f"suspend: needed with hold {Hold.SUSPEND}"
        if self.hold is not Hold.SUSPEND and self.suspend is not None:
            yield f"suspend: needs hold {Hold.SUSPEND}, found {self.hold}"
        if not 1 <= len(self.pod_sets) <= MAX_POD_SETS:  # pydantic would count those without a mistake
            yield f"podSets: expected 1 to {MAX_POD_SETS}, found {len(self.pod_sets)}"
        for index, path in enumerate(self.remote.forwarded):
            for field, other in self._held_fields():
                if _overlap(path.keys or (), other.keys or ()):
                    yield f"remote.forwarded[{index}]: {path} cannot be forwarded, it is part of {field}"
        fixed = Counter(each.name for each in self.pod_sets if each.name_path is None)
        for name, count in fixed.items():
            if count > 1:
                yield f"podSets: {count} have the name {name}"

    def _held_fields(self) -> Iterator[tuple[str, JobPath]]:
        """The fields that quota or the manager decides about."""
        if self.suspend is not None:
            yield "suspend", self.suspend.path
        if self.managed_by is not None:
            yield "managedBy", self.managed_by.path
        for index, pod_set in enumerate(self.pod_sets):
            if pod_set.for_each is not None:
                yield f"podSets[{index}].forEach", pod_set.for_each
                continue
            yield f"podSets[{index}].template", pod_set.template
            for path in pod_set.count.paths:
                yield f"podSets[{index}].count", path


def _overlap(one: Keys, other: Keys) -> bool:
    """Whether one of the fields contains the other, or is it."""
    length = min(len(one), len(other))
    return length > 0 and one[:length] == other[:length]


class DeclarationName(DeclarationModel):
    """The metadata of a declaration."""

    name: str
    """The framework, as in `integrations.frameworks` of the Configuration."""

    @field_validator("name")
    @classmethod
    def _is_framework(cls, value: str) -> str:
        if not _FRAMEWORK.fullmatch(value):
            raise ValueError("expected the name of a framework such as example.com/widget")
        return value


class JobKindDeclaration(DeclarationModel):
    """One document."""

    api_version: Literal["multikueue.io/v1alpha1"]
    kind: Literal["JobKind"]
    metadata: DeclarationName
    spec: DeclarationSpec
