# SPDX-License-Identifier: Apache-2.0
"""Every field of our kinds has a line for `kubectl explain`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from multikueue.api import crds
from multikueue.api.field_descriptions import FIELDS

# The pods of a Workload are Kubernetes' own, and taken as they are.
_FOREIGN = ("podSets[].template",)
_SERVERS_OWN = ("apiVersion", "kind", "metadata")


def fields(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each field with its path."""
    for name, entry in (schema.get("properties") or {}).items():
        where = f"{path}.{name}" if path else name
        if where in _SERVERS_OWN:
            continue
        yield where, entry
        if not where.endswith(_FOREIGN):
            yield from fields(entry, where)
    if isinstance(schema.get("items"), dict):
        yield from fields(schema["items"], f"{path}[]")


def test_no_field_of_a_served_version_is_without_a_line() -> None:
    missing = sorted(
        f"{manifest['spec']['names']['kind']} {version['name']} {where}"
        for manifest in crds.manifests()
        for version in manifest["spec"]["versions"]
        if version["storage"]
        for where, entry in fields(version["schema"]["openAPIV3Schema"])
        if not entry.get("description")
    )
    assert missing == []


def test_every_line_is_a_sentence_of_a_field_that_there_is() -> None:
    shown = {
        entry["description"]
        for manifest in crds.manifests()
        for version in manifest["spec"]["versions"]
        for _, entry in fields(version["schema"]["openAPIV3Schema"])
        if entry.get("description")
    }
    for model, lines in FIELDS.items():
        for name, line in lines.items():
            assert line.endswith("."), f"{model}.{name}"
            assert len(line) <= 110, f"{model}.{name}"
            assert line in shown, f"{model}.{name} is no field"
