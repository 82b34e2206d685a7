# SPDX-License-Identifier: Apache-2.0
"""Device classes and templates of claims, from objects of `resource.k8s.io/v1` (`docs/spec/engine.md §2.3`)."""

from __future__ import annotations

from typing import Final

from multikueue.core.printable import excerpt
from multikueue.engine.decode import fields
from multikueue.engine.decode.fields import Json, Source
from multikueue.engine.devices.claims import ClaimTemplate, DeviceClass, DeviceRequest

_COUNTED_MODE: Final = "ExactCount"
_FIRST_AVAILABLE: Final = "only requests of exactly one class are counted, not the first available of several"
_OLDER_VERSION: Final = "it has the form of an older version of resource.k8s.io than v1"


def device_class(source: Source) -> DeviceClass:
    """A DeviceClass."""
    data = fields.read(source)
    return DeviceClass(
        fields.name_of(data),
        created=fields.moment(fields.mapping(data, "metadata"), "creationTimestamp"),
        extended_resource=fields.text(fields.mapping(data, "spec"), "extendedResourceName"),
    )


def claim_template(source: Source) -> ClaimTemplate:
    """A ResourceClaimTemplate; what it requests besides counted devices is a problem of the request."""
    data = fields.read(source)
    claim = fields.mapping(fields.mapping(data, "spec"), "spec")
    requests = fields.items(fields.mapping(claim, "devices"), "requests")
    created = fields.moment(fields.mapping(data, "metadata"), "creationTimestamp")
    return ClaimTemplate(fields.key_of(data), tuple(map(_request, requests)), created)


def _request(source: Json) -> DeviceRequest:
    name = fields.text(source, "name")
    if source.get("exactly") is None:
        older = "deviceClassName" in source
        return DeviceRequest(name=name, problem=_OLDER_VERSION if older else _FIRST_AVAILABLE)
    exactly = fields.mapping(source, "exactly")
    mode = fields.text(exactly, "allocationMode") or _COUNTED_MODE
    free = exactly.get("adminAccess") is True
    count = fields.whole(exactly, "count", 0) or 1  # as an API server sets it
    problem = ""
    if not free and mode != _COUNTED_MODE:
        problem = f"allocationMode {excerpt(mode)} cannot be counted"
    elif not free and count < 0:
        problem = f"{count} is no number of devices"
    return DeviceRequest(
        name=name,
        device_class=fields.text(exactly, "deviceClassName"),
        count=count,
        free=free,
        problem=problem,
    )
