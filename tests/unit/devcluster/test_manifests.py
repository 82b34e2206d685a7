# SPDX-License-Identifier: Apache-2.0
"""Manifests are read from files and folders and put in an order in which they can be created."""

from __future__ import annotations

from pathlib import Path

import pytest

from devcluster import manifests
from devcluster.federation import enrolment
from multikueue.core.errors import BadInput

EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "two-teams"


def test_a_folder_is_read_in_the_order_of_its_file_names(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("{apiVersion: v1, kind: Secret}\n---\n---\n{apiVersion: v1, kind: Pod}\n")
    (tmp_path / "a.yaml").write_text("{apiVersion: v1, kind: Namespace}\n")
    assert [found["kind"] for found in manifests.read(tmp_path)] == ["Namespace", "Secret", "Pod"]


def test_a_document_that_is_no_object_names_its_file(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("just text\n")
    with pytest.raises(BadInput, match=r"bad\.yaml: a document is not a Kubernetes object"):
        manifests.read(tmp_path / "bad.yaml")


def test_namespaces_and_definitions_come_first() -> None:
    given = [{"kind": kind} for kind in ("Job", "Namespace", "Secret", "CustomResourceDefinition")]
    ordered = [found["kind"] for found in manifests.in_order(given)]
    assert ordered == ["Namespace", "CustomResourceDefinition", "Job", "Secret"]


def test_the_two_team_example_is_in_the_stored_version() -> None:
    found = manifests.read(EXAMPLE)
    versions = {each["apiVersion"] for each in found if each["kind"] != "Namespace"}
    queues = [each for each in found if each["kind"] == "ClusterQueue"]
    assert versions == {"kueue.x-k8s.io/v1beta2"}
    assert [queue["spec"]["cohortName"] for queue in queues] == ["teams", "teams"]


def test_a_worker_is_enrolled_with_a_kubeconfig_that_leads_nowhere() -> None:
    secret, cluster = enrolment.manifests("worker-1")
    assert cluster["metadata"]["annotations"] == {"multikueue.io/transport": "agent"}
    assert cluster["spec"]["clusterSource"]["kubeConfig"]["location"] == secret["metadata"]["name"]
