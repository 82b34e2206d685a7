# SPDX-License-Identifier: Apache-2.0
"""The objects that the pods of a job name: Secrets, ConfigMaps, ServiceAccounts, and claims of volumes and devices.

Pods are not scheduled, or not started, while one of them is missing, unless the reference is optional. Manifests come
from tenants, so nothing is expected of their form: what is no reference is left out. Objects that Kubernetes makes in
each namespace are left out too, and so are claims of generic ephemeral volumes, which are made with the pod, and pull
secrets: a pod starts without them if its image can be pulled without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

from multikueue.api.meta import JsonObject
from multikueue.api.names import MAX_SUBDOMAIN, dns_subdomain
from multikueue.api.resource import (
    CONFIG_MAPS,
    PERSISTENT_VOLUME_CLAIMS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    SECRETS,
    SERVICE_ACCOUNTS,
    Resource,
)
from multikueue.core.printable import excerpt
from multikueue.dispatch.policy.pod_specs import PodSpecAt, items

MAX_DEPENDENCIES: Final = 100
"""How many objects of one job are looked for; the kubelets check the others."""
DEPENDENCY_KINDS: Final[Mapping[str, Resource]] = {
    resource.kind: resource
    for resource in (
        SECRETS,
        CONFIG_MAPS,
        SERVICE_ACCOUNTS,
        PERSISTENT_VOLUME_CLAIMS,
        RESOURCE_CLAIMS,
        RESOURCE_CLAIM_TEMPLATES,
    )
}
SENDABLE_KINDS: Final[Mapping[str, Resource]] = {resource.kind: resource for resource in (CONFIG_MAPS, SECRETS)}
"""The kinds of objects that can be sent with a job."""
_LISTED: Final = 5
_IN_EACH_NAMESPACE: Final = frozenset(
    {(SERVICE_ACCOUNTS.kind, "default"), (CONFIG_MAPS.kind, "kube-root-ca.crt")},
)
_SECRET_REFERENCES: Final = ("cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos")


@dataclass(frozen=True, slots=True)
class Dependency:
    """An object in the namespace of the job; the name may be one that no object can have."""

    kind: str
    name: str

    @property
    def is_possible(self) -> bool:
        """Whether an object can have this name."""
        return len(self.name) <= MAX_SUBDOMAIN and not any(dns_subdomain(self.name))

    def __str__(self) -> str:
        return f"{self.kind} {excerpt(self.name)}"


@dataclass(frozen=True, slots=True)
class SendableObjects:
    """ConfigMaps and Secrets that pods name, which can be sent with their job; `MAX_DEPENDENCIES` together."""

    needed: tuple[Dependency, ...] = ()
    """Those that pods wait for, with pull secrets: a pod waits until its image can be pulled."""
    optional: tuple[Dependency, ...] = ()
    """Those that pods start without, if they are not there."""

    @property
    def names(self) -> tuple[Dependency, ...]:
        """All of them; what is optional comes last, and never takes the place of what is needed."""
        return (*self.needed, *self.optional)


def dependencies(pod_sets: Iterable[JsonObject]) -> tuple[Dependency, ...]:
    """The objects without which pods of these pod sets do not start, each once, at most `MAX_DEPENDENCIES`."""
    return tuple(islice(dict.fromkeys(each for each, optional in _named(pod_sets) if not optional), MAX_DEPENDENCIES))


def sendable_objects(pod_sets: Sequence[JsonObject]) -> SendableObjects:
    """The ConfigMaps and Secrets to send with a job of these pod sets, where that is allowed."""
    needed: dict[Dependency, None] = {}
    optional: dict[Dependency, None] = {}
    for each, is_optional in (*_named(pod_sets), *_pull_secrets(pod_sets)):
        if each.kind in SENDABLE_KINDS and each.is_possible:
            (optional if is_optional else needed).setdefault(each)
    kept = tuple(islice(needed, MAX_DEPENDENCIES))
    left = (each for each in optional if each not in needed)
    return SendableObjects(kept, tuple(islice(left, MAX_DEPENDENCIES - len(kept))))


def missing_message(
    namespace: str, missing: Iterable[Dependency], *, not_sent: Mapping[Dependency, str] = MappingProxyType({})
) -> str:
    """Why the job cannot run on a cluster without these objects; empty if there are none.

    `not_sent` is why the hub has not sent an object, where it would if it could.
    """
    named = tuple(missing)
    if not named:
        return ""
    more = f" and {len(named) - _LISTED} more" if len(named) > _LISTED else ""
    listed = (f"{each} (not sent: {not_sent[each]})" if not_sent.get(each) else str(each) for each in named[:_LISTED])
    return f'not found in namespace "{namespace}": {", ".join(listed)}{more}'


def conflict_message(namespace: str, foreign: Iterable[Dependency]) -> str:
    """Why the job cannot run where these objects exist and are not those of its hub; empty if there are none."""
    named = tuple(foreign)
    if not named:
        return ""
    more = f" and {len(named) - _LISTED} more" if len(named) > _LISTED else ""
    listed = ", ".join(map(str, named[:_LISTED]))
    return (
        f'in namespace "{namespace}" there are objects of others with the names of what is sent with the job:'
        f" {listed}{more}"
    )


def _named(pod_sets: Iterable[JsonObject]) -> Iterator[tuple[Dependency, bool]]:
    """What the pods name, and whether that reference is optional."""
    for pod_set in pod_sets:
        for kind, name, optional in _references(PodSpecAt(path="spec", spec=_pod_spec(pod_set))):
            if isinstance(name, str) and name and (kind, name) not in _IN_EACH_NAMESPACE:
                yield Dependency(kind, name), optional


def _pull_secrets(pod_sets: Iterable[JsonObject]) -> Iterator[tuple[Dependency, bool]]:
    for pod_set in pod_sets:
        for _, entry in items(_pod_spec(pod_set).get("imagePullSecrets"), ""):
            name = entry.get("name")
            if isinstance(name, str) and name:
                yield Dependency(SECRETS.kind, name), False


def _pod_spec(pod_set: JsonObject) -> Mapping[str, Any]:
    return _mapping(_mapping(pod_set.get("template")).get("spec"))


def _references(pod: PodSpecAt) -> Iterator[tuple[str, object, bool]]:
    spec = pod.spec
    # serviceAccount is the former name of the field; the API server makes both the same.
    yield SERVICE_ACCOUNTS.kind, spec.get("serviceAccountName") or spec.get("serviceAccount"), False
    for _, volume in items(spec.get("volumes"), ""):
        yield from _of_volume(volume)
    for _, claim in items(spec.get("resourceClaims"), ""):
        yield RESOURCE_CLAIM_TEMPLATES.kind, claim.get("resourceClaimTemplateName"), False
        yield RESOURCE_CLAIMS.kind, claim.get("resourceClaimName"), False
    for _, container in pod.containers():
        for _, source in items(container.get("envFrom"), ""):
            yield _reference(SECRETS, source.get("secretRef"))
            yield _reference(CONFIG_MAPS, source.get("configMapRef"))
        for _, variable in items(container.get("env"), ""):
            source = _mapping(variable.get("valueFrom"))
            yield _reference(SECRETS, source.get("secretKeyRef"))
            yield _reference(CONFIG_MAPS, source.get("configMapKeyRef"))


def _of_volume(volume: Mapping[str, Any]) -> Iterator[tuple[str, object, bool]]:
    yield _reference(SECRETS, volume.get("secret"), field="secretName")
    yield _reference(CONFIG_MAPS, volume.get("configMap"))
    yield PERSISTENT_VOLUME_CLAIMS.kind, _mapping(volume.get("persistentVolumeClaim")).get("claimName"), False
    yield SECRETS.kind, _mapping(volume.get("azureFile")).get("secretName"), False
    yield SECRETS.kind, _mapping(_mapping(volume.get("csi")).get("nodePublishSecretRef")).get("name"), False
    for name in _SECRET_REFERENCES:
        yield SECRETS.kind, _mapping(_mapping(volume.get(name)).get("secretRef")).get("name"), False
    for _, source in items(_mapping(volume.get("projected")).get("sources"), ""):
        yield _reference(SECRETS, source.get("secret"))
        yield _reference(CONFIG_MAPS, source.get("configMap"))


def _reference(resource: Resource, reference: object, *, field: str = "name") -> tuple[str, object, bool]:
    found = _mapping(reference)
    return resource.kind, found.get(field), found.get("optional") is True


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
