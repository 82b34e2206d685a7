# SPDX-License-Identifier: Apache-2.0
"""What pods claim of devices: claims of a pod, the templates that they are made from, and classes of devices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from multikueue.core.keys import Key

CLASS_RESOURCES: Final = "deviceclass.resource.kubernetes.io/"
"""Pods may request the devices of any class as this resource and the name of the class."""


@dataclass(frozen=True, slots=True)
class PodClaim:
    """A claim of each pod of a pod set: made from a template, or one that exists and is shared by name.

    `of_pod` is whether the pod has it; a container may name one that it does not have.
    """

    name: str
    template: str = ""
    claim: str = ""
    of_pod: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    """One request of a claim: `count` devices of a class.

    `free`: it gives access for administration, and takes no device from others. `problem`: why it cannot be counted.
    """

    name: str
    device_class: str = ""
    count: int = 1
    free: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ClaimTemplate:
    """A ResourceClaimTemplate; it is never changed, but may be deleted and made anew."""

    key: Key
    requests: tuple[DeviceRequest, ...]
    created: datetime | None = None

    def devices(self) -> Mapping[str, int]:
        """How many devices of each class a claim takes from others."""
        found: Counter[str] = Counter()
        for request in self.requests:
            if not request.free and not request.problem and request.count > 0:
                found[request.device_class] += request.count
        return found


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A DeviceClass; pods may request its devices as `extended_resource`, if that is set."""

    name: str
    created: datetime | None = None
    extended_resource: str = ""


@dataclass(frozen=True, slots=True)
class DeviceMapping:
    """The resource that devices of these classes count as; `sources`: not by their number."""

    resource: str
    classes: tuple[str, ...]
    sources: bool = False
