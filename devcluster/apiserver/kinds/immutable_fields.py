# SPDX-License-Identifier: Apache-2.0
"""The fields of built-in kinds that stay as they were made, where a comparison of one field is enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from devcluster.apiserver import field_errors
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause


@dataclass(frozen=True, slots=True)
class _Field:
    """A field by its path, and what a change of it answers."""

    path: str
    shown: str = ""
    """The path in the answer, if it is another."""
    forbidden: str = ""
    """The text of a change that is forbidden; without it the new value is invalid."""
    blank: bool = False
    """Whether an empty value is the same as none."""

    def of(self, value: JsonObject) -> JsonValue:
        """The value of the field."""
        *parents, name = self.path.split(".")
        found = documents.child(value, *parents).get(name)
        return None if self.blank and not found else found

    def problem(self, value: JsonObject) -> StatusCause:
        """The answer to a change."""
        path = self.shown or self.path
        if self.forbidden:
            return field_errors.forbidden(path, self.forbidden)
        return field_errors.immutable(path, self.of(value))


_FIELDS: Final[dict[tuple[str, str], tuple[_Field, ...]]] = {
    ("storage.k8s.io", "storageclasses"): (
        _Field("parameters", blank=True),
        _Field("provisioner"),
        _Field("reclaimPolicy"),
        _Field("volumeBindingMode"),
    ),
    ("storage.k8s.io", "volumeattributesclasses"): (
        _Field("driverName", forbidden="updates to driverName are forbidden."),
        _Field("parameters", forbidden="updates to parameters are forbidden.", blank=True),
    ),
    ("storage.k8s.io", "csidrivers"): (
        _Field("spec.attachRequired", shown="spec.attachedRequired"),
        _Field("spec.volumeLifecycleModes"),
    ),
    ("storage.k8s.io", "volumeattachments"): (_Field("spec"),),
    ("storage.k8s.io", "csistoragecapacities"): (_Field("nodeTopology"), _Field("storageClassName")),
    ("node.k8s.io", "runtimeclasses"): (_Field("handler"),),
    ("networking.k8s.io", "ingressclasses"): (_Field("spec.controller"),),
    ("networking.k8s.io", "ipaddresses"): (_Field("spec.parentRef"),),
    ("discovery.k8s.io", "endpointslices"): (_Field("addressType"),),
    ("resource.k8s.io", "resourceclaims"): (_Field("spec"),),
    ("resource.k8s.io", "resourceclaimtemplates"): (_Field("spec"),),
    ("resource.k8s.io", "resourceslices"): (
        _Field("spec.driver"),
        _Field("spec.pool.name"),
        _Field("spec.nodeName"),
    ),
}


def problems(resource: tuple[str, str], value: JsonObject, old: JsonObject) -> list[StatusCause]:
    """What an update of an object, of a resource by group and plural, changes and may not."""
    fields = _FIELDS.get(resource, ())
    return [field.problem(value) for field in fields if field.of(value) != field.of(old)]
