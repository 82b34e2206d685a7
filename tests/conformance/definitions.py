# SPDX-License-Identifier: Apache-2.0
"""The definition of a kind of the suites' own."""

from __future__ import annotations

from typing import Any


def definition(
    kind: str, schema: dict[str, Any], *, group: str, scope: str = "Namespaced", **version: Any
) -> dict[str, Any]:
    """A CustomResourceDefinition with one version, v1; `version` is what that has beside its schema."""
    plural = f"{kind.lower()}s"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
            ],
        },
    }
