# SPDX-License-Identifier: Apache-2.0
"""A list answer taken apart.

Owns the split of a list's bytes into the bytes of its items. Items of a typed list lack `kind` and `apiVersion`; they
stay as the server sent them, and the store knows their kind.
"""

from __future__ import annotations

from dataclasses import dataclass

import orjson


@dataclass(frozen=True, slots=True)
class Page:
    """Items in the server's order, the version of the whole, and what asks for the next page."""

    items: list[bytes]
    resource_version: str
    continue_token: str | None


def split(body: bytes) -> Page:
    """Take a list apart."""
    parsed = orjson.loads(body)
    metadata = parsed.get("metadata") or {}
    return Page(
        # orjson hands out its whole buffer, several times the text; what stays in a store is copied to its size.
        items=[bytes(memoryview(orjson.dumps(item))) for item in parsed.get("items") or ()],
        resource_version=metadata.get("resourceVersion", ""),
        continue_token=metadata.get("continue") or None,
    )
