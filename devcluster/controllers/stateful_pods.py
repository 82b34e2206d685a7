# SPDX-License-Identifier: Apache-2.0
"""The pods of a StatefulSet and their claims, by ordinal. Pure."""

from __future__ import annotations

import copy
import re
from typing import Final

from devcluster.controllers import pod_facts, set_revisions
from devcluster.controllers.app_pods import from_template
from devcluster.controllers.dependents import reference_to
from devcluster.controllers.set_revisions import REVISION_LABEL
from devcluster.resources import STATEFUL_SETS
from multikueue.api.objects import JsonObject

NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
_ORDINAL: Final = re.compile(r"(.*)-([0-9]+)", re.DOTALL)
_DELETE: Final = "Delete"


def ordinal_of(stateful_set: JsonObject, pod: JsonObject) -> int | None:
    """The ordinal in the name of a pod of this StatefulSet; None for another name."""
    found = _ORDINAL.fullmatch(pod["metadata"]["name"])
    return int(found[2]) if found and found[1] == stateful_set["metadata"]["name"] else None


def first_ordinal(stateful_set: JsonObject) -> int:
    """The ordinal of the first pod."""
    return int((stateful_set["spec"].get("ordinals") or {}).get("start", 0))


def revision_of(pod: JsonObject) -> str:
    """The name of the pod's revision; empty for none."""
    return str((pod["metadata"].get("labels") or {}).get(REVISION_LABEL, ""))


def is_running(pod: JsonObject) -> bool:
    """Whether it runs and is ready."""
    return pod_facts.phase(pod) == "Running" and pod_facts.ready(pod)


def identity(name: str, ordinal: int) -> JsonObject:
    """The labels that name a pod."""
    return {NAME_LABEL: name, INDEX_LABEL: str(ordinal)}


def pod_at(stateful_set: JsonObject, ordinal: int, revision: JsonObject) -> JsonObject:
    """The manifest of the pod with that ordinal and revision."""
    owner = set_revisions.at_revision(stateful_set, revision)
    made = from_template(owner, STATEFUL_SETS)
    name = f"{stateful_set['metadata']['name']}-{ordinal}"
    metadata, spec = made["metadata"], made["spec"]
    metadata["name"] = name
    labels = {**identity(name, ordinal), REVISION_LABEL: revision["metadata"]["name"]}
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    spec["hostname"] = name
    if stateful_set["spec"].get("serviceName"):
        spec["subdomain"] = stateful_set["spec"]["serviceName"]
    templates = {each["metadata"]["name"] for each in stateful_set["spec"].get("volumeClaimTemplates") or ()}
    if templates:
        others = [volume for volume in spec.get("volumes") or () if volume["name"] not in templates]
        own = [{"name": each, "persistentVolumeClaim": {"claimName": f"{each}-{name}"}} for each in sorted(templates)]
        spec["volumes"] = [*own, *others]
    return made


def claims_of(stateful_set: JsonObject, ordinal: int) -> list[JsonObject]:
    """The PersistentVolumeClaims of the pod with that ordinal; owned by the StatefulSet if deleted with it."""
    metadata, spec = stateful_set["metadata"], stateful_set["spec"]
    found = []
    for template in spec.get("volumeClaimTemplates") or ():
        claim = copy.deepcopy(template)
        own = claim["metadata"]
        made = {
            "name": f"{own['name']}-{metadata['name']}-{ordinal}",
            "namespace": metadata["namespace"],
            "labels": {**(own.get("labels") or {}), **(spec["selector"].get("matchLabels") or {})},
        }
        if own.get("annotations"):
            made["annotations"] = own["annotations"]
        if _policy(stateful_set, "whenDeleted") == _DELETE:
            made["ownerReferences"] = [reference_to(stateful_set, STATEFUL_SETS)]
        found.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": made, "spec": claim["spec"]})
    return found


def deletes_claims_when_scaled(stateful_set: JsonObject) -> bool:
    """Whether a claim is deleted when its pod is in excess."""
    return _policy(stateful_set, "whenScaled") == _DELETE


def _policy(stateful_set: JsonObject, when: str) -> str:
    policy = stateful_set["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    return str(policy.get(when, "Retain"))
