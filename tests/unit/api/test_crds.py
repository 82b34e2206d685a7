# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from multikueue.api.clusterqueue import ClusterQueueSpec
from multikueue.api.crds import CONVERTED_KINDS, ConversionWebhook, definition, manifests
from multikueue.api.meta import WireModel
from multikueue.api.resource import CLUSTER_QUEUES, OWN_RESOURCES, REMOTE_ASSIGNMENTS, RESOURCE_FLAVORS
from multikueue.api.structural import object_schema

ROOT = Path(__file__).resolve().parents[3]
KUBECTL_APPLY_LIMIT = 262_144
"""The most that an object's annotations may hold, and `kubectl apply` writes the whole manifest into one."""


def _nodes(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield schema
    for child in schema.get("properties", {}).values():
        yield from _nodes(child)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from _nodes(schema[key])


def _all_nodes() -> Iterator[dict[str, Any]]:
    for manifest in manifests():
        for version in manifest["spec"]["versions"]:
            yield from _nodes(version["schema"]["openAPIV3Schema"])


def test_the_checked_in_definitions_match_the_models() -> None:
    done = subprocess.run(
        [sys.executable, "hack/gen_crds.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_file_that_is_out_of_date_is_named(tmp_path: Path) -> None:
    command = [sys.executable, "hack/gen_crds.py", "--out", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    changed = tmp_path / "kueue.x-k8s.io_cohorts.yaml"
    changed.write_text(changed.read_text().replace("Cohort", "Kohort", 1))
    (tmp_path / "stray.yaml").write_text("kind: Stray\n")
    done = subprocess.run([*command, "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "kueue.x-k8s.io_cohorts.yaml is out of date" in done.stderr
    assert "stray.yaml is out of date" in done.stderr


def test_every_schema_node_is_structural() -> None:
    for node in _all_nodes():
        assert "type" in node or node.get("x-kubernetes-int-or-string"), node
        assert "title" not in node
        assert "$ref" not in node


def test_every_required_field_exists() -> None:
    for node in _all_nodes():
        assert set(node.get("required", ())) <= node.get("properties", {}).keys()


def test_every_key_of_a_list_map_is_required_or_defaulted() -> None:
    # What the API server itself demands; a key of a pod's port list is defaulted by Kubernetes in the same way.
    for node in _all_nodes():
        for key in node.get("x-kubernetes-list-map-keys", ()):
            items = node["items"]
            assert key in items.get("required", ()) or "default" in items["properties"][key], node


@pytest.mark.parametrize("manifest", manifests(), ids=lambda manifest: manifest["metadata"]["name"])
def test_a_definition_fits_into_the_annotation_of_kubectl_apply(manifest: dict[str, Any]) -> None:
    assert len(orjson.dumps(manifest)) < KUBECTL_APPLY_LIMIT


@pytest.mark.parametrize("manifest", manifests(), ids=lambda manifest: manifest["metadata"]["name"])
def test_one_version_is_stored_and_it_is_the_newest(manifest: dict[str, Any]) -> None:
    versions = manifest["spec"]["versions"]
    assert [version["name"] for version in versions if version["storage"]] == [versions[-1]["name"]]
    assert all(version["served"] for version in versions)


def test_the_older_version_is_there_with_a_warning() -> None:
    old = definition(CLUSTER_QUEUES)["spec"]["versions"][0]
    assert old["name"] == "v1beta1"
    assert old["deprecated"]
    assert old["deprecationWarning"] == "This version is deprecated. Use v1beta2 instead."
    assert old["additionalPrinterColumns"][0]["jsonPath"] == ".spec.cohort"


def test_conversion_is_a_webhook_for_the_kinds_whose_shape_changed() -> None:
    converted = {m["spec"]["names"]["kind"] for m in manifests() if "conversion" in m["spec"]}
    assert converted == CONVERTED_KINDS
    assert "conversion" not in definition(RESOURCE_FLAVORS)["spec"]


@pytest.mark.parametrize(
    ("webhook", "want"),
    [
        pytest.param(
            ConversionWebhook(),
            {"service": {"namespace": "kueue-system", "name": "kueue-webhook-service", "path": "/convert"}},
            id="by the service of Kueue",
        ),
        pytest.param(
            ConversionWebhook(url="https://127.0.0.1:9443/convert", ca_bundle="Q0E="),
            {"url": "https://127.0.0.1:9443/convert", "caBundle": "Q0E="},
            id="by URL on a devcluster",
        ),
    ],
)
def test_the_conversion_webhook_is_configurable(webhook: ConversionWebhook, want: dict[str, Any]) -> None:
    conversion = definition(CLUSTER_QUEUES, webhook=webhook)["spec"]["conversion"]
    assert conversion["webhook"]["clientConfig"] == want
    assert conversion["webhook"]["conversionReviewVersions"] == ["v1"]


def test_our_own_kinds_have_one_version() -> None:
    for resource in OWN_RESOURCES:
        spec = definition(resource)["spec"]
        assert [version["name"] for version in spec["versions"]] == ["v1alpha1"]
        assert spec["versions"][0]["subresources"] == {"status": {}}


def test_an_assignment_keeps_what_it_carries_unread() -> None:
    schema = definition(REMOTE_ASSIGNMENTS)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    spec, status = schema["properties"]["spec"]["properties"], schema["properties"]["status"]["properties"]
    for node in (spec["workloadSpec"], spec["job"]["properties"]["manifest"], status["jobStatus"]):
        assert node["x-kubernetes-preserve-unknown-fields"] is True


def test_two_definitions_do_not_share_their_parts() -> None:
    changed = definition(CLUSTER_QUEUES)
    changed["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"].clear()
    assert definition(CLUSTER_QUEUES)["spec"]["versions"][1]["schema"]["openAPIV3Schema"]["properties"]


def test_defaults_come_from_the_models() -> None:
    properties = object_schema(ClusterQueueSpec)["properties"]
    assert properties["queueingStrategy"]["default"] == "BestEffortFIFO"
    assert properties["preemption"]["default"] == {}
    assert properties["fairSharing"]["properties"]["weight"]["default"] == 1
    assert "default" not in properties["cohortName"]


def test_an_annotation_without_a_rule_is_an_error_with_its_field() -> None:
    class Odd(WireModel):
        either: int | str = 0

    with pytest.raises(TypeError, match=r"Odd\.either: a structural schema cannot express"):
        object_schema(Odd)
