# SPDX-License-Identifier: Apache-2.0
"""A kind that no code knows, as an administrator declares it."""

from __future__ import annotations

from typing import Any, Final

RENDER: Final[dict[str, Any]] = {
    "apiVersion": "multikueue.io/v1alpha1",
    "kind": "JobKind",
    "metadata": {"name": "studio.example.com/render"},
    "spec": {
        "resource": {"group": "studio.example.com", "versions": ["v1"], "kind": "Render", "plural": "renders"},
        "suspend": {"path": "$.spec.paused"},
        "managedBy": {"path": "$.spec.managedBy"},
        "podSets": [{"name": "main", "template": "$.spec.pod"}],
    },
}
