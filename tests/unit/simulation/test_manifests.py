# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from pathlib import Path

import pytest

from multikueue.core.errors import BadInput
from multikueue.simulation import manifests

QUEUE = b"apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: red}\nspec: {cohort: company}\n"


def test_a_folder_is_read_file_by_file_in_order_of_name(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("{apiVersion: v1, kind: Namespace, metadata: {name: second}}\n---\n---\n")
    (tmp_path / "a.json").write_text('{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "first"}}')
    (tmp_path / "notes.txt").write_text("not a manifest")
    found = manifests.read([str(tmp_path)]).found
    assert [manifest.obj["metadata"]["name"] for manifest in found] == ["first", "second"]


def test_a_list_is_split_into_its_items() -> None:
    text = b"{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Namespace, metadata: {name: inner}}]}"
    assert [m.kind for m in manifests.parse(text, source="x").found] == ["Namespace"]


def test_an_older_version_is_converted() -> None:
    (found,) = manifests.parse(QUEUE, source="x").found
    assert found.obj["apiVersion"] == "kueue.x-k8s.io/v1beta2"
    assert found.obj["spec"] == {"cohortName": "company"}


def test_items_of_a_list_of_one_kind_may_omit_their_kind() -> None:
    text = b"{apiVersion: v1, kind: NamespaceList, items: [{metadata: {name: inner}}]}"
    (found,) = manifests.parse(text, source="x").found
    assert (found.obj["apiVersion"], found.kind) == ("v1", "Namespace")


def test_times_stay_text() -> None:
    text = b"{apiVersion: v1, kind: Namespace, metadata: {name: a, creationTimestamp: 2026-01-01T08:00:00Z}}"
    (found,) = manifests.parse(text, source="x").found
    assert found.obj["metadata"]["creationTimestamp"] == "2026-01-01T08:00:00Z"


def test_an_object_has_its_line() -> None:
    text = b"""# two documents
apiVersion: v1
kind: Namespace
metadata: {name: first}
---
apiVersion: v1
kind: List
items:
  - {apiVersion: v1, kind: Namespace, metadata: {name: second}}
  - apiVersion: v1
    kind: Namespace
    metadata: {name: third}
"""
    found = [str(manifest) for manifest in manifests.parse(text, source="a.yaml").found]
    assert found == ["a.yaml:2: Namespace first", "a.yaml:9: Namespace second", "a.yaml:10: Namespace third"]


def test_json_and_yaml_in_flow_style_are_distinguished() -> None:
    for text in (b'{"apiVersion": "v1", "kind": "Pod"}', b'{"apiVersion": v1, kind: Pod}\n---\n'):
        assert [manifest.kind for manifest in manifests.parse(text, source="x").found] == ["Pod"]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(
            b"kind: Job\nmetadata:\n  name: j\nspec: [1\nb: 2",
            r"^team\.yaml:5: Job j: not YAML: did not find expected ',' or '\]'$",
            id="broken YAML names file, line and object",
        ),
        pytest.param(
            b"{apiVersion: v1, kind: Job}\n---\nkind: Pod\nmetadata: {name: p}\n\tx: 1\n---\nkind: Node",
            r"^team\.yaml:5: Pod p: not YAML: .*$",
            id="the object is the one of the broken document",
        ),
        pytest.param(b"a: \xff\xfe", r"^team\.yaml: not YAML: .*$", id="bytes that are no text"),
        pytest.param(b"a: !!python/name:os.system x", r"^team\.yaml:1: not YAML: could not", id="tags are refused"),
        pytest.param(b"- 1", r"^team\.yaml:1: a document is a list, not an object$", id="a list of numbers"),
        pytest.param(b"just words", r"^team\.yaml:1: a document is a str, not an object$", id="a sentence"),
        pytest.param(
            b"kind: Job", r"^team\.yaml:1: Job \(unnamed\): an object needs apiVersion and kind$", id="no version"
        ),
        pytest.param(
            QUEUE.replace(b"v1beta1", b"v9"),
            r"^team\.yaml:1: ClusterQueue red: .*v9.* is not served; use v1beta2 or v1beta1$",
            id="an unknown version",
        ),
        pytest.param(
            QUEUE.replace(b"{cohort: company}", b"{admissionChecks: 7}"),
            r"^team\.yaml:1: ClusterQueue red: not the shape of kueue",
            id="an older version of the wrong shape",
        ),
    ],
)
def test_an_unreadable_object_is_reported_with_place_and_reason(text: bytes, want: str) -> None:
    unusable = manifests.parse(text, source="team.yaml").unusable
    assert [each for each in unusable if re.search(want, str(each))]


def test_what_is_broken_leaves_the_other_documents_alone() -> None:
    text = b"{apiVersion: v1, kind: Pod}\n---\nkind: [\n---\n# a comment\n---\n- 1\n---\n{apiVersion: v1, kind: Node}\n"
    given = manifests.parse(text, source="x")
    assert [(manifest.kind, manifest.source) for manifest in given.found] == [("Pod", "x:1"), ("Node", "x:9")]
    assert [each.place for each in given.unusable] == ["x:4", "x:7"]


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_path_without_manifests_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=name):
        manifests.read([str(tmp_path / name)])
