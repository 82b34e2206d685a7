# SPDX-License-Identifier: Apache-2.0
"""The generic adapter of kinds that another controller queues."""

from __future__ import annotations

from typing import Any

import pytest

from multikueue.api.configuration_file import load
from multikueue.core.errors import BadInput
from multikueue.jobs.declared.external import external_integration, usual_plural
from multikueue.jobs.framework.protocol import PodSetInfo
from multikueue.jobs.framework.registry import JobRegistry
from tests.unit.jobs.declared.builders import IDENTITY, written

PIPELINE: dict[str, Any] = {
    "apiVersion": "tekton.dev/v1",
    "kind": "PipelineRun",
    "metadata": {"name": "p", "namespace": "ns", "uid": "u", "ownerReferences": [{}]},
    "spec": {"managedBy": "kueue.x-k8s.io/multikueue", "pipelineRef": {"name": "build"}},
}


def test_the_remote_job_is_the_spec_without_managed_by() -> None:
    kind = external_integration("PipelineRun.v1.tekton.dev", plural="pipelineruns")
    assert kind.managed_by(PIPELINE) == "kueue.x-k8s.io/multikueue"
    remote = kind.remote_manifest(PIPELINE, [PodSetInfo(name="any", count=1)], identity=IDENTITY)
    assert (remote["apiVersion"], remote["kind"]) == ("tekton.dev/v1", "PipelineRun")
    assert remote["spec"] == {"pipelineRef": {"name": "build"}}
    assert "ownerReferences" not in remote["metadata"]


def test_the_whole_status_is_shown_and_the_rest_is_left_to_the_other_controller() -> None:
    kind = external_integration("PipelineRun.v1.tekton.dev", plural="pipelineruns")
    sync = kind.sync_status(PIPELINE, {"conditions": [{"type": "Succeeded", "status": "True"}], "steps": 3})
    assert written(PIPELINE, sync.write)["status"]["steps"] == 3
    assert kind.pod_sets(PIPELINE) == ()
    assert kind.start(PIPELINE, ()).body == {}
    assert kind.stop(PIPELINE, ()) is None
    assert kind.finished(PIPELINE) is None


@pytest.mark.parametrize("name", ["PipelineRun", "PipelineRun.v1", "PipelineRun.v1.", "pipeline.v1.tekton.dev"])
def test_a_name_that_is_no_kind_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=r"multiKueue\.externalFrameworks: "):
        external_integration(name, plural="pipelineruns")


@pytest.mark.parametrize(
    ("kind", "plural"),
    [
        ("PipelineRun", "pipelineruns"),
        ("Batch", "batches"),
        ("Policy", "policies"),
        ("Gateway", "gateways"),
        ("Ingress", "ingresses"),
    ],
)
def test_the_plural_is_the_usual_one_unless_it_is_given(kind: str, plural: str) -> None:
    assert usual_plural(kind) == plural
    assert external_integration(f"{kind}.v1.example.com").resource.plural == plural
    assert external_integration(f"{kind}.v1.example.com", plural="others").resource.plural == "others"


def registry(text: str) -> JobRegistry:
    return JobRegistry.configured(
        load(f"multiKueue: {{externalFrameworks: [{{name: Run.v1.ci.example.com}}]}}\n{text}")
    )


def test_an_external_kind_is_sent_and_watched_and_not_queued() -> None:
    found = registry("")
    assert [each.framework for each in found] == ["batch/job"]
    assert [each.framework for each in found.dispatched] == ["batch/job", "ci.example.com/run"]
    assert found.followed == (*found, *found.external)
    assert found.for_kind("ci.example.com/v1", "Run") is None
    assert found.sent_kind("ci.example.com/v1", "Run") == found.external[0]
    assert found.sent_kind("ci.example.com/v1", "Other") is None
    assert not found.is_external("ci.example.com/v1", "Run")


def test_an_external_kind_needs_its_feature_gate() -> None:
    with pytest.raises(BadInput, match=r"needs the feature gate MultiKueueAdaptersForCustomJobs, which is off"):
        registry("featureGates: {MultiKueueAdaptersForCustomJobs: false}")


def test_a_kind_with_a_declaration_is_not_sent_as_an_external_one() -> None:
    spec = (
        "{resource: {group: ci.example.com, versions: [v1], kind: Run, plural: runs}, suspend: {path: $.spec.suspend},"
    )
    spec += " podSets: [{name: main, template: $.spec.template}]}"
    kind = (
        f"{{apiVersion: multikueue.io/v1alpha1, kind: JobKind, metadata: {{name: ci.example.com/run}}, spec: {spec}}}"
    )
    with pytest.raises(BadInput, match=r"Run\.v1\.ci\.example\.com is a kind of the framework ci\.example\.com/run"):
        registry(f"integrations: {{declarations: [{kind}]}}")
