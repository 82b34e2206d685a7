# SPDX-License-Identifier: Apache-2.0
"""What updates of persistent volumes and their claims may not change."""

from __future__ import annotations

from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds import volumes
from multikueue.core.quantity import Quantity

_NOT_SOURCE: Final = frozenset(
    {
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    }
)
_NEWER_LABELS: Final = {
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
_MAY_CHANGE: Final = (
    "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
)
_SECRET: Final = "controllerExpandSecretRef"


def volume_problems(value: JsonObject, old: JsonObject) -> list[StatusCause]:
    """What an update of a persistent volume may not change."""
    spec, before = documents.child(value, "spec"), documents.child(old, "spec")
    found = []
    new_secret = not documents.child(before, "csi").get(_SECRET)
    if _source(spec, new_secret=new_secret) != _source(before, new_secret=new_secret):
        text = "spec.persistentvolumesource is immutable after creation"
        found.append(field_errors.forbidden("spec.persistentvolumesource", text))
    if spec.get("volumeMode") != before.get("volumeMode"):
        found.append(field_errors.immutable("volumeMode", spec.get("volumeMode")))
    affinity, known = spec.get("nodeAffinity"), before.get("nodeAffinity")
    if known is not None and affinity not in (known, _with_newer_labels(known)):
        text = "field is immutable, except for updating from beta label to GA"
        found.append(field_errors.invalid("nodeAffinity", affinity, text))
    return found


def _source(spec: JsonObject, *, new_secret: bool) -> JsonObject:
    """The source of a volume, without the secret to expand it if that is new: it may be set once."""
    found = {name: source for name, source in spec.items() if name not in _NOT_SOURCE and source is not None}
    csi = found.get("csi")
    if isinstance(csi, dict) and new_secret:
        found["csi"] = {name: part for name, part in csi.items() if name != _SECRET}
    return found


def _with_newer_labels(affinity: JsonValue) -> JsonValue:
    """The affinity with the newer names of well-known labels."""
    found = documents.copy(affinity)
    for term in documents.items(documents.child({"affinity": found}, "affinity", "required"), "nodeSelectorTerms"):
        for rule in documents.items(term, "matchExpressions"):
            rule["key"] = _NEWER_LABELS.get(str(rule.get("key")), rule.get("key"))
    return found


def claim_problems(value: JsonObject, old: JsonObject) -> list[StatusCause]:
    """What an update of a claim may not change."""
    spec, before = documents.child(value, "spec"), documents.copy(documents.child(old, "spec"))
    volumes.join_sources(before)
    is_bound = documents.child(value, "status").get("phase") == "Bound"
    found = []
    if _kept(spec, before, is_bound=is_bound) != _kept(before, before, is_bound=is_bound):
        found.append(field_errors.forbidden("spec", _MAY_CHANGE))
    wanted, known = (_requests(given).get("storage") for given in (spec, before))
    if is_bound and wanted is not None and known is not None and Quantity.parse(wanted) < Quantity.parse(known):
        capacity = documents.child(old, "status", "capacity").get("storage", "0")
        if Quantity.parse(capacity) == Quantity.parse("0") or Quantity.parse(wanted) <= Quantity.parse(capacity):
            text = "field can not be less than status.capacity"
            found.append(field_errors.forbidden("spec.resources.requests.storage", text))
    if spec.get("volumeMode") != before.get("volumeMode"):
        found.append(field_errors.immutable("volumeMode", spec.get("volumeMode")))
    return found


def _requests(spec: JsonObject) -> JsonObject:
    return documents.child(spec, "resources", "requests")


def _kept(spec: JsonObject, before: JsonObject, *, is_bound: bool) -> JsonObject:
    """The part of a claim's spec that must stay; a volume and a class may be set once."""
    found = {name: part for name, part in spec.items() if part is not None}
    if not before.get("volumeName"):
        found.pop("volumeName", None)
    if before.get("storageClassName") is None:
        found.pop("storageClassName", None)
    if is_bound:
        found.pop("volumeAttributesClassName", None)
    resources = documents.child(spec, "resources")
    found["resources"] = {
        name: amounts for name, amounts in resources.items() if amounts and not (is_bound and name == "requests")
    }
    return found
