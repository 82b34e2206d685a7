# SPDX-License-Identifier: Apache-2.0
"""JSON merge patches (RFC 7386): that between two objects, and its application."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The patch that turns `old` into `new`; empty if they are equal. A list is replaced as a whole."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old:
            patch[key] = value
        elif old[key] != value:
            both = isinstance(old[key], Mapping) and isinstance(value, Mapping)
            patch[key] = merge_patch(old[key], value) if both else value
    return patch


def apply_merge_patch(target: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """`target` with the patch applied."""
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            current = result.get(key)
            result[key] = apply_merge_patch(current if isinstance(current, Mapping) else {}, value)
        else:
            result[key] = value
    return result
