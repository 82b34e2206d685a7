# SPDX-License-Identifier: Apache-2.0
"""What a failed test prints of the objects that it saw last: a line each, which CI does not cut off."""

from __future__ import annotations

import textwrap
from typing import Final

_LENGTH: Final = 400


def shown(value: object) -> str:
    """A value in short lines; an object of Kubernetes by its name, what deletes or gates it, and its status."""
    if isinstance(value, list | tuple):
        return "\n".join(map(shown, value)) or "none"
    if isinstance(value, dict) and "metadata" in value:
        metadata, spec = value["metadata"], value.get("spec") or {}
        kept = {
            "deleted": metadata.get("deletionTimestamp"),
            "finalizers": metadata.get("finalizers"),
            "gates": spec.get("schedulingGates"),
            "suspend": spec.get("suspend"),
            "status": value.get("status"),
        }
        given = {name: each for name, each in kept.items() if each is not None}
        return f"{metadata.get('name')} {textwrap.shorten(repr(given), _LENGTH)}"
    return textwrap.shorten(repr(value), _LENGTH)
