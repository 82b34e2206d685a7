# SPDX-License-Identifier: Apache-2.0
"""A Workload with quota and one provisioning check, its config, and what an autoscaler answers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from multikueue.api.constants import CheckState
from multikueue.api.objects import JsonObject
from multikueue.provisioning import requests
from multikueue.provisioning.decision import ProvisioningDecision, ProvisioningFacts, decide
from multikueue.provisioning.settings import ProvisioningSettings

CHECK = "prov"
SETTINGS = ProvisioningSettings(class_name="check-capacity.autoscaling.x-k8s.io")
TIME = "2026-01-01T12:00:00Z"


def config(name: str = "config", **spec: Any) -> JsonObject:
    """A ProvisioningRequestConfig."""
    return {"metadata": {"name": name}, "spec": {"provisioningClassName": SETTINGS.class_name, **spec}}


def pod_set(name: str = "main", *, count: int = 1, requests: dict[str, str] | None = None, **spec: Any) -> JsonObject:
    """A pod set of one container."""
    resources = {"requests": requests or {"cpu": "1"}}
    return {
        "name": name,
        "count": count,
        "template": {"spec": {"containers": [{"name": "c", "image": "none", "resources": resources}], **spec}},
    }


def condition(kind: str, *, value: bool = True, message: str = "") -> JsonObject:
    """One condition."""
    return {
        "type": kind,
        "status": "True" if value else "False",
        "reason": kind,
        "message": message,
        "lastTransitionTime": TIME,
    }


def workload(
    *pod_sets: JsonObject,
    name: str = "w",
    state: CheckState = CheckState.PENDING,
    retry_count: int | None = None,
    annotations: dict[str, str] | None = None,
    conditions: tuple[str, ...] = ("QuotaReserved",),
    counts: dict[str, int] | None = None,
    flavor: str = "default",
    active: bool = True,
) -> JsonObject:
    """A Workload whose quota is reserved."""
    sets = pod_sets or (pod_set(),)
    entry: JsonObject = {"name": CHECK, "state": str(state), "lastTransitionTime": TIME, "message": ""}
    if retry_count is not None:
        entry["retryCount"] = retry_count
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "team", "uid": "w-uid", "annotations": annotations or {}},
        "spec": {"active": active, "podSets": list(sets)},
        "status": {
            "conditions": [condition(kind) for kind in conditions],
            "admission": {
                "podSetAssignments": [
                    {
                        "name": each["name"],
                        "flavors": {"cpu": flavor},
                        "count": (counts or {}).get(each["name"], each["count"]),
                    }
                    for each in sets
                ]
            },
            "admissionChecks": [entry],
        },
    }


def facts(obj: JsonObject | None = None, *, settings: ProvisioningSettings | None = SETTINGS) -> ProvisioningFacts:
    """Nothing was requested yet."""
    return ProvisioningFacts(workload=obj or workload(), checks={CHECK: settings}, requests={})


def created(before: ProvisioningFacts) -> ProvisioningFacts:
    """After its request and the templates of it were created."""
    decision = decide(before)
    stored = {new.body["metadata"]["name"]: stored_request(new.body) for new in decision.create}
    with_request = replace(before, requests={**before.requests, **stored})
    templates = {(missing.body["metadata"]["name"], "pr-uid") for missing in decide(with_request).templates}
    return replace(with_request, templates=before.templates | templates)


def stored_request(body: JsonObject, *, uid: str = "pr-uid") -> JsonObject:
    """A request with a UID."""
    return {**body, "metadata": {**body["metadata"], "uid": uid}}


def answered(
    before: ProvisioningFacts, *conditions: JsonObject, details: dict[str, Any] | None = None, name: str = ""
) -> ProvisioningFacts:
    """After the autoscaler has written these conditions into the request."""
    found = dict(before.requests)
    of = name or next(iter(found))
    found[of] = {**found[of], "status": {"conditions": list(conditions), "provisioningClassDetails": details or {}}}
    return replace(before, requests=found)


def after_answer(*conditions: JsonObject, of: JsonObject | None = None, **settings: Any) -> ProvisioningDecision:
    """What is decided once the autoscaler has written these conditions."""
    return decide(answered(created(facts(of, settings=replace(SETTINGS, **settings))), *conditions))


PROVISIONED = condition(requests.PROVISIONED, message="Capacity is there")
FAILED = condition(requests.FAILED, message="no quota in the cloud")
