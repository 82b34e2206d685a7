# SPDX-License-Identifier: Apache-2.0
"""Which fields of built-in kinds may change after the creation, and which may not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import pytest

from devcluster.apiserver.registry.resources import Registry
from tests.conformance.conftest import Judge
from tests.conformance.harness import Case, Cases, Exchange, Side
from tests.conformance.kinds.kind_objects import CLAIM, OBJECTS, TARGET, TEMPLATE, Document

pytestmark = pytest.mark.binaries

CASES = Cases("immutable fields")

_STRUCT: Final = re.compile(r"\{.*\}")
_PLAIN: Final = ("parameters", "nodeTopology")
"""Fields whose values look the same everywhere."""
_MERGE: Final = "application/merge-patch+json"
_CLASSES: Final = ("storage.k8s.io", "storageclasses")
_ATTRIBUTES: Final = ("storage.k8s.io", "volumeattributesclasses")
_DRIVERS: Final = ("storage.k8s.io", "csidrivers")
_ATTACHMENTS: Final = ("storage.k8s.io", "volumeattachments")
_CAPACITIES: Final = ("storage.k8s.io", "csistoragecapacities")
_DRIVER_NODES: Final = ("storage.k8s.io", "csinodes")
_RUNTIMES: Final = ("node.k8s.io", "runtimeclasses")
_INGRESSES: Final = ("networking.k8s.io", "ingressclasses")
_ADDRESSES: Final = ("networking.k8s.io", "ipaddresses")
_RANGES: Final = ("networking.k8s.io", "servicecidrs")
_SLICES: Final = ("discovery.k8s.io", "endpointslices")
_VOLUMES: Final = ("", "persistentvolumes")
_CLAIMS: Final = ("", "persistentvolumeclaims")
_NODES: Final = ("", "nodes")
_DEVICE_CLAIMS: Final = ("resource.k8s.io", "resourceclaims")
_DEVICE_TEMPLATES: Final = ("resource.k8s.io", "resourceclaimtemplates")
_DEVICES: Final = ("resource.k8s.io", "resourceslices")
_AUTOSCALERS: Final = ("autoscaling", "horizontalpodautoscalers")
_CONTROLLERS: Final = ("", "replicationcontrollers")

_CSI: Final[Document] = {"driver": "d.example.com", "volumeHandle": "h"}
_BY_DRIVER: Final[Document] = {"spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "csi": _CSI}}
_BLANK_CLAIM: Final[Document] = {"spec": CLAIM}
_BOUND: Final[Document] = {
    "status": {"phase": "Bound", "capacity": {"storage": "0.5Gi"}, "accessModes": ["ReadWriteOnce"]}
}
_MODEL: Final[Document] = {
    "requests": [{"name": "one", "exactly": {"deviceClassName": "other", "allocationMode": "All"}}]
}
_PARAMETERS: Final[Document] = {"provisioner": "example.com/p", "parameters": {"a": "b"}}
_TWO: Final[Document] = {"spec": {"cidrs": ["10.202.0.0/16", "fd00:2::/108"]}}
_SMALL: Final[Document] = {
    "status": {"phase": "Bound", "capacity": {"storage": "256Mi"}, "accessModes": ["ReadWriteOnce"]}
}
_SECRET: Final[Document] = {"controllerExpandSecretRef": {"name": "s", "namespace": "n"}}
_OF_SECRET: Final[Document] = {"spec": {**_BY_DRIVER["spec"], "csi": {**_CSI, **_SECRET}}}
_ON_HOST: Final[Document] = {
    "drivers": [{"name": "d.example.com", "nodeID": "n", "allocatable": {"count": 3}, "topologyKeys": ["a/b"]}]
}


_LIMITED: Final[Document] = {"spec": {"resources": {"limits": {"storage": "2Gi"}}}}
_ATTRIBUTED: Final[Document] = {"spec": {**CLAIM, "volumeAttributesClassName": "c"}}


def _wanted(amount: str) -> Document:
    return {"spec": {"resources": {"requests": {"storage": amount}}}}


def _on_host(**more: Any) -> Document:
    return {"spec": {"drivers": [{**_ON_HOST["drivers"][0], **more}]}}


def _affinity(key: str) -> Document:
    term = {"matchExpressions": [{"key": key, "operator": "Exists"}]}
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}


@dataclass(frozen=True, slots=True)
class _Change:
    """One patch of an object; without contents the object is that of `OBJECTS`."""

    kind: tuple[str, str]
    patch: Document
    contents: Document | None = None
    status: Document | None = None
    """A patch of the status, sent before."""
    subresource: str = ""


_CHANGES: Final[dict[str, _Change]] = {
    "the parameters of a storage class": _Change(_CLASSES, {"parameters": {"a": "b"}}),
    "a parameter of a storage class": _Change(_CLASSES, {"parameters": {"a": "c"}}, _PARAMETERS),
    "the same parameters of a storage class": _Change(_CLASSES, {"parameters": {"a": "b"}}, _PARAMETERS),
    "empty parameters of a storage class": _Change(_CLASSES, {"parameters": {}}),
    "the provisioner of a storage class": _Change(_CLASSES, {"provisioner": "example.com/q"}),
    "the reclaim policy of a storage class": _Change(_CLASSES, {"reclaimPolicy": "Retain"}),
    "the binding mode of a storage class": _Change(_CLASSES, {"volumeBindingMode": "WaitForFirstConsumer"}),
    "everything of a storage class": _Change(
        _CLASSES,
        {
            "parameters": {"a": "b"},
            "provisioner": "example.com/q",
            "reclaimPolicy": "Retain",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    ),
    "the mount options of a storage class": _Change(_CLASSES, {"mountOptions": ["ro"]}),
    "the expansion of a storage class": _Change(_CLASSES, {"allowVolumeExpansion": True}),
    "the topologies of a storage class": _Change(
        _CLASSES, {"allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}]}
    ),
    "the parameters of an attributes class": _Change(_ATTRIBUTES, {"parameters": {"a": "c"}}),
    "the driver of an attributes class": _Change(_ATTRIBUTES, {"driverName": "e.example.com"}),
    "everything of an attributes class": _Change(
        _ATTRIBUTES, {"driverName": "e.example.com", "parameters": {"a": "c"}}
    ),
    "the attachment that a driver requires": _Change(_DRIVERS, {"spec": {"attachRequired": False}}),
    "the storage capacity of a driver": _Change(_DRIVERS, {"spec": {"storageCapacity": True}}),
    "the group policy of a driver": _Change(_DRIVERS, {"spec": {"fsGroupPolicy": "File"}}),
    "the lifecycles of a driver": _Change(_DRIVERS, {"spec": {"volumeLifecycleModes": ["Ephemeral"]}}),
    "the handler of a runtime class": _Change(_RUNTIMES, {"handler": "other"}),
    "the overhead of a runtime class": _Change(_RUNTIMES, {"overhead": {"podFixed": {"cpu": "1"}}}),
    "the controller of an ingress class": _Change(_INGRESSES, {"spec": {"controller": "example.com/d"}}),
    "the source of a volume": _Change(_VOLUMES, {"spec": {"hostPath": {"path": "/y"}}}),
    "another source of a volume": _Change(
        _VOLUMES, {"spec": {"hostPath": None, "nfs": {"server": "s.example.com", "path": "/x"}}}
    ),
    "the handle of a volume": _Change(_VOLUMES, {"spec": {"csi": {"volumeHandle": "i"}}}, _BY_DRIVER),
    "a secret to expand a volume": _Change(_VOLUMES, {"spec": {"csi": _SECRET}}, _BY_DRIVER),
    "another secret to expand a volume": _Change(
        _VOLUMES, {"spec": {"csi": {"controllerExpandSecretRef": {"name": "t"}}}}, _OF_SECRET
    ),
    "no secret to expand a volume": _Change(
        _VOLUMES, {"spec": {"csi": {"controllerExpandSecretRef": None}}}, _OF_SECRET
    ),
    "the newer label in the affinity of a volume": _Change(
        _VOLUMES,
        {"spec": _affinity("topology.kubernetes.io/zone")},
        {"spec": {**_BY_DRIVER["spec"], **_affinity("failure-domain.beta.kubernetes.io/zone")}},
    ),
    "the older label in the affinity of a volume": _Change(
        _VOLUMES,
        {"spec": _affinity("failure-domain.beta.kubernetes.io/zone")},
        {"spec": {**_BY_DRIVER["spec"], **_affinity("topology.kubernetes.io/zone")}},
    ),
    "the attributes class of a volume": _Change(_VOLUMES, {"spec": {"volumeAttributesClassName": "c"}}, _BY_DRIVER),
    "the mode of a volume": _Change(_VOLUMES, {"spec": {"volumeMode": "Block"}}, _BY_DRIVER),
    "the affinity of a volume": _Change(
        _VOLUMES, {"spec": _affinity("b")}, {"spec": {**_BY_DRIVER["spec"], **_affinity("a")}}
    ),
    "a new affinity of a volume": _Change(_VOLUMES, {"spec": _affinity("b")}, _BY_DRIVER),
    "no affinity of a volume": _Change(
        _VOLUMES, {"spec": {"nodeAffinity": None}}, {"spec": {**_BY_DRIVER["spec"], **_affinity("a")}}
    ),
    "the capacity of a volume": _Change(_VOLUMES, {"spec": {"capacity": {"storage": "9Gi"}}}),
    "the access modes of a volume": _Change(_VOLUMES, {"spec": {"accessModes": ["ReadOnlyMany"]}}),
    "the class of a volume": _Change(_VOLUMES, {"spec": {"storageClassName": "c"}}),
    "the claim of a volume": _Change(_VOLUMES, {"spec": {"claimRef": {"name": "d"}}}),
    "the mount options of a volume": _Change(_VOLUMES, {"spec": {"mountOptions": ["ro"]}}),
    "the source and mode of a volume": _Change(_VOLUMES, {"spec": {"hostPath": {"path": "/y"}, "volumeMode": "Block"}}),
    "the phase of a volume": _Change(_VOLUMES, {"status": {"phase": "Bound"}}, subresource="/status"),
    "the access modes of a claim": _Change(_CLAIMS, {"spec": {"accessModes": ["ReadOnlyMany"]}}, _BLANK_CLAIM),
    "the class of a claim": _Change(_CLAIMS, {"spec": {"storageClassName": "c"}}, _BLANK_CLAIM),
    "another class of a claim": _Change(
        _CLAIMS, {"spec": {"storageClassName": "c"}}, {"spec": {**CLAIM, "storageClassName": "b"}}
    ),
    "an empty class of a claim": _Change(_CLAIMS, {"spec": {"storageClassName": ""}}, _BLANK_CLAIM),
    "the class of a bound claim": _Change(_CLAIMS, {"spec": {"storageClassName": "c"}}, _BLANK_CLAIM, _BOUND),
    "the volume of a claim": _Change(_CLAIMS, {"spec": {"volumeName": "v"}}, _BLANK_CLAIM),
    "another volume of a claim": _Change(
        _CLAIMS, {"spec": {"volumeName": "w"}}, {"spec": {**CLAIM, "volumeName": "v"}}
    ),
    "no volume of a claim": _Change(_CLAIMS, {"spec": {"volumeName": None}}, {"spec": {**CLAIM, "volumeName": "v"}}),
    "the mode of a claim": _Change(_CLAIMS, {"spec": {"volumeMode": "Block"}}, _BLANK_CLAIM),
    "the selector of a claim": _Change(_CLAIMS, {"spec": {"selector": {"matchLabels": {"a": "b"}}}}, _BLANK_CLAIM),
    "the source of a claim": _Change(
        _CLAIMS, {"spec": {"dataSource": {"kind": "PersistentVolumeClaim", "name": "other"}}}, _BLANK_CLAIM
    ),
    "the request of a pending claim": _Change(_CLAIMS, _wanted("2Gi"), _BLANK_CLAIM),
    "the limit of a claim": _Change(_CLAIMS, _LIMITED, _BLANK_CLAIM),
    "the limit of a bound claim": _Change(_CLAIMS, _LIMITED, _BLANK_CLAIM, _BOUND),
    "less for a bound claim": _Change(_CLAIMS, _wanted("1Mi"), _BLANK_CLAIM, _BOUND),
    "less for a claim that has less": _Change(_CLAIMS, _wanted("300Mi"), _BLANK_CLAIM, _SMALL),
    "as much as it has for a claim": _Change(_CLAIMS, _wanted("256Mi"), _BLANK_CLAIM, _SMALL),
    "less for a pending claim": _Change(_CLAIMS, _wanted("1Mi"), _BLANK_CLAIM),
    "the same amount for a claim": _Change(_CLAIMS, _wanted("512Mi"), _BLANK_CLAIM),
    "the attributes class of a pending claim": _Change(
        _CLAIMS, {"spec": {"volumeAttributesClassName": "c"}}, _BLANK_CLAIM
    ),
    "the attributes class of a bound claim": _Change(
        _CLAIMS, {"spec": {"volumeAttributesClassName": "c"}}, _BLANK_CLAIM, _BOUND
    ),
    "no attributes class of a bound claim": _Change(
        _CLAIMS, {"spec": {"volumeAttributesClassName": None}}, _ATTRIBUTED, _BOUND
    ),
    "an empty attributes class of a bound claim": _Change(
        _CLAIMS, {"spec": {"volumeAttributesClassName": ""}}, _ATTRIBUTED, _BOUND
    ),
    "another attributes class of a bound claim": _Change(
        _CLAIMS, {"spec": {"volumeAttributesClassName": "d"}}, _ATTRIBUTED, _BOUND
    ),
    "the status of a claim": _Change(_CLAIMS, _BOUND, _BLANK_CLAIM, subresource="/status"),
    "the node of an attachment": _Change(_ATTACHMENTS, {"spec": {"nodeName": "m"}}),
    "the attacher of an attachment": _Change(_ATTACHMENTS, {"spec": {"attacher": "b.example.com"}}),
    "the volume of an attachment": _Change(_ATTACHMENTS, {"spec": {"source": {"persistentVolumeName": "w"}}}),
    "the status of an attachment": _Change(_ATTACHMENTS, {"status": {"attached": True}}, subresource="/status"),
    "the class of a capacity": _Change(_CAPACITIES, {"storageClassName": "d"}),
    "the topology of a capacity": _Change(_CAPACITIES, {"nodeTopology": {"matchLabels": {"a": "b"}}}),
    "no topology of a capacity": _Change(_CAPACITIES, {"nodeTopology": None}),
    "the capacity of a capacity": _Change(_CAPACITIES, {"capacity": "9Gi"}),
    "the node's id of a driver": _Change(_DRIVER_NODES, _on_host(nodeID="m")),
    "the topology of a node's driver": _Change(_DRIVER_NODES, _on_host(topologyKeys=["a/c"])),
    "the volumes of a node's driver": _Change(_DRIVER_NODES, _on_host(allocatable={"count": 5})),
    "another driver of a node": _Change(_DRIVER_NODES, _on_host(name="e.example.com", nodeID="m")),
    "one more driver of a node": _Change(
        _DRIVER_NODES,
        {
            "spec": {
                "drivers": [_ON_HOST["drivers"][0], {"name": "e.example.com", "nodeID": "m", "topologyKeys": ["a/b"]}]
            }
        },
    ),
    "the type of the addresses of a slice": _Change(_SLICES, {"addressType": "IPv6"}),
    "the type and the addresses of a slice": _Change(_SLICES, {"addressType": "IPv6", "endpoints": []}),
    "the parent of an address": _Change(_ADDRESSES, {"spec": {"parentRef": {"name": "other"}}}),
    "the ranges of services": _Change(_RANGES, {"spec": {"cidrs": ["10.201.0.0/16"]}}),
    "one more range of services": _Change(_RANGES, {"spec": {"cidrs": ["10.200.0.0/16", "fd00:1234::/108"]}}),
    "another first range of services": _Change(_RANGES, {"spec": {"cidrs": ["10.201.0.0/16", "fd00:1234::/108"]}}),
    "the second range of services": _Change(_RANGES, {"spec": {"cidrs": ["10.202.0.0/16", "fd00:3::/108"]}}, _TWO),
    "one range less of services": _Change(_RANGES, {"spec": {"cidrs": ["10.202.0.0/16"]}}, _TWO),
    "no range of services": _Change(_RANGES, {"spec": {"cidrs": None}}),
    "the devices of a claim": _Change(_DEVICE_CLAIMS, {"spec": {"devices": _MODEL}}),
    "the devices of a template": _Change(_DEVICE_TEMPLATES, {"spec": {"spec": {"devices": _MODEL}}}),
    "the labels of a template's claims": _Change(_DEVICE_TEMPLATES, {"spec": {"metadata": {"labels": {"a": "b"}}}}),
    "the driver of a slice of devices": _Change(_DEVICES, {"spec": {"driver": "b.example.com"}}),
    "the pool of a slice of devices": _Change(_DEVICES, {"spec": {"pool": {"name": "q"}}}),
    "the generation of a pool": _Change(_DEVICES, {"spec": {"pool": {"generation": 2}}}),
    "the node of a slice of devices": _Change(_DEVICES, {"spec": {"nodeName": "m"}}),
    "all nodes of a slice of devices": _Change(_DEVICES, {"spec": {"nodeName": None, "allNodes": True}}),
    "the range of a node's pods": _Change(_NODES, {"spec": {"podCIDR": "10.0.1.0/24"}}),
    "the ranges of a node's pods": _Change(_NODES, {"spec": {"podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.1.0/24"]}}),
    "one more range of a node's pods": _Change(_NODES, {"spec": {"podCIDRs": ["10.0.0.0/24", "fd00:1::/64"]}}),
    "no range of a node's pods": _Change(_NODES, {"spec": {"podCIDR": None, "podCIDRs": None}}),
    "the first range of a node's pods": _Change(
        _NODES, {"spec": {"podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.1.0/24"]}}, {}
    ),
    "the range and provider of a node": _Change(
        _NODES,
        {"spec": {"podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.1.0/24"], "providerID": "q"}},
        {"spec": {"podCIDR": "10.0.0.0/24", "providerID": "p"}},
    ),
    "the scaled object of an autoscaler": _Change(_AUTOSCALERS, {"spec": {"scaleTargetRef": {"name": "e"}}}),
    "the group of an autoscaler's object": _Change(_AUTOSCALERS, {"spec": {"scaleTargetRef": {"apiVersion": ""}}}),
}


def _scales(**target: str) -> Document:
    return {"spec": {"scaleTargetRef": target, "maxReplicas": 3}}


_CREATED: Final[dict[str, tuple[tuple[str, str], Document]]] = {
    **{
        f"an autoscaler of a {kind} of {version!r}": (
            _AUTOSCALERS,
            _scales(kind=kind, name="d", apiVersion=version),
        )
        for kind in ("Deployment", "ReplicationController")
        for version in ("", "v1", "apps/v1", "apps/", "/v1", "a/b/c")
    },
    "an autoscaler without a version": (_AUTOSCALERS, _scales(kind="Deployment", name="d")),
    "an autoscaler of a nameless object": (_AUTOSCALERS, _scales(**TARGET | {"name": ""})),
    "an autoscaler of a kindless object": (_AUTOSCALERS, _scales(**TARGET | {"kind": ""})),
    "an autoscaler of nothing": (_AUTOSCALERS, _scales()),
    "a replication controller": (_CONTROLLERS, {"spec": {"template": TEMPLATE}}),
}


def _place(resource: tuple[str, str]) -> tuple[str, Document]:
    """The path of a kind's objects, and what all of them have."""
    group, plural = resource
    kind = next(kind for kind in Registry().types(group) if kind.plural == plural)
    root = f"/apis/{kind.api_version}" if group else "/api/v1"
    place = f"{root}/namespaces/{{ns}}/{plural}" if kind.namespaced else f"{root}/{plural}"
    return place, {"apiVersion": kind.api_version, "kind": kind.kind}


def _shown(body: Document) -> list[Any]:
    causes = body.get("details", {}).get("causes", ())
    return [body.get("code", 200), body.get("reason"), [[c["field"], c["reason"], _text(c)] for c in causes]]


def _text(cause: Document) -> str:
    """The message of a cause, without a value in the form that it has inside of a real server."""
    text = str(cause["message"]).partition("\n")[0]
    return text if cause["field"] in _PLAIN else _STRUCT.sub("<a value>", text)


def _add_change(name: str, change: _Change) -> None:
    place, header = _place(change.kind)
    called = "10.96.78.1" if change.kind == _ADDRESSES else "{id}"
    contents = OBJECTS[change.kind][0] if change.contents is None else change.contents

    @CASES.case(f"{name} may change or not")
    async def play(side: Side) -> None:
        await side.quietly(Exchange("POST", place, {**header, "metadata": {"name": called}, **contents}))
        path = f"{place}/{called}"
        if change.status is not None:
            await side.quietly(Exchange("PATCH", f"{path}/status", change.status, _MERGE))
        exchange = Exchange("PATCH", f"{path}{change.subresource}", change.patch, _MERGE)
        body = (await side.server.send(side.filled(exchange))).body
        side.note("changed", _shown(body))
        found = (await side.server.send(side.filled(Exchange("GET", path)))).body
        side.note("kept", {key: value for key, value in found.items() if key != "metadata"})
        again = Exchange("PUT", path, found)
        side.note("written again", _shown((await side.server.send(again)).body))
        await side.quietly(Exchange("PATCH", path, {"metadata": {"finalizers": None}}, _MERGE))
        await side.quietly(Exchange("DELETE", path))


def _add_new(name: str, resource: tuple[str, str], contents: Document) -> None:
    place, header = _place(resource)

    @CASES.case(f"{name} is made or not")
    async def play(side: Side) -> None:
        await side.post(place, {**header, "metadata": {"name": "{id}"}, **contents})


for _name, _change in _CHANGES.items():
    _add_change(_name, _change)
for _name, _created in _CREATED.items():
    _add_new(_name, *_created)


@pytest.mark.parametrize("case", CASES.params())
async def test_a_field_changes_or_stays_as_on_a_real_server(judge: Judge, case: Case) -> None:
    """What is refused, and what is let in."""
    await judge(case)
