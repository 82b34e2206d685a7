# SPDX-License-Identifier: Apache-2.0
"""The definition of ProvisioningRequest for local clusters.

It has the group, version and fields of the cluster autoscaler's, in its own text. A cluster with a cluster autoscaler
has that one.
"""

from __future__ import annotations

from typing import Any, Final

from multikueue.api.resource import PROVISIONING_REQUESTS

_TEXT: Final = {"type": "string"}
_NAME: Final = {"type": "string", "maxLength": 253}
_POD_SET: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["podTemplateRef", "count"],
    "properties": {
        "podTemplateRef": {"type": "object", "properties": {"name": _NAME}},
        "count": {"type": "integer", "format": "int32", "minimum": 1},
    },
}
_SPEC: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["provisioningClassName", "podSets"],
    "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "Value is immutable"}],
    "properties": {
        "provisioningClassName": _NAME,
        "parameters": {
            "type": "object",
            "maxProperties": 100,
            "additionalProperties": {"type": "string", "maxLength": 255},
        },
        "podSets": {
            "type": "array",
            "minItems": 1,
            "maxItems": 32,
            "x-kubernetes-list-type": "atomic",
            "items": _POD_SET,
        },
    },
}
_CONDITION: Final[dict[str, Any]] = {
    "type": "object",
    "required": ["type", "status", "lastTransitionTime", "reason", "message"],
    "properties": {
        "type": {"type": "string", "maxLength": 316},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
        "message": {"type": "string", "maxLength": 32768},
    },
}
_STATUS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "conditions": {
            "type": "array",
            "items": _CONDITION,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"],
        },
        "provisioningClassDetails": {
            "type": "object",
            "maxProperties": 64,
            "additionalProperties": {"type": "string", "maxLength": 32768},
        },
    },
}


def definition() -> dict[str, Any]:
    """The CustomResourceDefinition."""
    resource = PROVISIONING_REQUESTS
    columns = {
        "Class": ".spec.provisioningClassName",
        "Accepted": ".status.conditions[?(@.type=='Accepted')].status",
        "Provisioned": ".status.conditions[?(@.type=='Provisioned')].status",
        "Failed": ".status.conditions[?(@.type=='Failed')].status",
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.qualified},
        "spec": {
            "group": resource.group,
            "names": {
                "kind": resource.kind,
                "listKind": resource.list_kind,
                "plural": resource.plural,
                "singular": resource.singular,
                "shortNames": list(resource.short_names),
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [
                        *({"name": name, "type": "string", "jsonPath": path} for name, path in columns.items()),
                        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                    ],
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "required": ["spec"],
                            "properties": {
                                "apiVersion": _TEXT,
                                "kind": _TEXT,
                                "metadata": {"type": "object"},
                                "spec": _SPEC,
                                "status": _STATUS,
                            },
                        }
                    },
                }
            ],
        },
    }
