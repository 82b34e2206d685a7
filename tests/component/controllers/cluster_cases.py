# SPDX-License-Identifier: Apache-2.0
"""What a cluster does by itself beside running Jobs: garbage, namespaces, roles, certificates, quota, binding.

Each case is played in a namespace of its own and tells what is to be seen, without names and times that differ.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import orjson
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from devcluster.resources import PERSISTENT_VOLUMES, RESOURCE_QUOTAS, VOLUME_CLAIMS
from multikueue.api.objects import JsonObject
from multikueue.api.resource import (
    CERTIFICATE_SIGNING_REQUESTS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    EVENTS,
    NAMESPACES,
    PODS,
    SERVICE_ACCOUNTS,
    Resource,
)
from multikueue.kube.errors import NotFound
from multikueue.kube.rest.client import KubeClient
from tests.support.polling import comes_to_hold

PATIENCE: Final = 180.0
"""Seconds that a case waits for its cluster, which plays sixty at a time beside other tests."""
_HELD: Final = "example.com/held"

Play: TypeAlias = Callable[["Place"], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that a cluster does."""

    title: str
    play: Play


CASES: Final[list[Case]] = []


def case(title: str, cases: list[Case] = CASES) -> Callable[[Play], Play]:
    def add(play: Play) -> Play:
        cases.append(Case(title, play))
        return play

    return add


class Place:
    """A namespace and what is done in it."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def found(self) -> None:
        """Make the namespace, and wait until pods can be made there."""
        await self.client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        )
        await self.present(SERVICE_ACCOUNTS, "default")

    async def config_map(
        self, name: str, *, owners: list[JsonObject] | None = None, finalizers: list[str] | None = None
    ) -> JsonObject:
        """Create one."""
        metadata = {"name": name, "ownerReferences": owners or [], "finalizers": finalizers or []}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        # As it was stored: one whose owner does not exist may be gone when it is read.
        stored: JsonObject = orjson.loads(await self.client.create(CONFIG_MAPS, body, namespace=self.namespace))
        return stored

    async def look(self, resource: Resource, name: str) -> JsonObject | None:
        """The object, or None."""
        try:
            return await self.client.get_object(
                resource, name, namespace=self.namespace if resource.namespaced else None
            )
        except NotFound:
            return None

    async def until(self, holds: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait for it."""
        if not await comes_to_hold(holds, seconds=PATIENCE):
            raise AssertionError(f"{self.namespace}: never {what}")

    async def gone(self, resource: Resource, *names: str) -> None:
        """Until none of them is there."""
        for name in names:

            async def absent(name: str = name) -> bool:
                return await self.look(resource, name) is None

            await self.until(absent, f"without {resource} {name}")

    async def present(self, resource: Resource, name: str) -> JsonObject:
        """Until it is there."""

        async def there() -> bool:
            return await self.look(resource, name) is not None

        await self.until(there, f"with {resource} {name}")
        return await self.look(resource, name) or {}

    async def delete(self, name: str, propagation: str) -> None:
        """Delete a ConfigMap."""
        await self.client.delete(CONFIG_MAPS, name, namespace=self.namespace, propagation=propagation)

    async def release(self, name: str) -> None:
        """Take all finalizers off a ConfigMap."""
        await self.client.patch(CONFIG_MAPS, name, {"metadata": {"finalizers": None}}, namespace=self.namespace)

    async def names(self) -> list[str]:
        """The ConfigMaps there are."""
        listed = (await self.client.request("GET", CONFIG_MAPS.path(self.namespace))).json()["items"]
        return sorted(item["metadata"]["name"] for item in listed if item["metadata"]["name"] != "kube-root-ca.crt")

    async def pod(self, name: str, **spec: Any) -> None:
        """Create a pod."""
        metadata = {"name": name, "annotations": {"multikueue.io/run-for": "forever"}}
        containers = [{"name": "main", "image": "x", "resources": spec.pop("resources", {})}]
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}
        await self.client.create(PODS, body, namespace=self.namespace)

    async def placed(self, name: str) -> list[object]:
        """Whether a pod was bound, the reason if not, and the reasons of the scheduler's events."""
        seen: list[object] = []

        async def told() -> bool:
            pod = await self.look(PODS, name) or {}
            known = [c for c in pod["status"].get("conditions") or () if c["type"] == "PodScheduled"]
            listed = (await self.client.request("GET", EVENTS.path(self.namespace))).json()["items"]
            wanted = ("Scheduled", "FailedScheduling")
            reasons = {e["reason"] for e in listed if e["regarding"]["name"] == name and e["reason"] in wanted}
            gated = any(c.get("reason") == "SchedulingGated" for c in known)
            seen[:] = [[c["status"], c.get("reason", "")] for c in known] + sorted(reasons)
            return bool(known) and (bool(reasons) or gated)

        await self.until(told, f"told about pod {name}")
        return seen


def owner(obj: JsonObject, **more: Any) -> JsonObject:
    """A reference to an owner."""
    named = {"apiVersion": obj["apiVersion"], "kind": obj["kind"]}
    return {**named, "name": obj["metadata"]["name"], "uid": obj["metadata"]["uid"], **more}


@case("what an owner leaves goes, and what that leaves")
async def _(place: Place) -> Any:
    first = await place.config_map("first")
    second = await place.config_map("second", owners=[owner(first)])
    await place.config_map("third", owners=[owner(second)])
    await place.delete("first", "Background")
    await place.gone(CONFIG_MAPS, "first", "second", "third")


@case("an owner waits in the foreground for what blocks it")
async def _(place: Place) -> Any:
    first = await place.config_map("first")
    await place.config_map("blocks", owners=[owner(first, blockOwnerDeletion=True)], finalizers=[_HELD])
    await place.delete("first", "Foreground")

    async def asked() -> bool:
        return "deletionTimestamp" in (await place.look(CONFIG_MAPS, "blocks") or {"metadata": {}})["metadata"]

    await place.until(asked, "asked the dependent to go")
    waiting = (await place.look(CONFIG_MAPS, "first") or {})["metadata"]["finalizers"]
    await place.release("blocks")
    await place.gone(CONFIG_MAPS, "blocks", "first")
    return waiting


@case("an owner does not wait in the foreground for what does not block it")
async def _(place: Place) -> Any:
    first = await place.config_map("first")
    await place.config_map("free", owners=[owner(first)], finalizers=[_HELD])
    await place.delete("first", "Foreground")
    await place.gone(CONFIG_MAPS, "first")

    async def asked() -> bool:
        return "deletionTimestamp" in (await place.look(CONFIG_MAPS, "free") or {"metadata": {}})["metadata"]

    await place.until(asked, "asked the dependent to go")
    await place.release("free")
    await place.gone(CONFIG_MAPS, "free")


@case("a circle of owners does not wait for itself")
async def _(place: Place) -> Any:
    first = await place.config_map("first")
    second = await place.config_map("second", owners=[owner(first, blockOwnerDeletion=True)])
    third = await place.config_map("third", owners=[owner(second, blockOwnerDeletion=True)])
    references = {"metadata": {"ownerReferences": [owner(third, blockOwnerDeletion=True)]}}
    await place.client.patch(CONFIG_MAPS, "first", references, namespace=place.namespace)
    await place.delete("first", "Foreground")
    await place.gone(CONFIG_MAPS, "first", "second", "third")


@case("a claim that nothing uses goes when it is deleted")
async def _(place: Place) -> Any:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    stored = orjson.loads(await place.client.create(VOLUME_CLAIMS, claim, namespace=place.namespace))
    await place.client.delete(VOLUME_CLAIMS, "data", namespace=place.namespace)
    await place.gone(VOLUME_CLAIMS, "data")
    return stored["metadata"]["finalizers"]


@case("a volume that is not bound goes when it is deleted")
async def _(place: Place) -> Any:
    source = {"hostPath": {"path": "/x"}, "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": place.namespace}, "spec": source}
    await place.client.create(PERSISTENT_VOLUMES, volume)
    await place.client.delete(PERSISTENT_VOLUMES, place.namespace)
    await place.gone(PERSISTENT_VOLUMES, place.namespace)


@case("orphans stay and name their owner no longer")
async def _(place: Place) -> Any:
    first = await place.config_map("first")
    await place.config_map("second", owners=[owner(first)])
    await place.delete("first", "Orphan")
    await place.gone(CONFIG_MAPS, "first")
    return (await place.look(CONFIG_MAPS, "second") or {})["metadata"].get("ownerReferences", "none")


@case("an owner that never was is as good as gone")
async def _(place: Place) -> Any:
    first = await place.config_map("first")
    wrong = owner(first, uid="11111111-2222-3333-4444-555555555555")
    await place.config_map("second", owners=[{**wrong, "name": "nobody"}])
    await place.gone(CONFIG_MAPS, "second")
    return await place.names()


@case("one owner of two is enough to stay")
async def _(place: Place) -> Any:
    first, second = await place.config_map("first"), await place.config_map("second")
    await place.config_map("third", owners=[owner(first), owner(second)])
    await place.delete("first", "Background")

    async def disowned() -> bool:
        return len((await place.look(CONFIG_MAPS, "third") or {})["metadata"]["ownerReferences"]) == 1

    await place.until(disowned, "disowned")
    return await place.names()


@case("an owner may belong to the whole cluster")
async def _(place: Place) -> Any:
    name = place.namespace
    role = {"apiVersion": CLUSTER_ROLES.api_version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": []}
    await place.client.create(CLUSTER_ROLES, role)
    made = await place.client.get_object(CLUSTER_ROLES, name)
    await place.config_map("second", owners=[owner(made)])
    await place.client.delete(CLUSTER_ROLES, name)
    await place.gone(CONFIG_MAPS, "second")


@case("a namespace says what it waits for, and goes with all it holds")
async def _(place: Place) -> Any:
    await place.config_map("held", finalizers=[_HELD])
    await place.pod("pod", nodeSelector={"no": "where"})
    await place.client.delete(NAMESPACES, place.namespace)
    seen: list[object] = []

    async def told() -> bool:
        status = (await place.look(NAMESPACES, place.namespace) or {}).get("status") or {}
        keys = ("type", "status", "reason", "message")
        seen[:] = [[entry[key] for key in keys] for entry in status.get("conditions") or ()]
        return any("configmaps. has 1" in str(entry) for entry in seen) and "pods" not in str(seen)

    await place.until(told, "told what it waits for")
    await place.release("held")
    await place.gone(NAMESPACES, place.namespace)
    return seen


@case("a namespace gets its account and its certificate back")
async def _(place: Place) -> Any:
    before = [await place.present(SERVICE_ACCOUNTS, "default"), await place.present(CONFIG_MAPS, "kube-root-ca.crt")]
    await place.client.delete(SERVICE_ACCOUNTS, "default", namespace=place.namespace)
    await place.client.delete(CONFIG_MAPS, "kube-root-ca.crt", namespace=place.namespace)

    async def back() -> bool:
        now = [await place.look(SERVICE_ACCOUNTS, "default"), await place.look(CONFIG_MAPS, "kube-root-ca.crt")]
        old = [entry["metadata"]["uid"] for entry in before]
        return all(entry is not None and entry["metadata"]["uid"] not in old for entry in now)

    await place.until(back, "given back")
    made = await place.look(CONFIG_MAPS, "kube-root-ca.crt") or {}
    return [sorted(made["data"]), made["metadata"]["annotations"]]


@case("a role has the rules of those it selects")
async def _(place: Place) -> Any:
    name, label = place.namespace, {f"example.com/{place.namespace}": "true"}
    rules = [{"apiGroups": ["example.com"], "resources": ["things"], "verbs": ["get"]}]
    parts = {"apiVersion": CLUSTER_ROLES.api_version, "kind": "ClusterRole"}
    whole = {"clusterRoleSelectors": [{"matchLabels": label}]}
    await place.client.create(CLUSTER_ROLES, {**parts, "metadata": {"name": name}, "aggregationRule": whole})
    part = {**parts, "metadata": {"name": f"{name}-part", "labels": label}, "rules": rules}
    await place.client.create(CLUSTER_ROLES, part)

    async def filled() -> bool:
        return bool((await place.look(CLUSTER_ROLES, name) or {}).get("rules"))

    await place.until(filled, "filled")
    found = (await place.look(CLUSTER_ROLES, name) or {})["rules"]
    for one in (name, f"{name}-part"):
        await place.client.delete(CLUSTER_ROLES, one)
    return found


@case("an approved request is signed")
async def _(place: Place) -> Any:
    status = await _approved(place, usages=["client auth", "digital signature"])
    certificate = x509.load_pem_x509_certificate(base64.b64decode(status["certificate"]))
    return [
        certificate.subject.rfc4514_string(),
        sorted(extension.oid.dotted_string for extension in certificate.extensions),
    ]


@case("an approved request for what the signer does not sign fails")
async def _(place: Place) -> Any:
    status = await _approved(place, usages=["server auth"])
    return [[entry[key] for key in ("type", "status", "reason", "message")] for entry in status["conditions"]]


async def _approved(place: Place, *, usages: list[str]) -> JsonObject:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "crew"), x509.NameAttribute(NameOID.COMMON_NAME, "kim")]
    )
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    encoded = base64.b64encode(request.public_bytes(serialization.Encoding.PEM)).decode()
    spec = {"signerName": "kubernetes.io/kube-apiserver-client", "usages": usages, "request": encoded}
    kind = {"apiVersion": CERTIFICATE_SIGNING_REQUESTS.api_version, "kind": "CertificateSigningRequest"}
    name = place.namespace
    await place.client.create(CERTIFICATE_SIGNING_REQUESTS, {**kind, "metadata": {"name": name}, "spec": spec})
    approval = {"type": "Approved", "status": "True", "reason": "Test", "message": "approved"}
    await place.client.patch(
        CERTIFICATE_SIGNING_REQUESTS, name, {"status": {"conditions": [approval]}}, subresource="approval"
    )
    status: JsonObject = {}

    async def answered() -> bool:
        found = (await place.look(CERTIFICATE_SIGNING_REQUESTS, name) or {}).get("status") or {}
        status.update(found)
        return bool(found.get("certificate")) or len(found.get("conditions") or ()) > 1

    await place.until(answered, "answered")
    await place.client.delete(CERTIFICATE_SIGNING_REQUESTS, name)
    return status


@case("a quota counts what is used")
async def _(place: Place) -> Any:
    hard = {"pods": "9", "requests.cpu": "4", "memory": "8Gi", "limits.cpu": "8", "configmaps": "9"}
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"}, "spec": {"hard": hard}}
    await place.present(CONFIG_MAPS, "kube-root-ca.crt")
    amounts = {"cpu": "500m", "memory": "1Gi"}
    for name in ("one", "two"):
        await place.pod(name, nodeSelector={"no": "where"}, resources={"requests": amounts, "limits": {"cpu": "1"}})
    await place.client.create(RESOURCE_QUOTAS, quota, namespace=place.namespace)
    found: JsonObject = {}

    async def counted() -> bool:
        status = (await place.look(RESOURCE_QUOTAS, "quota") or {}).get("status") or {}
        found.update(status)
        seen = (status.get("used") or {}).get("pods")
        if seen not in (None, "2"):
            # It was counted before the controller had seen both pods, which counts again only for a new quota.
            await place.client.delete(RESOURCE_QUOTAS, "quota", namespace=place.namespace)
            await place.client.create(RESOURCE_QUOTAS, quota, namespace=place.namespace)
        return bool(seen == "2")

    await place.until(counted, "counted")
    return found


@case("a pod is bound where it fits")
async def _(place: Place) -> Any:
    expression = {"key": "metadata.name", "operator": "In", "values": ["node-2"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [expression]}]}
    await place.pod("pod", affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
    placed = await place.placed("pod")
    return [placed, (await place.look(PODS, "pod") or {})["spec"]["nodeName"]]


@case("a pod that fits nowhere is told so")
async def _(place: Place) -> Any:
    await place.pod("selector", nodeSelector={"no": "where"})
    await place.pod("big", resources={"requests": {"cpu": "1000"}})
    await place.pod("odd", resources={"requests": {"example.com/gpu": "1"}, "limits": {"example.com/gpu": "1"}})
    return [await place.placed(name) for name in ("selector", "big", "odd")]


@case("a pod with a gate waits until it is taken off")
async def _(place: Place) -> Any:
    await place.pod("pod", schedulingGates=[{"name": "example.com/gate"}])
    before = await place.placed("pod")
    await place.client.patch(PODS, "pod", {"spec": {"schedulingGates": []}}, namespace=place.namespace)

    async def bound() -> bool:
        return bool((await place.look(PODS, "pod") or {})["spec"].get("nodeName"))

    await place.until(bound, "bound")
    return before


async def played(client: KubeClient, one: Case, namespace: str) -> Any:
    """What is to be seen after a case; its namespace is told to go."""
    place = Place(client, namespace)
    await place.found()
    seen = await one.play(place)
    if await place.look(NAMESPACES, namespace) is not None:
        await client.delete(NAMESPACES, namespace)
    return seen
