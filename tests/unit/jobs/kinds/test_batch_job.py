# SPDX-License-Identifier: Apache-2.0
"""batch/v1 Job as pod sets, started, stopped, ended, and copied to a worker."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from multikueue.api.constants import ORIGIN_LABEL
from multikueue.core.errors import BadInput
from multikueue.jobs.framework.capabilities import ForwardingKind
from multikueue.jobs.framework.pod_templates import original_infos, pod_set_infos
from multikueue.jobs.framework.protocol import InjectionConflict, JobEnd, PodSetInfo, Reclaimable, RemoteIdentity
from multikueue.jobs.framework.registry import INTEGRATIONS, JobRegistry
from multikueue.jobs.framework.workloads import Priority, workload_for, workload_name
from multikueue.jobs.kinds.batch_job import BATCH_JOB, BatchJob

IDENTITY = RemoteIdentity(
    workload_name="job-j-12345", origin="mk", epoch=3, manager_uid="m", cluster="w1", assignment="a"
)


def job(
    *, spec: Any = None, status: Any = None, annotations: Any = None, labels: Any = None, pod: Any = None
) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "j",
            "namespace": "ns",
            "uid": "u",
            "labels": {"kueue.x-k8s.io/queue-name": "q"} | (labels or {}),
            "annotations": annotations or {},
        },
        "spec": {
            "parallelism": 3,
            "completions": 3,
            "suspend": True,
            "managedBy": "kueue.x-k8s.io/multikueue",
            "ttlSecondsAfterFinished": 60,
            "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
            "template": {
                "metadata": {"labels": {"batch.kubernetes.io/controller-uid": "u", "job-name": "j", "app": "x"}},
                "spec": {"containers": [{"name": "c"}], "restartPolicy": "Never"} | (pod or {}),
            },
        }
        | (spec or {}),
        "status": status or {},
    }


def info(**changes: Any) -> PodSetInfo:
    return replace(PodSetInfo(name="main", count=3), **changes)


def merged(old: Any, patch: Any) -> Any:
    """RFC 7386, as an API server applies it."""
    if not isinstance(patch, dict):
        return patch
    out = copy.deepcopy(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            out.pop(key, None)
        else:
            out[key] = merged(out.get(key), value)
    return out


def wl(of: dict[str, Any], **status: Any) -> dict[str, Any]:
    return workload_for(of, BATCH_JOB, priority=Priority()) | {"status": status}


class TestPodSets:
    @pytest.mark.parametrize(
        ("spec", "want"),
        [
            pytest.param({}, 3, id="as many as run at once"),
            pytest.param({"completions": 2}, 2, id="never more than there is work"),
            pytest.param({"completions": None}, 3, id="a work queue"),
        ],
    )
    def test_count(self, spec: Any, want: int) -> None:
        (pod_set,) = BATCH_JOB.pod_sets(job(spec=spec))
        assert (pod_set["name"], pod_set["count"]) == ("main", want)
        assert set(pod_set["template"]) == {"metadata", "spec"}

    def test_partial_admission_and_topology_come_from_annotations(self) -> None:
        of = job(annotations={"kueue.x-k8s.io/job-min-parallelism": "2"}, spec={"completionMode": "Indexed"})
        of["spec"]["template"]["metadata"]["annotations"] = {"kueue.x-k8s.io/podset-required-topology": "rack"}
        (pod_set,) = BATCH_JOB.pod_sets(of)
        assert pod_set["minCount"] == 2
        assert pod_set["topologyRequest"] == {
            "required": "rack",
            "podIndexLabel": "batch.kubernetes.io/job-completion-index",
        }

    def test_nonsense_in_an_annotation_names_it(self) -> None:
        with pytest.raises(BadInput, match=r'job-min-parallelism: expected a whole number .* found "x"'):
            BATCH_JOB.pod_sets(job(annotations={"kueue.x-k8s.io/job-min-parallelism": "x"}))


class TestWorkload:
    def test_its_name_is_hashed_over_kind_group_name_and_uid(self) -> None:
        assert (
            workload_name(kind="Job", group="batch", name="j", uid="u") == "job-j-5cf3c"
        )  # printf 'Job\nbatch\nj\nu' | sha1sum
        long = workload_name(kind="Job", group="batch", name="x" * 300, uid="u")
        assert len(long) == 253
        assert len(workload_name(kind="Job", group="batch", name="x" * 300, uid="u", limit=63)) == 63

    def test_its_user_cannot_mark_it_as_that_of_another_cluster(self) -> None:
        """It would hold quota after the job was deleted without it."""
        of = job(labels={ORIGIN_LABEL: "hub", "team": "a"})
        made = workload_for(of, BATCH_JOB, priority=Priority(), labels_to_copy=(ORIGIN_LABEL,))
        assert made["metadata"]["labels"]["team"] == "a"
        assert ORIGIN_LABEL not in made["metadata"]["labels"]

    def test_it_belongs_to_the_job_and_carries_its_queue_priority_and_limit(self) -> None:
        of = job(labels={"kueue.x-k8s.io/max-exec-time-seconds": "60", "team": "a"})
        made = workload_for(of, BATCH_JOB, priority=Priority(value=5, group="kueue.x-k8s.io", kind="W", name="high"))
        assert made["metadata"]["ownerReferences"][0]["uid"] == "u"
        assert made["metadata"]["labels"]["kueue.x-k8s.io/job-uid"] == "u"
        assert made["metadata"]["labels"]["team"] == "a"
        assert made["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
        assert made["spec"] | {"podSets": 0} == {
            "active": True,
            "queueName": "q",
            "podSets": 0,
            "priority": 5,
            "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "W", "name": "high"},
            "maximumExecutionTimeSeconds": 60,
        }

    def test_a_limit_that_is_no_number_is_refused(self) -> None:
        with pytest.raises(BadInput, match="max-exec-time-seconds: expected a number of seconds above 0, found 0"):
            wl(job(labels={"kueue.x-k8s.io/max-exec-time-seconds": "0"}))

    @pytest.mark.parametrize(
        ("changed", "want"),
        [
            pytest.param({}, True, id="the same"),
            pytest.param({"parallelism": 2}, False, id="another count"),
            pytest.param({"suspend": False}, True, id="running or not does not matter"),
        ],
    )
    def test_whether_it_still_matches_the_job(self, changed: Any, want: bool) -> None:
        assert BATCH_JOB.matches(job(spec=changed), wl(job())) is want

    def test_a_started_job_matches_with_what_was_injected(self) -> None:
        extra = info(count=2, node_selector={"a": "b"})
        started = merged(job(), BATCH_JOB.start(job(), [extra]).body)
        assert BATCH_JOB.matches(started, wl(job()), [extra])
        assert not BATCH_JOB.matches(started, wl(job()))


FLAVOR: dict[str, Any] = {
    "spec": {"nodeLabels": {"pool": "spot"}, "tolerations": [{"key": "spot", "operator": "Exists"}]}
}


class TestStartAndStop:
    def admitted(self, **changes: Any) -> dict[str, Any]:
        assignment = {"name": "main", "flavors": {"cpu": "spot"}, "count": 3} | changes
        return wl(job(), admission={"clusterQueue": "cq", "podSetAssignments": [assignment]})

    def test_flavors_go_into_the_template_and_the_job_is_resumed_in_one_write(self) -> None:
        infos = pod_set_infos(self.admitted(), {"spot": FLAVOR})
        started = merged(job(), BATCH_JOB.start(job(), infos).body)
        template = started["spec"]["template"]
        assert started["spec"]["suspend"] is False
        assert template["spec"]["nodeSelector"] == {"pool": "spot"}
        assert template["spec"]["tolerations"] == [{"key": "spot", "operator": "Exists"}]
        assert template["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "main"
        assert template["metadata"]["labels"]["kueue.x-k8s.io/cluster-queue-name"] == "cq"
        assert template["metadata"]["annotations"]["kueue.x-k8s.io/workload"] == wl(job())["metadata"]["name"]

    def test_updates_of_checks_go_in_too(self) -> None:
        workload = self.admitted()
        workload["status"]["admissionChecks"] = [
            {"name": "c", "podSetUpdates": [{"name": "main", "annotations": {"k": "v"}, "nodeSelector": {"z": "1"}}]}
        ]
        (found,) = pod_set_infos(workload, {})
        assert (found.annotations["k"], found.node_selector) == ("v", {"z": "1"})

    @pytest.mark.parametrize("flavors", [{"cpu": "spot", "gpu": "a100"}, {"cpu": "a100", "gpu": "spot"}], ids=str)
    def test_of_two_flavors_with_one_label_the_value_of_the_first_by_name_holds(self, flavors: dict[str, str]) -> None:
        labels = {"spot": FLAVOR, "a100": {"spec": {"nodeLabels": {"pool": "a100", "gpu": "a100"}}}}
        (found,) = pod_set_infos(self.admitted(flavors=flavors), labels)
        assert found.node_selector == {"pool": "a100", "gpu": "a100"}

    def test_two_updates_that_disagree_cannot_start(self) -> None:
        workload = self.admitted()
        workload["status"]["admissionChecks"] = [
            {"name": "c", "podSetUpdates": [{"name": "main", "nodeSelector": {"pool": "x"}}]}
        ]
        with pytest.raises(InjectionConflict, match='conflicting values "spot" and "x" for "pool"'):
            pod_set_infos(workload, {"spot": FLAVOR})

    def test_a_selector_of_the_user_that_disagrees_cannot_start(self) -> None:
        with pytest.raises(InjectionConflict, match='nodeSelector "a" is already "user"'):
            BATCH_JOB.start(job(pod={"nodeSelector": {"a": "user"}}), [info(node_selector={"a": "b"})])

    def test_a_partial_admission_lowers_parallelism(self) -> None:
        assert BATCH_JOB.start(job(), [info(count=2)]).body["spec"]["parallelism"] == 2
        equal = job(annotations={"kueue.x-k8s.io/job-completions-equal-parallelism": "true"})
        assert BATCH_JOB.start(equal, [info(count=2)]).body["spec"]["completions"] == 2

    @pytest.mark.parametrize("equal", ["true", "false"])
    def test_stopping_takes_its_steps_and_ends_with_the_original(self, equal: str) -> None:
        annotations = {"job-min-parallelism": "1", "job-completions-equal-parallelism": equal}
        original = job(annotations={f"kueue.x-k8s.io/{key}": value for key, value in annotations.items()})
        current = merged(original, BATCH_JOB.start(original, [info(count=2, node_selector={"a": "b"})]).body)
        current["status"] = {"active": 2, "startTime": "t"}
        pod_sets = wl(original)["spec"]["podSets"]
        first = BATCH_JOB.stop(current, pod_sets)
        assert first is not None
        current = merged(current, first.body)
        assert current["spec"]["suspend"]
        second = BATCH_JOB.stop(current, pod_sets)
        assert second is not None
        assert (second.subresource, second.body) == ("status", {"status": {"startTime": None}})
        current = merged(current, second.body)
        assert BATCH_JOB.stop(current, pod_sets) is None, "the template is frozen while pods are active"
        current["status"]["active"] = 0
        third = BATCH_JOB.stop(current, pod_sets)
        assert third is not None
        current = merged(current, third.body)
        assert current["spec"] == original["spec"]
        assert current["metadata"] == original["metadata"]
        assert BATCH_JOB.stop(current, pod_sets) is None

    def test_a_size_that_a_user_has_given_it_meanwhile_stays(self) -> None:
        original = job()
        pod_sets = wl(original)["spec"]["podSets"]
        current = merged(original, BATCH_JOB.start(original, [info(count=3)]).body)
        current["spec"]["parallelism"] = 1
        for _ in range(2):
            step = BATCH_JOB.stop(current, pod_sets)
            assert step is not None
            current = merged(current, step.body)
        assert current["spec"]["suspend"]
        assert current["spec"]["parallelism"] == 1

    @pytest.mark.parametrize(
        ("written", "want"),
        [
            pytest.param({}, {"labels": {"app": "x"}, "annotations": {"a": "b"}}, id="nothing"),
            pytest.param({"labels": {"app": "y"}}, {"labels": {"app": "y"}}, id="labels only"),
        ],
    )
    def test_a_job_stopped_for_a_workload_that_reports_little_keeps_what_only_it_has(
        self, written: dict[str, Any], want: dict[str, Any]
    ) -> None:
        original = job(pod={"volumes": [{"name": "v"}], "tolerations": [{"key": "own"}]})
        original["spec"]["template"]["metadata"] = {"labels": {"app": "x"}, "annotations": {"a": "b"}}
        marks = {"kueue.x-k8s.io/podset": "main"}
        flavor = info(node_selector={"a": "b"}, tolerations=({"key": "spot"},), labels=marks)
        current = merged(original, BATCH_JOB.start(original, [flavor]).body)
        current["spec"]["suspend"] = True
        current["metadata"]["annotations"]["kueue.x-k8s.io/stopping"] = "true"
        sparse = {"metadata": written, "spec": {"containers": [{"name": "c"}], "tolerations": [{"key": "own"}]}}
        last = BATCH_JOB.stop(current, [{"name": "main", "count": 3, "template": sparse}])
        assert last is not None
        template = merged(current, last.body)["spec"]["template"]
        assert template["spec"] == original["spec"]["template"]["spec"]
        assert template["metadata"] == want

    def test_infos_of_a_workload_without_admission_are_its_own_counts(self) -> None:
        assert original_infos(wl(job())) == (info(),)


class TestStatus:
    @pytest.mark.parametrize(
        ("status", "want"),
        [
            pytest.param({}, None, id="no conditions"),
            pytest.param(
                {"conditions": [{"type": "Complete", "status": "True", "message": "m"}]},
                JobEnd(reason="Succeeded", message="m"),
                id="complete",
            ),
            pytest.param(
                {"conditions": [{"type": "Failed", "status": "True", "message": "m"}]},
                JobEnd(reason="Failed", message="m"),
                id="failed",
            ),
            pytest.param({"conditions": [{"type": "FailureTarget", "status": "True"}]}, None, id="about to fail"),
        ],
    )
    def test_the_end(self, status: Any, want: JobEnd | None) -> None:
        assert BATCH_JOB.finished(job(status=status)) == want

    @pytest.mark.parametrize(
        ("status", "want"),
        [
            ({}, False),
            ({"ready": 2}, False),
            ({"ready": 3}, True),
            ({"ready": 1, "succeeded": 2}, True),
            ({"ready": 1, "succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["p"]}}, True),
        ],
    )
    def test_pods_ready(self, status: Any, want: bool) -> None:
        assert BATCH_JOB.pods_ready(job(status=status)) is want

    @pytest.mark.parametrize(
        ("status", "want"),
        [
            ({}, False),
            ({"active": 1, "ready": 0, "uncountedTerminatedPods": {}}, False),
            ({"active": 1, "ready": 1}, True),
            ({"failed": 1}, True),
            ({"uncountedTerminatedPods": {"succeeded": ["u"]}}, True),
        ],
        ids=str,
    )
    def test_pods_started(self, status: Any, *, want: bool) -> None:
        assert BATCH_JOB.pods_started(job(status=status)) is want

    def test_pods_are_selected_by_the_labels_of_the_selector(self) -> None:
        assert BATCH_JOB.pod_selector({**job(), "spec": {}}) == ""
        selector = {"matchLabels": {"b": "2", "a": "1"}}
        assert BATCH_JOB.pod_selector({**job(), "spec": {"selector": selector}}) == "a=1,b=2"

    @pytest.mark.parametrize(
        ("spec", "status", "want"),
        [
            pytest.param({}, {"succeeded": 0}, 0, id="none has ended"),
            pytest.param({}, {"succeeded": 1}, 1, id="one place is free"),
            pytest.param({"completions": 10}, {"succeeded": 6}, 0, id="successors take the places"),
            pytest.param({"completions": 10}, {"succeeded": 9}, 2, id="work for one is left"),
            pytest.param({"completionMode": "Indexed"}, {"completedIndexes": "0,2", "failedIndexes": "1"}, 3, id="all"),
            pytest.param({"completionMode": "Indexed", "completions": 5}, {"completedIndexes": "1-3"}, 1, id="ranges"),
            pytest.param({"parallelism": 1}, {"succeeded": 1}, 0, id="not of a job that is not parallel"),
        ],
    )
    def test_reclaimable_pods(self, spec: Any, status: Any, want: int) -> None:
        found = BATCH_JOB.reclaimable(job(spec=spec, status=status))
        assert found == ((Reclaimable(name="main", count=want),) if want else ())

    @pytest.mark.parametrize(("status", "want"), [({}, False), ({"active": 1}, True), ({"terminating": 1}, True)])
    def test_activity(self, status: Any, want: bool) -> None:
        assert BATCH_JOB.is_active(job(status=status)) is want


class TestSize:
    """Of an elastic Job that runs on a worker."""

    ELASTIC: ClassVar = {"kueue.x-k8s.io/elastic-job": "true"}

    def changed(self, remote: Any, manifest: Any, *, elastic: bool = True) -> Any:
        assert isinstance(BATCH_JOB, ForwardingKind)
        annotations = self.ELASTIC if elastic else {}
        return BATCH_JOB.forwarded_patch(job(spec=remote), job(spec=manifest, annotations=annotations))

    def test_the_remote_job_gets_the_parallelism_of_the_manifest(self) -> None:
        assert self.changed({"parallelism": 2}, {"parallelism": 3, "backoffLimit": 7}) == {"spec": {"parallelism": 3}}

    def test_the_completions_of_an_indexed_job_change_with_it(self) -> None:
        before, after = ({"completionMode": "Indexed", "parallelism": n, "completions": n} for n in (2, 3))
        assert self.changed(before, after) == {"spec": {"parallelism": 3, "completions": 3}}

    def test_a_remote_job_of_that_size_is_left_alone(self) -> None:
        assert self.changed({"parallelism": 3}, {"parallelism": 3}) is None

    def test_one_that_is_not_elastic_keeps_its_size(self) -> None:
        assert self.changed({"parallelism": 2}, {"parallelism": 3}, elastic=False) is None

    def test_no_more_pods_are_sent_than_its_slice_has(self) -> None:
        of = job(spec={"parallelism": 9, "completions": None}, annotations=self.ELASTIC)
        assert BATCH_JOB.remote_manifest(of, [info()], identity=IDENTITY)["spec"]["parallelism"] == info().count


class TestRemoteManifest:
    def test_the_remote_job_is_started_marked_and_free_of_what_is_not_for_workers(self) -> None:
        of = job(annotations={"kubectl.kubernetes.io/last-applied-configuration": "{}", "mine": "1"})
        of["metadata"]["ownerReferences"] = [{"uid": "x"}]
        made = BATCH_JOB.remote_manifest(of, [info(node_selector={"a": "b"})], identity=IDENTITY)
        assert set(made["metadata"]) == {"name", "namespace", "labels", "annotations"}
        assert made["metadata"]["labels"]["kueue.x-k8s.io/multikueue-origin"] == "mk"
        assert made["metadata"]["annotations"] == {
            "mine": "1",
            "kueue.x-k8s.io/prebuilt-workload-name": "job-j-12345",
            "multikueue.io/epoch": "3",
            "multikueue.io/manager-uid": "m",
            "multikueue.io/cluster": "w1",
            "multikueue.io/assignment": "a",
        }
        assert set(made["spec"]) == {"parallelism", "completions", "suspend", "template"}
        assert made["spec"]["suspend"] is False
        assert made["spec"]["template"]["spec"]["nodeSelector"] == {"a": "b"}
        assert made["spec"]["template"]["metadata"]["labels"] == {
            "app": "x",
            "kueue.x-k8s.io/multikueue-worker-workload-pod": "true",
        }
        assert "status" not in made

    def test_the_original_is_left_as_it_was(self) -> None:
        of = job()
        before = copy.deepcopy(of)
        BATCH_JOB.remote_manifest(of, [info(node_selector={"a": "b"}, labels={"l": "1"})], identity=IDENTITY)
        assert of == before


class TestRegistry:
    def test_only_enabled_kinds_are_known(self) -> None:
        registry = JobRegistry(["batch/job"])
        assert registry.for_kind("batch/v1", "Job") is BATCH_JOB
        assert registry.for_kind("ray.io/v1", "RayJob") is None
        assert list(registry) == [BATCH_JOB]
        assert JobRegistry([]).for_kind("batch/v1", "Job") is None

    def test_an_unknown_framework_is_refused_by_name(self) -> None:
        with pytest.raises(BadInput, match='"batch/jobs" is not supported by this manager, only batch/job'):
            JobRegistry(["batch/jobs"])

    def test_all_unknown_frameworks_are_named_at_once(self) -> None:
        with pytest.raises(BadInput, match=r'"ray[.]io/raycluster", "ray[.]io/rayjob" are not supported'):
            JobRegistry(["ray.io/raycluster", "batch/job", "ray.io/rayjob"])

    def test_kinds_of_other_controllers_are_known_by_version_and_group(self) -> None:
        registry = JobRegistry([], external=["Flow.v1.example.com"])
        assert registry.is_external("example.com/v2", "Flow")
        assert not registry.is_external("example.com/v2", "Job")
        with pytest.raises(BadInput, match=r'expected Kind[.]version[.]group, found "Flow"'):
            JobRegistry([], external=["Flow"])

    def test_a_framework_whose_gate_is_off_is_refused(self) -> None:
        gated = BatchJob()
        gated.traits = replace(gated.traits, feature_gate="ElasticJobsViaWorkloadSlices", needs=("pod",))
        known = {**INTEGRATIONS, "batch/job": gated}
        with pytest.raises(BadInput, match="needs the feature gate ElasticJobsViaWorkloadSlices, which is off"):
            JobRegistry(["batch/job"], known=known, gate=lambda name: False)
        enabled = JobRegistry(["batch/job"], known=known, gate=lambda name: True)
        assert [each.framework for each in enabled] == ["batch/job", "pod"], "with the framework that it needs"
