# SPDX-License-Identifier: Apache-2.0
"""The kinds that a manager follows only if its Configuration needs them."""

from __future__ import annotations

from typing import Final

import orjson

from manager.cache.followed_kind import FollowedKind
from manager.dispatch.transport.cluster_profiles import PROFILE_GATE
from multikueue.api.configuration import Configuration
from multikueue.api.meta import JsonObject
from multikueue.api.resource import CLUSTER_PROFILES, DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES
from multikueue.kube.cache.packing import packed

_KEPT: Final = ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")
_COUNTED: Final = ("deviceClassName", "allocationMode", "count", "adminAccess")
_CLAIMS: Final = "devices that pods claim cannot be counted, so that no such job is admitted"


def configured_kinds(configuration: Configuration, *, namespace: str) -> tuple[FollowedKind, ...]:
    """Those of this Configuration; `namespace` is the manager's own.

    The CRD of ClusterProfiles is seldom installed. Classes of devices and claim templates are read where devices count.
    """
    profiles = (CLUSTER_PROFILES,) if configuration.gate(PROFILE_GATE) else ()
    devices = (DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES) if configuration.counts_devices else ()
    return (
        *(FollowedKind(resource=resource, namespace=namespace) for resource in profiles),
        *(FollowedKind(resource=resource, optional=_CLAIMS, shrink=_counted) for resource in devices),
    )


def _counted(obj: JsonObject) -> bytes:
    """The object without selectors and configuration, which tenants may make large, and which nothing here reads."""
    spec: JsonObject = obj.get("spec") or {}
    kept: JsonObject = {"extendedResourceName": spec["extendedResourceName"]} if "extendedResourceName" in spec else {}
    claim: JsonObject = spec.get("spec") or {}
    requests = (claim.get("devices") or {}).get("requests") or ()
    if requests:
        kept["spec"] = {"devices": {"requests": [_request(each) for each in requests]}}
    metadata = {name: obj["metadata"][name] for name in _KEPT if name in obj["metadata"]}
    return packed(orjson.dumps({**obj, "metadata": metadata, "spec": kept}))


def _request(request: JsonObject) -> JsonObject:
    exactly: JsonObject | None = request.get("exactly")
    if exactly is None:
        return {"name": request.get("name")}
    return {"name": request.get("name"), "exactly": {key: exactly[key] for key in _COUNTED if key in exactly}}
