# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from multikueue.core.errors import BadInput
from multikueue.simulation import manifests

QUEUE = "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {name: red}\nspec: {cohort: company}\n"


def test_a_folder_is_read_file_by_file_in_order_of_name(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("{apiVersion: v1, kind: Namespace, metadata: {name: second}}\n---\n---\n")
    (tmp_path / "a.json").write_text('{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "first"}}')
    (tmp_path / "notes.txt").write_text("not a manifest")
    found = manifests.read([str(tmp_path)])
    assert [manifest.obj["metadata"]["name"] for manifest in found] == ["first", "second"]


def test_a_list_is_taken_apart() -> None:
    text = "{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Namespace, metadata: {name: inner}}]}"
    assert [m.kind for m in manifests.parse(text, source="x")] == ["Namespace"]


def test_an_older_version_is_converted() -> None:
    (found,) = manifests.parse(QUEUE, source="x")
    assert found.obj["apiVersion"] == "kueue.x-k8s.io/v1beta2"
    assert found.obj["spec"] == {"cohortName": "company"}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("a: [1\nb: 2", r"team\.yaml: line 2 not YAML", id="broken YAML names file and line"),
        pytest.param("- 1", r"team\.yaml: a document is a list", id="a list of numbers is no object"),
        pytest.param("kind: Job", r"team\.yaml: Job \(unnamed\): an object needs apiVersion and kind", id="no version"),
        pytest.param("{apiVersion: v1, kind: Pod}", r"needs metadata\.name", id="no name"),
        pytest.param(
            QUEUE.replace("v1beta1", "v9"), r"ClusterQueue red: .*v9.* is not served", id="an unknown version"
        ),
    ],
)
def test_what_cannot_be_read_says_where_and_why(text: str, want: str) -> None:
    with pytest.raises(BadInput, match=want):
        list(manifests.parse(text, source="team.yaml"))


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_path_without_manifests_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=name):
        manifests.read([str(tmp_path / name)])
