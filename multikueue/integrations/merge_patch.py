# SPDX-License-Identifier: Apache-2.0
"""The JSON merge patch between two objects (RFC 7386)."""

from __future__ import annotations

from multikueue.api.objects import JsonObject


def merge_patch(old: JsonObject, new: JsonObject) -> JsonObject:
    """What turns `old` into `new`; empty when they are equal. Lists are replaced as a whole, as the format has it."""
    patch: JsonObject = {key: None for key in old if key not in new}
    for key, value in new.items():
        if key not in old:
            patch[key] = value
        elif old[key] != value:
            both = isinstance(old[key], dict) and isinstance(value, dict)
            patch[key] = merge_patch(old[key], value) if both else value
    return patch
