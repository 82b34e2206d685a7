# SPDX-License-Identifier: Apache-2.0
"""Validates manifests against the schemas of our CustomResourceDefinitions, with the embedded API server's code."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Final

from devcluster.apiserver.schema import structural
from devcluster.apiserver.schema.structural import Structural
from devcluster.apiserver.schema.validate import validate
from multikueue.api.objects import JsonObject
from multikueue.api.resource import KUEUE_RESOURCES, Resource

_WHOLE: Final = "<nil>"


def schema_refusals(resource: Resource, obj: JsonObject) -> list[str]:
    """Schema violations of a new object, one message per field; empty for kinds that are not ours."""
    if resource not in KUEUE_RESOURCES:
        return []
    kind = _schema(resource)
    created = deepcopy(obj)
    structural.default(created, kind)
    # Without the cause that says that CEL rules were skipped because the structure is invalid.
    return [f"{cause.field}: {cause.message}" for cause in validate(created, kind) if cause.field != _WHOLE]


@cache
def _schema(resource: Resource) -> Structural:
    from multikueue.api.crds import definition

    versions = definition(resource)["spec"]["versions"]
    served = next(version for version in versions if version["name"] == resource.version)
    return structural.read(served["schema"]["openAPIV3Schema"], root=True)
