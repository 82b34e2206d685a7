# SPDX-License-Identifier: Apache-2.0
"""The sources of volumes, and the specs of claims: defaults for pods, volumes and claim templates."""

from __future__ import annotations

from typing import Final

from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.kinds import quantities

_FILE_MODE: Final = 420
_TOKEN_SECONDS: Final = 3600
_WITH_MODE: Final = ("secret", "configMap", "downwardAPI", "projected")
_DEFAULTS: Final[dict[str, JsonObject]] = {
    "hostPath": {"type": ""},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {"cachingMode": "ReadWrite", "kind": "Shared", "fsType": "ext4", "readOnly": False},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}
"""The defaults of sources that pods and persistent volumes share."""


def default_source(value: JsonObject) -> None:
    """Set the defaults of the source that a volume has."""
    for name, defaults in _DEFAULTS.items():
        source = value.get(name)
        if isinstance(source, dict):
            for field, default in defaults.items():
                source.setdefault(field, default)


def default_volume(volume: JsonObject) -> None:
    """Set the defaults of a pod's volume."""
    if set(volume) <= {"name"}:
        volume["emptyDir"] = {}
    default_source(volume)
    for name in _WITH_MODE:
        source = volume.get(name)
        if isinstance(source, dict):
            source.setdefault("defaultMode", _FILE_MODE)
    for source in documents.items(volume, "projected", "sources"):
        token = source.get("serviceAccountToken")
        if isinstance(token, dict):
            token.setdefault("expirationSeconds", _TOKEN_SECONDS)
        _default_references(documents.items(source, "downwardAPI", "items"))
    _default_references(documents.items(volume, "downwardAPI", "items"))
    quantities.settle_fields(documents.child(volume, "emptyDir"), "sizeLimit")
    image = volume.get("image")
    if isinstance(image, dict):
        image.setdefault("pullPolicy", pull_policy(str(image.get("reference", ""))))
    claim = documents.child(volume, "ephemeral", "volumeClaimTemplate").get("spec")
    if isinstance(claim, dict):
        default_claim(claim)


def pull_policy(image: str) -> str:
    """The default policy to pull an image."""
    tag = image.rpartition("/")[2].partition(":")[2]
    return "Always" if "@" not in image and tag in ("", "latest") else "IfNotPresent"


def default_references(value: JsonObject) -> None:
    """Set the defaults of references to a field or a resource of the pod."""
    field, resource = value.get("fieldRef"), value.get("resourceFieldRef")
    if isinstance(field, dict):
        field.setdefault("apiVersion", "v1")
    if isinstance(resource, dict):
        resource["divisor"] = quantities.canonical(resource.get("divisor", "0"))


def _default_references(items: list[JsonObject]) -> None:
    for item in items:
        default_references(item)


def default_claim(spec: JsonObject) -> None:
    """Set the defaults of a claim's spec."""
    spec.setdefault("volumeMode", "Filesystem")
    quantities.settle_resources(spec)
    for name in ("dataSource", "dataSourceRef"):
        source = spec.get(name)
        if isinstance(source, dict):
            source.setdefault("apiGroup", None)


def join_sources(spec: JsonObject) -> None:
    """Set the data source of a claim from its reference, or the reference from the source.

    A reference to another namespace is dropped: its feature gate is off in a real server.
    """
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if isinstance(reference, dict) and reference.get("namespace"):
        del spec["dataSourceRef"]
    elif isinstance(source, dict) and reference is None:
        spec["dataSourceRef"] = dict(source)
    elif isinstance(reference, dict) and source is None:
        spec["dataSource"] = dict(reference)


def default_claim_template(claim: JsonObject) -> None:
    """Set the defaults of a claim template of a StatefulSet."""
    claim["apiVersion"], claim["kind"] = "v1", "PersistentVolumeClaim"
    spec, status = claim.setdefault("spec", {}), claim.setdefault("status", {})
    if isinstance(spec, dict):
        default_claim(spec)
    if isinstance(status, dict):
        status.setdefault("phase", "Pending")
