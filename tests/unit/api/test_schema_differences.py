# SPDX-License-Identifier: Apache-2.0
"""Our definitions against Kueue's, field by field; what differs is in schema_differences.yaml, with a reason."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from multikueue.api.crds import definition
from multikueue.api.resource import KUEUE_RESOURCES, Resource

REFERENCE = Path(__file__).resolve().parents[4] / "shared/reference/crds"
ALLOWED = yaml.safe_load((Path(__file__).parent / "schema_differences.yaml").read_text(encoding="utf-8"))

pytestmark = pytest.mark.skipif(
    not REFERENCE.is_dir(), reason=f"Kueue's schemas are not beside this checkout ({REFERENCE})"
)


@dataclass(frozen=True)
class Difference:
    kind: str
    path: str
    change: str
    text: str


def _keyed(manifest: dict[str, Any]) -> dict[str, Any]:
    spec = manifest["spec"]
    return manifest | {"spec": spec | {"versions": {version["name"]: version for version in spec["versions"]}}}


def _differences(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys()):
            here = f"{path}/{key}" if path else key
            # Texts are ours; a field of that name is a dict, and is compared.
            if key == "description" and isinstance(ours.get(key), str):
                continue
            if key not in theirs:
                yield here, "added", json.dumps(ours[key])
            elif key not in ours:
                yield here, "removed", json.dumps(theirs[key])
            else:
                yield from _differences(ours[key], theirs[key], here)
    elif ours != theirs:
        yield path, "changed", f"ours {json.dumps(ours)}, Kueue's {json.dumps(theirs)}"


def _compare(resource: Resource) -> list[Difference]:
    theirs = json.loads((REFERENCE / f"{resource.plural}.json").read_text(encoding="utf-8"))
    found = _differences(_keyed(definition(resource)), _keyed(theirs))
    return [Difference(resource.kind, path, change, text[:200]) for path, change, text in found]


def _covers(entry: dict[str, Any], difference: Difference) -> bool:
    if difference.kind not in entry["kinds"] or difference.change != entry["change"]:
        return False
    steps = [".*" if step == "**" else re.escape(step).replace(r"\*", "[^/]*") for step in entry["path"].split("/")]
    return re.fullmatch("/".join(steps), difference.path) is not None


@pytest.mark.parametrize("resource", KUEUE_RESOURCES, ids=lambda resource: resource.kind)
def test_a_schema_differs_from_kueues_only_where_a_reason_is_given(resource: Resource) -> None:
    unexplained = [d for d in _compare(resource) if not any(_covers(entry, d) for entry in ALLOWED)]
    assert not unexplained, "\n".join(f"{d.path} {d.change}: {d.text}" for d in unexplained)


def test_every_listed_difference_is_still_there() -> None:
    found = [difference for resource in KUEUE_RESOURCES for difference in _compare(resource)]
    for entry in ALLOWED:
        for kind in entry["kinds"]:
            assert any(d.kind == kind and _covers(entry, d) for d in found), f"{kind} {entry['path']} no longer differs"


def test_every_schema_of_kueue_is_compared() -> None:
    assert {path.stem for path in REFERENCE.glob("*.json")} == {resource.plural for resource in KUEUE_RESOURCES}
