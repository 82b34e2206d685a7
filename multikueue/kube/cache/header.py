# SPDX-License-Identifier: Apache-2.0
"""Reads the fields of an object that a row needs, without parsing the rest.

This is the fast path of every watch event: pydantic-core builds only the named fields, so that a 5 KiB object costs
some 20 µs and leaves nothing for the garbage collector.
"""

from __future__ import annotations

from typing import Final

import orjson
from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from multikueue.core.keys import Key
from multikueue.kube.cache.store import NO_LABELS, Row
from multikueue.kube.rest.json_slices import members


class _Metadata(TypedDict, total=False):
    name: str
    namespace: str
    uid: str
    resourceVersion: str
    generation: int
    labels: dict[str, str] | None
    deletionTimestamp: str


class _Header(TypedDict):
    metadata: _Metadata


_HEADER: Final = TypeAdapter(_Header)


def read_row(raw: bytes) -> Row:
    """The row of an object's bytes."""
    metadata = _metadata(raw)
    return Row(
        key=Key(metadata.get("namespace", ""), metadata["name"]),
        uid=metadata.get("uid", ""),
        resource_version=metadata.get("resourceVersion", ""),
        generation=metadata.get("generation", 0),
        labels=metadata.get("labels") or NO_LABELS,
        deleting="deletionTimestamp" in metadata,
        raw=raw,
    )


def read_version(raw: bytes) -> str:
    """The resource version, as of a bookmark."""
    return _metadata(raw).get("resourceVersion", "")


def _metadata(raw: bytes) -> _Metadata:
    try:
        return _HEADER.validate_json(raw)["metadata"]
    except ValidationError as error:
        if error.errors()[0]["type"] != "json_invalid":
            raise
        # The object is nested deeper than the parser allows; its metadata need not be.
        metadata = orjson.loads(members(raw).get("metadata", b"null"))
        return _HEADER.validate_python({"metadata": metadata})["metadata"]
