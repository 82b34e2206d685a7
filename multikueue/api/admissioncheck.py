# SPDX-License-Identifier: Apache-2.0
"""AdmissionCheck: a condition that is checked after quota is reserved (`docs/spec/kueue-api.md §1.6`)."""

from typing import Annotated

from pydantic import Field

from multikueue.api.meta import Conditions, KubeObject, WireModel
from multikueue.api.resource import ADMISSION_CHECKS
from multikueue.api.schema import DNS_LABEL, DNS_SUBDOMAIN, IMMUTABLE, KIND_NAME, Schema


class ParametersReference(WireModel):
    """The object with the parameters of the check's controller."""

    api_group: Annotated[str, Schema(min_length=1, max_length=253, pattern=DNS_SUBDOMAIN)]
    kind: Annotated[str, Schema(min_length=1, max_length=63, pattern=KIND_NAME)]
    name: Annotated[str, Schema(min_length=1, max_length=63, pattern=DNS_LABEL)]


class AdmissionCheckSpec(WireModel):
    """The controller of the check, and its parameters."""

    controller_name: Annotated[str, Schema(min_length=1, max_length=253, rules=(IMMUTABLE,), required=True)] = ""
    parameters: ParametersReference | None = None


class AdmissionCheckStatus(WireModel):
    """Whether the check can be used."""

    conditions: Conditions = ()


class AdmissionCheck(KubeObject):
    """A check that a controller performs before a workload is admitted."""

    RESOURCE = ADMISSION_CHECKS

    spec: AdmissionCheckSpec = Field(default_factory=AdmissionCheckSpec)
    status: AdmissionCheckStatus = Field(default_factory=AdmissionCheckStatus)
