# SPDX-License-Identifier: Apache-2.0
"""What a declaration makes of jobs, beyond the shipped kinds: hostile shapes, conflicts, overrides, partial status."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from multikueue.api.configuration_file import load
from multikueue.core.errors import BadInput
from multikueue.jobs.declared.integration import DeclaredIntegration
from multikueue.jobs.declared.mistakes import DeclarationMistakes
from multikueue.jobs.declared.reading import read_declaration
from multikueue.jobs.declared.shipped import configured_integrations, declared_integrations
from multikueue.jobs.framework.protocol import InjectionConflict, JobIntegration, PodSetInfo, PriorityHint
from multikueue.jobs.framework.traits import Hold
from tests.unit.jobs.declared.builders import IDENTITY, WIDGET, infos, widget, widget_kind, workload, written

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GROUPS = [{"forEach": "$.spec.groups", "name": "$.key", "template": "$.each.template", "count": "$.each.size"}]
TEMPLATE = {"spec": {"containers": [{"name": "c"}]}}


def test_it_is_a_job_integration() -> None:
    kind: JobIntegration = widget_kind(managedBy={"path": "$.spec.managedBy"}, featureGate="WidgetSupport")
    assert kind.framework == "example.com/widget"
    assert kind.resource.path("ns", "w") == "/apis/example.com/v1/namespaces/ns/widgets/w"
    assert (kind.traits.hold, kind.traits.has_managed_by, kind.traits.feature_gate) == (
        Hold.SUSPEND,
        True,
        "WidgetSupport",
    )


class TestPodSets:
    def test_entries_of_an_object_are_pod_sets_named_by_their_keys(self) -> None:
        groups = {"Driver": {"size": 1, "template": TEMPLATE}, "Worker": {"size": "4", "template": TEMPLATE}}
        found = widget_kind(podSets=GROUPS).pod_sets(widget(groups=groups))
        assert [(each["name"], each["count"]) for each in found] == [("driver", 1), ("worker", 4)]

    @pytest.mark.parametrize(
        ("groups", "problem"),
        [
            pytest.param(5, "spec.groups: expected a list or an object, found 5", id="no list"),
            pytest.param({}, "expected pod sets at spec.groups, found none", id="no entries"),
            pytest.param({"a": {}}, "spec.groups.a.template: expected a pod template, found nothing", id="no template"),
            pytest.param({"a": {"template": [], "size": 1}}, "spec.groups.a.template: expected an object", id="a list"),
            pytest.param({"a": {"template": TEMPLATE}}, r"nothing at \$\.each\.size", id="no count"),
            pytest.param(
                {"a": {"template": TEMPLATE, "size": "many"}}, r"\$\.each\.size: expected a whole number", id="a text"
            ),
            pytest.param({"A_B": {"template": TEMPLATE, "size": 1}}, "expected the name of a pod set", id="a bad name"),
            pytest.param(
                {"a": {"template": TEMPLATE, "size": 1}, "A": {"template": TEMPLATE, "size": 1}},
                'two pod sets have the name "a": spec.groups.a.template and spec.groups.A.template',
                id="one name twice",
            ),
            pytest.param(
                {f"g{index}": {"template": TEMPLATE, "size": 1} for index in range(19)},
                "expected at most 18 pod sets",
                id="too many",
            ),
        ],
    )
    def test_a_job_without_a_schema_is_refused_with_the_path(self, groups: Any, problem: str) -> None:
        with pytest.raises(BadInput, match=problem):
            widget_kind(podSets=GROUPS).pod_sets(widget(groups=groups))

    @pytest.mark.parametrize(
        ("template", "path"),
        [
            pytest.param({"metadata": [1]}, "metadata", id="metadata is a list"),
            pytest.param({"metadata": {"labels": {"a": 1}}}, r"metadata.labels\[.a.\]", id="a label is a number"),
            pytest.param({"spec": "x"}, "spec", id="spec is a text"),
            pytest.param({"spec": {"nodeSelector": ["a"]}}, "spec.nodeSelector", id="the node selector is a list"),
            pytest.param({"spec": {"tolerations": {"a": 1}}}, "spec.tolerations", id="the tolerations are an object"),
            pytest.param({"spec": {"containers": [1]}}, r"spec.containers\[0\]", id="a container is a number"),
        ],
    )
    def test_a_template_of_another_shape_is_refused_with_the_path(self, template: Any, path: str) -> None:
        job = widget(template=template)
        with pytest.raises(BadInput, match=rf"^spec.template.{path}: expected"):
            widget_kind().pod_sets(job)
        assert widget_kind().priority(job) == PriorityHint()

    def test_topology_requests_come_from_annotations(self) -> None:
        template = TEMPLATE | {"metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}}
        pod_set = {
            "name": "main",
            "template": "$.spec.template",
            "podIndexLabel": "example.com/index",
            "subGroupIndexLabel": "example.com/group",
            "subGroupCount": "$.spec.size",
        }
        (found,) = widget_kind(podSets=[pod_set]).pod_sets(widget(template=template))
        assert found["topologyRequest"] == {
            "required": "rack",
            "podIndexLabel": "example.com/index",
            "subGroupIndexLabel": "example.com/group",
            "subGroupCount": 3,
        }


class TestStartAndStop:
    def test_a_list_is_written_whole(self) -> None:
        kind = widget_kind(podSets=[{**GROUPS[0], "name": "$.each.name"}])
        job = widget(groups=[{"name": "a", "size": 1, "template": TEMPLATE, "other": 5}])
        write = kind.start(job, infos(job, kind))
        assert [each["other"] for each in write.body["spec"]["groups"]] == [5]
        assert write.body["spec"]["suspend"] is False

    def test_a_field_whose_false_means_suspended(self) -> None:
        kind = widget_kind(suspend={"path": "$.spec.enabled", "value": False})
        job = widget(enabled=False)
        assert kind.is_suspended(job)
        started = written(job, kind.start(job, ()))
        assert started["spec"]["enabled"] is True
        assert written(started, kind.stop(started, ()))["spec"]["enabled"] is False

    def test_a_conflict_with_the_job_is_not_overwritten(self) -> None:
        job = widget(template={"spec": {"nodeSelector": {"pool": "mine"}, "containers": []}})
        with pytest.raises(InjectionConflict, match='nodeSelector "pool" is already "mine"'):
            widget_kind().start(job, infos(job, widget_kind()))

    def test_an_admission_of_other_pod_sets_does_not_start_the_job(self) -> None:
        with pytest.raises(InjectionConflict, match="the job has the pod sets main, the Workload has other"):
            widget_kind().start(widget(), [PodSetInfo(name="other", count=1)])

    def test_a_change_of_the_user_in_a_stopped_job_is_kept(self) -> None:
        kind, job = widget_kind(), widget()
        pod_sets = workload(job, kind)["spec"]["podSets"]
        assert kind.stop(widget(template={"spec": {"nodeSelector": {"a": "b"}}}), pod_sets) is None

    def test_a_kind_whose_pods_are_queued_is_not_written_to(self) -> None:
        kind = widget_kind(hold="Pods", suspend=None)
        assert kind.start(widget(), infos(widget(), kind)).body == {}
        assert kind.stop(widget(), ()) is None
        assert not kind.is_suspended(widget())


class TestStates:
    def test_quota_is_not_released_while_the_number_of_pods_cannot_be_read(self) -> None:
        kind = widget_kind(active={"positive": "$.status.pods"})
        assert kind.is_active(widget(status={"pods": "many"}))
        assert not kind.is_active(widget(status={"pods": 0}))

    def test_without_a_declaration_a_job_is_active_until_it_is_suspended_or_has_ended(self) -> None:
        kind = widget_kind(finished=[{"when": {"condition": "Done"}, "result": "Succeeded"}])
        done = {"conditions": [{"type": "Done", "status": "True"}]}
        assert kind.is_active(widget(suspend=False))
        assert not kind.is_active(widget())
        assert not kind.is_active(widget(suspend=False, status=done))

    def test_reclaimable_pods_are_at_most_those_of_the_pod_set(self) -> None:
        pod_set = {"name": "main", "template": "$.spec.template", "count": 3, "reclaimable": "$.status.done"}
        kind = widget_kind(podSets=[pod_set])
        assert [each.count for each in kind.reclaimable(widget(status={"done": 9}))] == [3]
        assert kind.reclaimable(widget(status={"done": 0})) == ()

    def test_pods_of_a_kind_that_declares_nothing_are_not_ready(self) -> None:
        assert not widget_kind().pods_ready(widget())

    def test_priority_is_that_of_the_label_the_job_and_the_pods(self) -> None:
        kind = widget_kind(priorityClass="$.spec.class")
        job = widget(
            labels={"kueue.x-k8s.io/priority-class": "high"},
            template={"spec": {"priorityClassName": "pods"}},
            **{"class": "job"},
        )
        assert kind.priority(job) == PriorityHint(workload_class="high", job_class="job", pod_class="pods")


class TestStatus:
    def test_only_the_declared_fields_are_shown(self) -> None:
        kind = widget_kind(status={"shown": ["$.status.state", "$.status.counts.ready"]})
        local = widget(status={"own": 1, "state": "Old"})
        sync = kind.sync_status(local, {"state": "New", "counts": {"ready": 2, "secret": 3}, "own": 5})
        assert written(local, sync.write)["status"] == {"own": 1, "state": "New", "counts": {"ready": 2}}
        gone = kind.sync_status(widget(status={"own": 1, "state": "Old"}), {})
        assert written(local, gone.write)["status"] == {"own": 1}

    @pytest.mark.parametrize("status", [None, "x", [1]])
    def test_a_remote_status_of_another_shape_is_refused(self, status: Any) -> None:
        with pytest.raises(BadInput, match="status: expected an object"):
            widget_kind().sync_status(widget(), status)

    def test_nothing_is_marked_as_suspended(self) -> None:
        assert widget_kind().suspended_status(widget(), now=NOW) is None


class TestMetadata:
    def test_a_remote_job_has_no_metadata_of_the_hub(self) -> None:
        job = widget(labels={"team": "a", "multikueue.io/forged": "x"})
        job["metadata"] |= {
            "finalizers": ["f"],
            "ownerReferences": [{}],
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
                "kueue.x-k8s.io/stopping": "true",
                "multikueue.io/epoch": "99",
                "mine": "1",
            },
        }
        metadata = widget_kind().remote_manifest(job, (), identity=IDENTITY)["metadata"]
        assert set(metadata) == {"name", "namespace", "labels", "annotations"}
        assert metadata["labels"] == {"team": "a", "kueue.x-k8s.io/multikueue-origin": "mk"}
        assert metadata["annotations"]["multikueue.io/epoch"] == "3"
        assert metadata["annotations"]["mine"] == "1"
        assert "kubectl.kubernetes.io/last-applied-configuration" not in metadata["annotations"]
        assert "kueue.x-k8s.io/stopping" not in metadata["annotations"]

    def test_pods_are_found_by_the_declared_labels(self) -> None:
        labels = {"example.com/widget": "$.metadata.name", "example.com/kind": "Widget"}
        assert widget_kind(pods={"labels": labels}).pod_labels(widget()) == {
            "example.com/widget": "w",
            "example.com/kind": "Widget",
        }
        assert widget_kind().pod_labels(widget()) == {}

    def test_parents_are_kinds(self) -> None:
        assert widget_kind(parents=[{"group": "ray.io", "kind": "RayJob"}]).parents == (("ray.io", "RayJob"),)


def test_all_refusals_of_a_job_are_returned() -> None:
    rule = {"when": {"path": "$.spec.forbidden"}, "path": "$.spec.forbidden", "message": "cannot be set"}
    kind = widget_kind(validation={"refused": [rule]})
    assert kind.job_refusals(widget(forbidden=True, size=-1)) == (
        "$.spec.forbidden: cannot be set",
        "$.spec.size: expected a whole number from 0 to 2147483647, found -1",
    )


def test_a_declaration_of_an_administrator_replaces_the_shipped_one() -> None:
    own = read_declaration(WIDGET.replace("example.com/widget", "ray.io/rayjob"), origin="own.yaml")
    found = declared_integrations([own])
    assert found["ray.io/rayjob"].resource.kind == "Widget"
    assert type(found["ray.io/rayjob"]) is DeclaredIntegration
    assert declared_integrations()["ray.io/rayjob"].resource.kind == "RayJob"


class TestConfigured:
    def test_declarations_of_the_configuration_are_added_to_the_shipped_ones(self) -> None:
        found = configured_integrations([yaml.safe_load(WIDGET)])
        assert found.keys() - declared_integrations().keys() == {"example.com/widget"}

    def test_mistakes_of_all_of_them_have_their_paths_in_the_configuration(self) -> None:
        one, two = yaml.safe_load(WIDGET), yaml.safe_load(WIDGET)
        one["spec"]["extra"] = 1
        two["spec"]["podSets"][0]["template"] = "spec.template"
        with pytest.raises(DeclarationMistakes) as caught:
            configured_integrations([one, two, {}])
        assert [each.partition(": ")[0] for each in caught.value.problems] == [
            "integrations.declarations[0].spec.extra",
            "integrations.declarations[1].spec.podSets[0].template",
            *(f"integrations.declarations[2].{field}" for field in ("apiVersion", "kind", "metadata", "spec")),
        ]

    @pytest.mark.parametrize(
        ("group", "kind", "owner"),
        [
            pytest.param("ray.io", "RayJob", "ray.io/rayjob", id="a shipped kind"),
            pytest.param("batch", "Job", "batch/job", id="a kind in Python"),
        ],
    )
    def test_a_kind_cannot_have_two_integrations(self, group: str, kind: str, owner: str) -> None:
        document = yaml.safe_load(WIDGET)
        document["spec"]["resource"] |= {"group": group, "kind": kind}
        with pytest.raises(DeclarationMistakes, match=f"{kind} of {group} is a job of {owner} already"):
            configured_integrations([document])

    def test_a_name_cannot_be_declared_twice(self) -> None:
        with pytest.raises(DeclarationMistakes, match=r"example\.com/widget is declared twice"):
            configured_integrations([yaml.safe_load(WIDGET)] * 2)

    def test_the_configuration_accepts_the_framework_of_a_declaration(self) -> None:
        text = yaml.safe_dump(
            {"integrations": {"frameworks": ["example.com/widget"], "declarations": [yaml.safe_load(WIDGET)]}}
        )
        assert load(text).integrations.declarations == (yaml.safe_load(WIDGET),)
        with pytest.raises(BadInput, match=r"integrations\.frameworks\[0\]: expected one of"):
            load(yaml.safe_dump({"integrations": {"frameworks": ["example.com/widget"]}}))


class TestForwardedFields:
    """Fields that may change while a job runs."""

    KIND = widget_kind(remote={"forwarded": ["$.spec.config", "$.spec.serve.routes"]})

    def test_the_remote_job_gets_only_these_fields_of_the_job(self) -> None:
        remote = widget(config="one", suspend=False, serve={"routes": ["a"], "port": 80})
        manifest = widget(config="two", size=100, serve={"routes": ["b"], "port": 443})
        patch = self.KIND.forwarded_patch(remote, manifest)
        assert patch == {"spec": {"config": "two", "serve": {"routes": ["b"]}}}

    def test_a_field_that_was_removed_is_removed(self) -> None:
        patch = self.KIND.forwarded_patch(widget(config="one", serve={"routes": [], "port": 80}), widget())
        assert patch == {"spec": {"config": None, "serve": {"routes": None}}}

    def test_nothing_is_written_while_the_fields_are_equal(self) -> None:
        assert self.KIND.forwarded_patch(widget(config="one", size=1), widget(config="one", size=9)) is None
        assert widget_kind().forwarded_patch(widget(config="one"), widget(config="two")) is None

    def test_the_digest_changes_with_these_fields_only(self) -> None:
        digest = self.KIND.forwarded_digest
        assert digest(widget(config="one")) == digest(widget(config="one", size=9))
        assert digest(widget(config="one")) != digest(widget(config="two"))
        assert digest(widget(serve={"routes": 1})) != digest(widget(serve={"routes": "1"}))
        assert widget_kind().forwarded_digest(widget(config="one")) == ""

    @pytest.mark.parametrize("hostile", ["x", 5, [], {"config": {"deep": [{"a": None}]}}, {"serve": "no object"}])
    def test_a_spec_of_any_shape_is_read(self, hostile: Any) -> None:
        changed = {**widget(), "spec": hostile}
        assert self.KIND.forwarded_digest(changed)
        assert self.KIND.forwarded_patch(widget(), changed) is None or isinstance(hostile, dict)

    @pytest.mark.parametrize(
        ("paths", "problem"),
        [
            pytest.param(["$.status.x"], r"expected a path below \$\.spec", id="the status"),
            pytest.param(["$.metadata.labels"], r"expected a path below \$\.spec", id="metadata"),
            pytest.param(["$.spec"], r"expected a path below \$\.spec", id="the whole spec"),
            pytest.param(["$.spec.parts[*].x"], "without wildcards", id="many fields"),
            pytest.param(["$.spec.suspend"], "it is part of suspend", id="what suspends it"),
            pytest.param(["$.spec.template"], r"it is part of podSets\[0\]\.template", id="its pods"),
            pytest.param(["$.spec.template.spec.containers"], r"part of podSets\[0\]\.template", id="of its pods"),
            pytest.param(["$.spec.size"], r"part of podSets\[0\]\.count", id="their count"),
        ],
    )
    def test_fields_that_quota_or_the_manager_decides_about_are_refused(self, paths: list[str], problem: str) -> None:
        with pytest.raises(DeclarationMistakes, match=problem):
            widget_kind(remote={"forwarded": paths})

    def test_a_field_that_is_not_sent_is_not_forwarded(self) -> None:
        with pytest.raises(DeclarationMistakes, match="is not sent, as strip says"):
            widget_kind(remote={"strip": ["$.spec.config"], "forwarded": ["$.spec.config.x"]})
