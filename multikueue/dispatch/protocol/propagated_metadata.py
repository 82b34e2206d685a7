# SPDX-License-Identifier: Apache-2.0
"""The metadata that is propagated to objects on a worker, for both sides.

Managers and agents read labels and annotations of the group multikueue.io. A remote object has those that its manager
or agent set and, of a user's, only the ones that users may write. All other metadata (owners, finalizers, a generated
name) belongs to the worker and is never taken from outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from multikueue.api.constants import (
    CLUSTER_SELECTOR_ANNOTATION,
    CLUSTERS_ANNOTATION,
    EXIT_CODE_ANNOTATION,
    FAIL_ONCE_ANNOTATION,
    NEVER_READY_ANNOTATION,
    PARTITION_POLICY_ANNOTATION,
    PLACEMENT_ANNOTATION,
    PREFERRED_CLUSTERS_ANNOTATION,
    READY_AFTER_ANNOTATION,
    RUN_FOR_ANNOTATION,
)
from multikueue.api.resource import OWN_GROUP

USER_ANNOTATIONS: Final = frozenset(
    {
        CLUSTERS_ANNOTATION,
        CLUSTER_SELECTOR_ANNOTATION,
        PREFERRED_CLUSTERS_ANNOTATION,
        PLACEMENT_ANNOTATION,
        PARTITION_POLICY_ANNOTATION,
        RUN_FOR_ANNOTATION,
        EXIT_CODE_ANNOTATION,
        FAIL_ONCE_ANNOTATION,
        NEVER_READY_ANNOTATION,
        READY_AFTER_ANNOTATION,
    }
)
"""Those of multikueue.io that a user may write; a recovery finds them on the remote job."""
_PROPAGATED: Final = ("name", "namespace", "labels", "annotations")


def propagated_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels without those of multikueue.io."""
    return {key: value for key, value in labels.items() if not _is_own(key)}


def propagated_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """The annotations without those of multikueue.io that users may not write."""
    return {key: value for key, value in annotations.items() if key in USER_ANNOTATIONS or not _is_own(key)}


def bounded_manifest(
    manifest: Mapping[str, Any], *, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> dict[str, Any]:
    """The manifest as an agent creates it: only the propagated metadata, with these labels and annotations.

    Otherwise a compromised manager could own, block or mark objects of the worker.
    """
    metadata = _map(manifest.get("metadata"))
    kept = {name: metadata[name] for name in _PROPAGATED if name in metadata}
    kept["labels"] = {**propagated_labels(_map(metadata.get("labels"))), **labels}
    kept["annotations"] = {**propagated_annotations(_map(metadata.get("annotations"))), **annotations}
    body = {name: value for name, value in manifest.items() if name != "status"}
    return {**body, "metadata": kept}


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_own(key: str) -> bool:
    return key.partition("/")[0] == OWN_GROUP
