# SPDX-License-Identifier: Apache-2.0
"""ProvisioningRequests and their PodTemplates: their names, what we write, and what an autoscaler answers.

An autoscaler is another system: conditions and details of another shape count as absent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from multikueue.api.constants import EPOCH_ANNOTATION, MANAGED_LABEL, MANAGED_LABEL_VALUE, PROVISIONING_PARAMETER_PREFIX
from multikueue.api.objects import JsonObject, controller_of
from multikueue.api.resource import POD_TEMPLATES, PROVISIONING_REQUESTS, WORKLOADS
from multikueue.core.conditions import TRUE, find_in
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt, printable
from multikueue.provisioning.pod_sets import RequestedPodSet
from multikueue.provisioning.settings import ProvisioningSettings

ACCEPTED: Final = "Accepted"
PROVISIONED: Final = "Provisioned"
FAILED: Final = "Failed"
BOOKING_EXPIRED: Final = "BookingExpired"
CAPACITY_REVOKED: Final = "CapacityRevoked"
MAX_PARAMETERS: Final = 100
MAX_PARAMETER_VALUE: Final = 255
_MAX_MESSAGE: Final = 4096  # of an autoscaler's, in the status of each Workload
_MAX_PARAMETER_KEY: Final = 253
_LONGEST: Final = 253
_HASH_LENGTH: Final = 5
_KEPT: Final = _LONGEST - _HASH_LENGTH - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisioningAnswer:
    """What an autoscaler answers: for each condition that is True, its message."""

    true: Mapping[str, str]
    progress: str = ""
    """The message of a Provisioned condition that is not True: when capacity is expected."""
    details: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, request: JsonObject) -> ProvisioningAnswer:
        """What the autoscaler wrote into the status."""
        status = request.get("status")
        status = status if isinstance(status, dict) else {}
        details = status.get("provisioningClassDetails")
        found = {kind: (value, message) for kind, value, message in _conditions(status)}
        value, progress = found.get(PROVISIONED, ("", ""))
        return cls(
            true={kind: message for kind, (value, message) in found.items() if value == TRUE},
            progress="" if value == TRUE else progress,
            details={
                str(name): value
                for name, value in (details if isinstance(details, dict) else {}).items()
                if isinstance(value, str)
            },
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestMark:
    """The labels and annotations of the requests of one assignment; another mark is that of another owner."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    def is_on(self, request: JsonObject, *, any_epoch: bool = False) -> bool:
        """Whether the request was made for this assignment; with `any_epoch`, also for an earlier dispatch of it."""
        metadata = request["metadata"]
        labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
        return all(labels.get(key) == value for key, value in self.labels.items()) and all(
            annotations.get(key) == value
            for key, value in self.annotations.items()
            if not (any_epoch and key == EPOCH_ANNOTATION)
        )


def _conditions(status: JsonObject) -> Iterator[tuple[str, object, str]]:
    conditions = status.get("conditions")
    listed = {"conditions": conditions if isinstance(conditions, list) else []}
    for kind in (ACCEPTED, PROVISIONED, FAILED, BOOKING_EXPIRED, CAPACITY_REVOKED):
        found = find_in(listed, kind)
        if found is not None:
            message = printable(str(found.get("message") or ""), keep="\n")
            cut = message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]} ..."
            yield kind, found.get("status"), cut


def parameters_of(workload: JsonObject, settings: ProvisioningSettings) -> dict[str, str]:
    """The parameters of the config, overlaid with those that the job's user set. Raises `BadInput`."""
    annotations: dict[str, str] = workload["metadata"].get("annotations") or {}
    own = {
        key.removeprefix(PROVISIONING_PARAMETER_PREFIX): value
        for key, value in annotations.items()
        if key.startswith(PROVISIONING_PARAMETER_PREFIX)
    }
    for key, value in own.items():
        annotation = f"annotation {PROVISIONING_PARAMETER_PREFIX}{key}"
        if not key or len(key) > _MAX_PARAMETER_KEY:
            raise BadInput(f"{annotation}: expected the name of a parameter of 1 to {_MAX_PARAMETER_KEY} characters")
        if len(value) > MAX_PARAMETER_VALUE:
            raise BadInput(
                f"{annotation}: expected a value of at most {MAX_PARAMETER_VALUE} characters, found {excerpt(value)}"
                f" of {len(value)}"
            )
    merged = {**settings.parameters, **own}
    if len(merged) > MAX_PARAMETERS:
        raise BadInput(
            f"annotations {PROVISIONING_PARAMETER_PREFIX}*: expected at most {MAX_PARAMETERS} parameters with those of"
            f" the ProvisioningRequestConfig, found {len(merged)}"
        )
    return merged


def request_spec(
    name: str, settings: ProvisioningSettings, parameters: Mapping[str, str], pod_sets: Iterable[RequestedPodSet]
) -> JsonObject:
    """The spec of a request."""
    return {
        "provisioningClassName": settings.class_name,
        **({"parameters": dict(parameters)} if parameters else {}),
        "podSets": [
            {"podTemplateRef": {"name": template_name(name, each.names[0])}, "count": each.count} for each in pod_sets
        ],
    }


def requests_the_same(request: JsonObject, spec: JsonObject) -> bool:
    """Whether a stored request is one for `spec`; fields that we do not write are not compared."""
    stored: JsonObject = request.get("spec") or {}
    pod_sets = [
        {"podTemplateRef": {"name": (each.get("podTemplateRef") or {}).get("name")}, "count": each.get("count")}
        for each in stored.get("podSets") or ()
    ]
    found = stored.get("provisioningClassName"), stored.get("parameters") or {}, pod_sets
    return bool(found == (spec["provisioningClassName"], spec.get("parameters", {}), spec["podSets"]))


def request_body(name: str, workload: JsonObject, spec: JsonObject) -> JsonObject:
    """The request, owned by its Workload."""
    metadata = workload["metadata"]
    owner = {"apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind, "name": metadata["name"]}
    return {
        "apiVersion": PROVISIONING_REQUESTS.api_version,
        "kind": PROVISIONING_REQUESTS.kind,
        "metadata": _metadata(name, metadata["namespace"], owner, metadata["uid"]),
        "spec": spec,
    }


def unowned_request_body(name: str, namespace: str, mark: RequestMark, spec: JsonObject) -> JsonObject:
    """The request on a worker cluster, where its Workload is not; `mark` shows who made it."""
    labels = {MANAGED_LABEL: MANAGED_LABEL_VALUE, **mark.labels}
    metadata = {"name": name, "namespace": namespace, "labels": labels, "annotations": dict(mark.annotations)}
    return {
        "apiVersion": PROVISIONING_REQUESTS.api_version,
        "kind": PROVISIONING_REQUESTS.kind,
        "metadata": metadata,
        "spec": spec,
    }


def template_bodies(request: JsonObject, pod_sets: Iterable[RequestedPodSet]) -> tuple[JsonObject, ...]:
    """The PodTemplates of a request that was stored, owned by it."""
    metadata = request["metadata"]
    owner = {
        "apiVersion": PROVISIONING_REQUESTS.api_version,
        "kind": PROVISIONING_REQUESTS.kind,
        "name": metadata["name"],
    }
    return tuple(
        {
            "apiVersion": POD_TEMPLATES.api_version,
            "kind": POD_TEMPLATES.kind,
            "metadata": _metadata(
                template_name(metadata["name"], each.names[0]), metadata["namespace"], owner, metadata["uid"]
            ),
            "template": each.template,
        }
        for each in pod_sets
    )


def _metadata(name: str, namespace: str, owner: JsonObject, uid: str) -> JsonObject:
    return {
        "name": name,
        "namespace": namespace,
        "labels": {MANAGED_LABEL: MANAGED_LABEL_VALUE},
        "ownerReferences": [{**owner, "uid": uid, "controller": True}],
    }


def workload_owner(request: JsonObject) -> tuple[str, str] | None:
    """Name and UID of the Workload that a request of ours belongs to; None for a request of others."""
    labels: JsonObject = request["metadata"].get("labels") or {}
    owner = controller_of(request)
    if labels.get(MANAGED_LABEL) != MANAGED_LABEL_VALUE or owner is None or owner.get("kind") != WORKLOADS.kind:
        return None
    group = str(owner.get("apiVersion", "")).partition("/")[0]
    return (str(owner["name"]), str(owner["uid"])) if group == WORKLOADS.group else None


def request_name(workload: str, check: str, attempt: int) -> str:
    """The ProvisioningRequest of one attempt, counted from 1."""
    return _limited(f"{workload}-{check}-{attempt}")


def template_name(request: str, pod_set: str) -> str:
    """The PodTemplate of a pod set of that request."""
    return _limited(f"ppt-{request}-{pod_set}")


def _limited(name: str) -> str:
    if len(name) <= _LONGEST:
        return name
    # Two long names that begin alike must differ; a dot before the hyphen would not be a valid name.
    digest = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()
    return f"{name[:_KEPT].rstrip('.')}-{digest[:_HASH_LENGTH]}"
