# SPDX-License-Identifier: Apache-2.0
"""Containers that are added to a pod by its subresource `ephemeralcontainers`, as `kubectl debug` does.

The subresource adds them and changes nothing else. One that is there is neither changed nor removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.schema.values import quoted

SUBRESOURCE: Final = "ephemeralcontainers"
FIELD: Final = "ephemeralContainers"
_PATH: Final = f"spec.{FIELD}"
_OTHERS: Final = ("initContainers", "containers")
_NOT_FOR_THESE: Final = (
    *("ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle"),
    *("resources", "resizePolicy", "restartPolicy"),
)
"""Fields of a container that would change what the pod promises."""


def keep_all_but_these(value: JsonObject, old: JsonObject) -> None:
    """Restore in place what a write of the subresource does not change."""
    wanted = documents.child(value, "spec").get(FIELD)
    kept = ("name", "namespace", "uid", "resourceVersion", "managedFields")
    metadata = {name: entry for name, entry in value["metadata"].items() if name in kept}
    value.clear()
    value.update(documents.copy(old))
    value["metadata"] = {**value["metadata"], **metadata}
    value["spec"].pop(FIELD, None)
    if wanted:
        value["spec"][FIELD] = wanted


def problems(spec: JsonObject) -> Iterator[StatusCause]:
    """The problems of these among the containers of a pod, beyond those that every container can have."""
    others = {each.get("name") for group in _OTHERS for each in documents.items(spec, group)}
    for index, container in enumerate(documents.items(spec, FIELD)):
        path = f"{_PATH}[{index}]"
        target = container.get("targetContainerName")
        if target and target not in others:
            yield StatusCause("FieldValueNotFound", f"Not found: {quoted(target)}", f"{path}.targetContainerName")
        for field in _NOT_FOR_THESE:
            if container.get(field):
                yield field_errors.forbidden(f"{path}.{field}", "cannot be set for an Ephemeral Container")


def changes(spec: JsonObject, before: JsonObject) -> Iterator[StatusCause]:
    """Those of the stored ones that are changed or left out."""
    after = {each.get("name"): each for each in documents.items(spec, FIELD)}
    for each in documents.items(before, FIELD):
        name = each.get("name")
        if name not in after:
            yield field_errors.forbidden(_PATH, f"existing ephemeral containers {quoted(name)} may not be removed")
        elif after[name] != each:
            yield field_errors.forbidden(_PATH, f"existing ephemeral containers {quoted(name)} may not be changed")
