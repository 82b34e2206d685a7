# SPDX-License-Identifier: Apache-2.0
"""Pods that request more than quota is reserved for.

Whoever may change pods can remove a gate, write any label and annotation, and resize a pod. So what may run is decided
by the requests of the pod and by the Workload: its pod set, or what its admission counted for one pod of it, if that is
more. The second differs where a LimitRange or a RuntimeClass has changed since.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from multikueue.api.objects import JsonObject
from multikueue.core.errors import BadInput
from multikueue.core.parsing import count_of
from multikueue.core.quantity import Quantity
from multikueue.engine.decode.pods import Shapes
from multikueue.engine.pod_requests import adjust, pod_request
from multikueue.engine.workloads import PodShape

_CLAIMS: Final = "ResourceClaim"
"""What the amounts of claims are named by; a resource of such a name would stand for claims, and is left out."""
_ZERO: Final = Quantity.parse("0")


def surplus(pod: JsonObject, pod_set: JsonObject, status: JsonObject) -> str:
    """What the pod requests beyond its pod set; empty if nothing. `status` is that of the Workload."""
    shapes = Shapes(limit=2)
    try:
        found = requests_of(pod, shapes)
        wanted = requests_of(pod_set.get("template") or {}, shapes)
        count, counted = _counted(str(pod_set.get("name") or ""), status)
    except BadInput as error:
        return str(error)
    above = [
        name
        for name in sorted(found)
        if found[name] > wanted.get(name, _ZERO) and found[name] * max(count, 1) > counted.get(name, _ZERO)
    ]
    return ", ".join(f"{name} {found[name]} instead of {wanted.get(name, _ZERO)}" for name in above)


def growth(pod: JsonObject, old: JsonObject) -> str:
    """What the pod requests beyond what it requested before; empty if nothing."""
    shapes = Shapes(limit=2)
    try:
        found, before = requests_of(pod, shapes), requests_of(old, shapes)
    except BadInput as error:
        return str(error)
    above = [name for name in sorted(found) if found[name] > before.get(name, _ZERO)]
    return ", ".join(f"{name} {found[name]} instead of {before.get(name, _ZERO)}" for name in above)


def requests_of(pod: JsonObject, shapes: Shapes) -> Mapping[str, Quantity]:
    """What a pod, or a pod template, requests, with its claims of devices. Raises `BadInput`."""
    shape = shapes.of(pod.get("spec") or {})
    return with_claims(pod_request(adjust(shape, {}, ())), shape)


def with_claims(requests: Mapping[str, Quantity], shape: PodShape) -> Mapping[str, Quantity]:
    """These requests, and how many claims the pod has of each template, or of each name: so they compare alike."""
    found = {name: amount for name, amount in requests.items() if not name.startswith(_CLAIMS)}
    for claim in shape.claims:
        if claim.template or claim.claim:
            name = f"{_CLAIMS}Template {claim.template}" if claim.template else f"{_CLAIMS} {claim.claim}"
            found[name] = found.get(name, _ZERO) + Quantity.of(1)
    return found


def _counted(name: str, status: JsonObject) -> tuple[int, Mapping[str, Quantity]]:
    """For how many pods of a pod set quota is counted, and how much. Raises `BadInput`."""
    for each in (status.get("admission") or {}).get("podSetAssignments") or ():
        if each.get("name") == name:
            usage: JsonObject = each.get("resourceUsage") or {}
            count = count_of(each, "count", at=f"podSetAssignments[{name}]", default=1)
            return count, {resource: Quantity.parse(amount) for resource, amount in usage.items()} if count else {}
    return 1, {}
