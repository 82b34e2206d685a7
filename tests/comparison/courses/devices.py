# SPDX-License-Identifier: Apache-2.0
"""The course of Jobs whose pods claim devices, which count as a resource of the quota."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from multikueue.api.resource import CLUSTER_QUEUES, DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES
from tests.comparison.federation import ComparedFederation
from tests.comparison.hub import NAMESPACE, ComparedHub, Object
from tests.comparison.looks import Look

CONFIGURATION: Final = {
    "resources": {
        "deviceClassMappings": [
            {"name": "gpus", "deviceClassNames": ["gpu.example.com", "large.example.com"]},
            {"name": "nics", "deviceClassNames": ["nic.example.com"]},
        ]
    },
}
KUEUE_GATES: Final = {"DynamicResourceAllocation": True}
_API: Final = "resource.k8s.io/v1"


async def devices(hub: ComparedHub) -> AsyncIterator[Look]:
    """Claims that can be counted, and claims that cannot."""
    for name in ("gpu.example.com", "large.example.com", "nic.example.com", "other.example.com"):
        await _class(hub, name)
    await _template(hub, "one", _exactly("gpu.example.com"))
    await _template(hub, "three", _exactly("gpu.example.com", count=3))
    await _template(hub, "both", _exactly("large.example.com", count=2), _exactly("nic.example.com"))
    await hub.queue(resourceGroups=_quota(cpu="100", gpus="20", nics="10"))
    yield Look("there is a queue")
    await _submit(hub, "a", "one")
    yield Look("a claims one device")
    await _submit(hub, "b", "three", parallelism=2)
    yield Look("b claims three for each of two pods")
    await _submit(hub, "c", "both")
    yield Look("c claims devices of two classes")
    await _submit(hub, "d", "one", "one", "three")
    yield Look("d has three claims")
    both = [_container("main", claim="x0"), _container("other", claim="x0")]
    await hub.submit("e", template=_claims("one") | {"containers": both})
    yield Look("two containers of e use the same claim")
    await hub.submit("f", template={"resourceClaims": [{"name": "x", "resourceClaimName": "own"}]})
    yield Look("f has a claim that exists")
    await _submit(hub, "g", "missing")
    yield Look("g names a template that is missing")
    await _template(hub, "missing", _exactly("gpu.example.com"))
    yield Look("it is there now", 5)
    await _template(hub, "unmapped", _exactly("other.example.com"))
    await _submit(hub, "h", "unmapped")
    yield Look("h claims a device of a class without a mapping")
    await _template(hub, "all", {"deviceClassName": "gpu.example.com", "allocationMode": "All"})
    await _submit(hub, "i", "all")
    yield Look("i claims all devices")
    await _template(hub, "admin", {"deviceClassName": "gpu.example.com", "adminAccess": True})
    await _submit(hub, "j", "admin")
    yield Look("j claims a device for administration")
    await _template(hub, "first", None)
    await _submit(hub, "k", "first")
    yield Look("k claims the first of some")
    chosen = {"selectors": [{"cel": {"expression": "device.driver == 'example.com'"}}]}
    await _template(hub, "chosen", _exactly("gpu.example.com") | chosen)
    await _submit(hub, "l", "chosen")
    yield Look("l has a selector")
    await _template(hub, "many", _exactly("gpu.example.com", count=30))
    await _submit(hub, "m", "many")
    yield Look("m claims more than there is")
    await hub.change(CLUSTER_QUEUES, "q", {"spec": {"resourceGroups": _quota(cpu="100", gpus="100", nics="10")}})
    yield Look("there is more quota")
    await _template(hub, "nothing", _exactly("none.example.com"))
    await _submit(hub, "n", "nothing")
    yield Look("n claims a device of a class that is missing")
    await _template(hub, "empty")
    await _submit(hub, "o", "empty")
    yield Look("the template of o requests nothing")
    await _submit(hub, "p", "one", "all")
    yield Look("one of the claims of p cannot be counted")


async def dispatched_devices(both: ComparedFederation) -> AsyncIterator[Look]:
    """Jobs that claim devices are sent to a worker cluster, which has their template later, and no more devices."""
    for each in (both.hub, both.worker):
        await _class(each, "gpu.example.com")
        await each.change(CLUSTER_QUEUES, "q", {"spec": {"resourceGroups": _quota(cpu="40", gpus="8", nics="3")}})
    await _template(both.hub, "two", _exactly("gpu.example.com", count=2))
    yield Look("the cluster is connected", 3)
    await both.submit("a", template=_claims("two"))
    yield Look("a is created, and its template is not on the worker", 3)
    await _template(both.worker, "two", _exactly("gpu.example.com", count=2))
    await both.pods("a", "Running")
    yield Look("it is there now, and a runs")
    await both.worker.change(CLUSTER_QUEUES, "q", {"spec": {"resourceGroups": _quota(cpu="40", gpus="3", nics="3")}})
    await both.submit("b", template=_claims("two"))
    yield Look("there are no devices for b there", 3)
    await both.pods("a", "Succeeded")
    yield Look("a has succeeded there", 3)
    await both.pods("b", "Running")
    yield Look("b runs there", 2)


async def _class(hub: ComparedHub, name: str) -> None:
    await hub.client.create(
        DEVICE_CLASSES, {"apiVersion": _API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": {}}
    )


async def _template(hub: ComparedHub, name: str, *requests: Object | None) -> None:
    wanted = [
        {"name": f"r{number}", "exactly": request}
        if request is not None
        else {"name": f"r{number}", "firstAvailable": [{"name": "x", "deviceClassName": "gpu.example.com"}]}
        for number, request in enumerate(requests)
    ]
    body = {
        "apiVersion": _API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"spec": {"devices": {"requests": wanted}}},
    }
    await hub.client.create(RESOURCE_CLAIM_TEMPLATES, body, namespace=NAMESPACE)


def _exactly(name: str, *, count: int = 1) -> Object:
    return {"deviceClassName": name, "allocationMode": "ExactCount", "count": count}


async def _submit(hub: ComparedHub, name: str, *templates: str, parallelism: int = 1) -> None:
    await hub.submit(name, parallelism=parallelism, template=_claims(*templates))


def _claims(*templates: str) -> Object:
    return {
        "resourceClaims": [
            {"name": f"x{number}", "resourceClaimTemplateName": template} for number, template in enumerate(templates)
        ]
    }


def _container(name: str, *, claim: str) -> Object:
    return {"name": name, "image": "busybox", "resources": {"requests": {"cpu": "1"}, "claims": [{"name": claim}]}}


def _quota(**amounts: str) -> list[Object]:
    flavor = {
        "name": "default",
        "resources": [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()],
    }
    return [{"coveredResources": list(amounts), "flavors": [flavor]}]
