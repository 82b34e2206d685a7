# SPDX-License-Identifier: Apache-2.0
"""Objects inside of custom resources: their type and metadata have to be readable before anything else is looked at."""

from __future__ import annotations

from multikueue.devcluster.apiserver.documents import JsonValue
from multikueue.devcluster.apiserver.schema import builtin
from multikueue.devcluster.apiserver.schema.forms import mismatch
from multikueue.devcluster.apiserver.schema.node import Node
from multikueue.devcluster.apiserver.schema.structural import Structural
from multikueue.devcluster.apiserver.schema.values import quoted, type_of

_METADATA = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def unreadable(value: JsonValue, kind: Node, path: str = "") -> str | None:
    """What cannot be read first in the embedded objects of a value; None when there is nothing."""
    if not isinstance(kind, Structural) or not kind.embeds:
        return None
    if isinstance(value, dict):
        if kind.embedded:
            for name in ("apiVersion", "kind"):
                entry = value.get(name)
                if entry is not None and not isinstance(entry, str):
                    return f"{path}.{name}: Invalid value: {quoted(entry)}: must be a string"
            problem = _metadata_problem(value.get("metadata"))
            if problem is not None:
                return f"{path}.metadata: Invalid value: {quoted(value['metadata'])}: {problem}"
        for name, entry in value.items():
            field = kind.properties.get(name) or kind.additional
            if field is not None:
                found = unreadable(entry, field, f"{path}.{name}" if path else name)
                if found is not None:
                    return found
    elif isinstance(value, list) and kind.items is not None:
        for index, item in enumerate(value):
            found = unreadable(item, kind.items, f"{path}[{index}]")
            if found is not None:
                return found
    return None


def _metadata_problem(metadata: JsonValue) -> str | None:
    if metadata is None:
        return None
    if not isinstance(metadata, dict):
        return f"json: cannot unmarshal {type_of(metadata)} into Go value of type v1.ObjectMeta"
    return mismatch(metadata, builtin.node(_METADATA), "ObjectMeta")
