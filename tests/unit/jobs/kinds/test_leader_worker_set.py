# SPDX-License-Identifier: Apache-2.0
"""LeaderWorkerSets as jobs: the Workload of a replica, which pods are started in it, and what is refused."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

import pytest

from multikueue.api import featuregates
from multikueue.api.defaulting import JobSurroundings
from multikueue.api.resource import LEADER_WORKER_SETS
from multikueue.core.errors import BadInput
from multikueue.jobs.framework.admission import defaulted
from multikueue.jobs.framework.capabilities import HeldPod
from multikueue.jobs.framework.protocol import PodSetInfo, RemoteIdentity
from multikueue.jobs.framework.registry import JobRegistry
from multikueue.jobs.framework.templated_queue import named_by
from multikueue.jobs.framework.workloads import (
    Priority,
    name_for,
    prebuilt_name,
    replica_of_workload,
    workload_for,
    workload_name,
)
from multikueue.jobs.kinds.leader_worker_set import LeaderWorkerSetIntegration
from multikueue.jobs.kinds.pod_group import PodGroup
from multikueue.jobs.kinds.stateful_set import STATEFUL_SET
from worker_agent.kinds import served_integrations

SETS = LeaderWorkerSetIntegration()
FRAMEWORK = "leaderworkerset.x-k8s.io/leaderworkerset"
GATE = [{"name": "kueue.x-k8s.io/admission"}]
INFOS = [
    PodSetInfo(name="leader", count=1, node_selector={"pool": "large"}),
    PodSetInfo(name="worker", count=2, node_selector={"pool": "small"}),
]
IDENTITY = RemoteIdentity(
    workload_name="leaderworkerset-llm-1-abcde", origin="hub", epoch=1, manager_uid="m", cluster="w", assignment="a"
)


def template(cpu: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {}, "spec": {"containers": [container], **spec}}


def asking(*topologies: str, value: str = "rack") -> dict[str, Any]:
    """A template that has these annotations of topology aware scheduling."""
    return template("1") | {
        "metadata": {"annotations": {f"kueue.x-k8s.io/podset-{each}": value for each in topologies}}
    }


def a_set(
    *, replicas: Any = 2, size: Any = 3, leader: dict[str, Any] | None = None, queue: str = "q", **worker: Any
) -> dict[str, Any]:
    """One named llm, whose leader requests 2 and whose workers request 1, as the webhook leaves it."""
    made: dict[str, Any] = {"size": size, "workerTemplate": template("1", **worker)}
    made["leaderTemplate"] = template("2") if leader is None else leader
    job = {
        "apiVersion": LEADER_WORKER_SETS.api_version,
        "kind": LEADER_WORKER_SETS.kind,
        "metadata": {
            "name": "llm",
            "namespace": "team",
            "uid": "u",
            "labels": {"kueue.x-k8s.io/queue-name": queue} if queue else {},
        },
        "spec": {"replicas": replicas, "leaderWorkerTemplate": made},
    }
    return defaulted(job, SETS, JobSurroundings())


def alike(**given: Any) -> dict[str, Any]:
    """One without a template for the leader."""
    job = a_set(**given)
    del job["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    return job


def pod(name: str, *, problem: str = "", gated: bool = True) -> HeldPod:
    spec: dict[str, Any] = {"containers": [{"name": "c"}], **({"schedulingGates": GATE} if gated else {})}
    metadata = {"name": name, "namespace": "team", "uid": f"uid-{name}"}
    return HeldPod(pod={"metadata": metadata, "spec": spec, "status": {}}, problem=problem)


def replica(index: int, *held: HeldPod, **given: Any) -> dict[str, Any]:
    return SETS.with_pods(SETS.replica(a_set(**given), index), held)


def started(job: dict[str, Any]) -> dict[str, str]:
    """The pods that are started, each with the pool of its pod set."""
    write = SETS.start(job, INFOS)
    return {
        each.target["metadata"]["name"]: each.body["spec"]["nodeSelector"]["pool"]
        for each in (write, *write.also)
        if each.target is not None
    }


@pytest.mark.parametrize(
    ("job", "pod_sets"),
    [
        pytest.param(a_set(), [("leader", 1, "2"), ("worker", 2, "1")], id="a leader and its workers"),
        pytest.param(a_set(size=1), [("leader", 1, "2")], id="a leader alone"),
        pytest.param(alike(), [("main", 3, "1")], id="pods of one template"),
    ],
)
def test_the_pod_sets_of_a_replica(job: dict[str, Any], pod_sets: list[tuple[str, int, str]]) -> None:
    found = SETS.pod_sets(SETS.replica(job, 1))
    requests = [each["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] for each in found]
    counts = [(each["name"], each["count"]) for each in found]
    assert [(name, count, cpu) for (name, count), cpu in zip(counts, requests, strict=True)] == pod_sets


def test_each_replica_has_a_workload_with_the_name_that_kueue_gives_it() -> None:
    names = [name_for(SETS.replica(a_set(), index), SETS) for index in (0, 1)]
    assert names == [
        workload_name(kind="LeaderWorkerSet", group="leaderworkerset.x-k8s.io", name=f"llm-{index}", uid="u")
        for index in (0, 1)
    ]
    assert names[1].startswith("leaderworkerset-llm-1-")


def test_the_replica_of_a_workload_is_known_by_annotation_and_name_together() -> None:
    workload = workload_for(SETS.replica(a_set(), 1), SETS, priority=Priority())
    assert workload["metadata"]["annotations"] == {
        "kueue.x-k8s.io/component-workload-index": "1",
        "kueue.x-k8s.io/job-owner-gvk": "leaderworkerset.x-k8s.io/v1, Kind=LeaderWorkerSet",
        "kueue.x-k8s.io/job-owner-name": workload["metadata"]["ownerReferences"][0]["name"],
    }
    assert replica_of_workload(workload, LEADER_WORKER_SETS, a_set()) == 1
    assert replica_of_workload(workload, LEADER_WORKER_SETS, None) == 1, "its owner is gone"
    for forged in ("0", "7", "-1", "many", "9" * 40):
        workload["metadata"]["annotations"]["kueue.x-k8s.io/component-workload-index"] = forged
        assert replica_of_workload(workload, LEADER_WORKER_SETS, a_set()) == 0


class TestSentByAHub:
    """A LeaderWorkerSet that a Kueue on a hub has sent whole, after Workloads with the names that they have there."""

    LABEL: Final = {"kueue.x-k8s.io/multikueue-origin": "hub"}
    UID: Final = {"kueue.x-k8s.io/multikueue-origin-uid": "uid-on-hub"}

    def sent(self, **metadata: dict[str, str]) -> dict[str, Any]:
        made = a_set()
        given = metadata or {"labels": self.LABEL, "annotations": self.UID}
        made["metadata"] |= {"labels": made["metadata"]["labels"] | given.get("labels", {})}
        made["metadata"]["annotations"] = given.get("annotations", {})
        return made

    def test_each_replica_has_the_workload_of_its_name_on_the_hub(self) -> None:
        on_hub = a_set()
        on_hub["metadata"]["uid"] = "uid-on-hub"
        names = [name_for(SETS.replica(on_hub, index), SETS) for index in (0, 1)]
        assert [prebuilt_name(SETS.replica(self.sent(), index), SETS) for index in (0, 1)] == names

    def test_one_with_the_label_or_the_annotation_alone_gets_workloads_of_its_own(self) -> None:
        """A manifest that was exported from a worker has one of them at most."""
        for metadata in ({"labels": self.LABEL}, {"annotations": self.UID}):
            assert prebuilt_name(self.sent(**metadata), SETS) == ""
        own = [name_for(SETS.replica(a_set(), 1), SETS)]
        assert [name_for(SETS.replica(self.sent(annotations=self.UID), 1), SETS)] == own

    def test_a_workload_is_of_the_replica_that_it_is_named_for(self) -> None:
        workload = workload_for(SETS.replica(self.sent(), 1), SETS, priority=Priority())
        assert replica_of_workload(workload, LEADER_WORKER_SETS, self.sent()) == 1
        assert replica_of_workload(workload, LEADER_WORKER_SETS, a_set()) == 0, "that one was not sent"
        other = self.sent(labels=self.LABEL, annotations={"kueue.x-k8s.io/multikueue-origin-uid": "another"})
        assert replica_of_workload(workload, LEADER_WORKER_SETS, other) == 0

    def test_the_mark_that_kueue_gives_its_pods_is_taken(self) -> None:
        made = self.sent()
        template = made["spec"]["leaderWorkerTemplate"]["workerTemplate"]
        template["metadata"].setdefault("annotations", {})["kueue.x-k8s.io/pod-group-serving"] = "true"
        assert SETS.refusals(made, None, has_default_queue=False, gate=featuregates.default) == ()


@pytest.mark.parametrize(
    ("held", "pools"),
    [
        pytest.param(pod("llm-1"), {"llm-1": "large"}, id="its leader"),
        pytest.param(pod("llm-1-2"), {"llm-1-2": "small"}, id="one of its workers"),
        pytest.param(pod("llm-1-3"), {}, id="not one beyond its size"),
        pytest.param(pod("llm-0-1"), {}, id="not one of another replica"),
        pytest.param(pod("llm-1-0"), {}, id="not a second leader"),
        pytest.param(pod("llm-01"), {}, id="not one whose number has a zero in front"),
        pytest.param(pod("llm-1-1-1"), {}, id="not one of another LeaderWorkerSet"),
        pytest.param(pod("other-1"), {}, id="not one of another name"),
        pytest.param(pod("llm-1", problem="too large"), {}, id="not one that requests more"),
        pytest.param(pod("llm-1", gated=False), {}, id="not one that was started already"),
    ],
)
def test_a_pod_is_started_in_its_place_with_what_its_pod_set_was_given(held: HeldPod, pools: dict[str, str]) -> None:
    job = replica(1, held)
    assert started(job) == pools
    assert SETS.waits(job) is bool(pools)


def test_a_pod_is_compared_with_the_template_of_its_role() -> None:
    def cpu(job: dict[str, Any], name: str) -> str:
        found = SETS.pod_template(job, pod(name).pod)["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        return str(found)

    assert [cpu(a_set(), name) for name in ("llm-0", "llm-0-1", "llm-x")] == ["2", "1", "1"]
    assert cpu(alike(), "llm-0") == "1"


def test_a_replica_beyond_the_number_of_replicas_is_empty_and_keeps_its_workload_until_its_pods_are_gone() -> None:
    workload = workload_for(SETS.replica(a_set(), 1), SETS, priority=Priority())
    left = replica(1, pod("llm-1", gated=False), replicas=1)
    assert SETS.is_empty(left)
    assert SETS.is_active(left)
    assert SETS.matches(left, workload)
    assert SETS.upkeep(left, workload) == ()
    assert not SETS.is_empty(SETS.replica(a_set(), 1))


@pytest.mark.parametrize(
    ("held", "deleted"),
    [
        pytest.param(pod("llm-1-1", gated=False), [], id="a worker is left alone"),
        pytest.param(pod("llm-1-3", gated=False), ["llm-1-3"], id="one beyond its size is deleted"),
        pytest.param(pod("llm-1-3"), [], id="unless it waits"),
        pytest.param(pod("llm-x", gated=False), ["llm-x"], id="one of no such name is deleted"),
    ],
)
def test_a_pod_that_runs_without_a_place(held: HeldPod, deleted: list[str]) -> None:
    writes = SETS.upkeep(replica(1, held), None)
    assert [each.write.target["metadata"]["name"] for each in writes if each.write.target] == deleted


def changed(job: dict[str, Any], **labels: str | None) -> dict[str, Any]:
    metadata = job["metadata"]
    kept = {key: value for key, value in {**metadata["labels"], **labels}.items() if value is not None}
    return {**job, "metadata": {**metadata, "labels": kept}}


@pytest.mark.parametrize(
    ("before", "after", "refusal"),
    [
        pytest.param(a_set(), a_set(replicas=5), "", id="more replicas"),
        pytest.param(a_set(), a_set(replicas=0), "", id="no replicas"),
        pytest.param(a_set(), a_set(size=4), "leaderWorkerTemplate.size: Invalid value: 4", id="larger groups"),
        pytest.param(a_set(replicas=0), a_set(size=4), "", id="larger groups from zero on"),
        pytest.param(a_set(), a_set(leader=template("3")), "leaderTemplate: Invalid value", id="another leader"),
        pytest.param(a_set(), alike(), "leaderTemplate: Invalid value", id="no leader any more"),
        pytest.param(a_set(), a_set(hostNetwork=True), "workerTemplate: Invalid value", id="other workers"),
        pytest.param(a_set(replicas=0), a_set(leader=template("3")), "", id="another leader from zero on"),
        pytest.param(a_set(), a_set(queue=""), "can be removed only while", id="out of its queue"),
        pytest.param(a_set(replicas=0), a_set(replicas=0, queue=""), "", id="out of its queue at zero"),
        pytest.param(a_set(queue=""), a_set(queue="", size=4), "", id="without a queue"),
        pytest.param(a_set(queue=""), a_set(), "", id="into a queue"),
        pytest.param(a_set(), a_set(queue="other"), "", id="to another queue while none is ready"),
        pytest.param(
            a_set() | {"status": {"readyReplicas": 1}}, a_set(queue="other"), "immutable", id="to another one later"
        ),
        pytest.param(None, a_set(replicas=1001), "expected at most 1000", id="too many replicas"),
        pytest.param(None, a_set(replicas=-1), "spec.replicas", id="a negative number of them"),
        pytest.param(None, a_set(size=0), "expected a number of pods above 0", id="groups of no pods"),
        pytest.param(None, a_set(size="many"), "spec.leaderWorkerTemplate.size", id="a size that is no number"),
        pytest.param(
            None,
            a_set(leader=asking("slice-required-topology", "slice-size", value="2")),
            "must not be greater than pod set count 1",
            id="slices of more leaders than there are",
        ),
        pytest.param(
            None,
            a_set(leader=asking("required-topology", "preferred-topology")),
            "must not contain more than one topology annotation",
            id="two topologies",
        ),
        pytest.param(
            None,
            a_set(leader=template("1") | {"metadata": {"annotations": {"kueue.x-k8s.io/podset-group-name": 5}}}),
            'annotations["kueue.x-k8s.io/podset-group-name"]: expected a text, found 5',
            id="an annotation that is no text",
        ),
        pytest.param(
            None,
            changed(a_set(), **{"kueue.x-k8s.io/prebuilt-workload-name": "w"}),
            "cannot use a Workload that its user made",
            id="a prebuilt Workload",
        ),
    ],
)
def test_a_change_is_refused(before: dict[str, Any] | None, after: dict[str, Any], refusal: str) -> None:
    found = SETS.refusals(after, before, has_default_queue=False, gate=featuregates.default)
    assert bool(found) is bool(refusal), found
    assert refusal in " ".join(found)


def test_the_size_of_a_group_changes_without_its_feature_gate() -> None:
    assert SETS.refusals(a_set(size=4), a_set(), has_default_queue=False, gate=lambda name: False) == ()


def test_a_change_of_the_queue_reaches_both_templates_and_leaving_it_removes_it() -> None:
    def queues(job: dict[str, Any]) -> list[str | None]:
        made = job["spec"]["leaderWorkerTemplate"]
        roles = (made[role]["metadata"] for role in ("leaderTemplate", "workerTemplate"))
        return [(each.get("labels") or {}).get("kueue.x-k8s.io/queue-name") for each in roles]

    moved = changed(a_set(), **{"kueue.x-k8s.io/queue-name": "other"})
    assert queues(a_set()) == ["q", "q"]
    assert queues(SETS.updated(moved, a_set())) == ["other", "other"]
    left = SETS.updated(changed(a_set(), **{"kueue.x-k8s.io/queue-name": None}), a_set())
    assert queues(left) == [None, None]
    assert "leaderTemplate" not in SETS.updated(alike(), alike())["spec"]["leaderWorkerTemplate"]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        pytest.param({"replicas": 10**9}, "expected at most 1000", id="more replicas than one object may have"),
        pytest.param({"replicas": "two"}, "spec.replicas", id="a text"),
        pytest.param({"replicas": -1}, "spec.replicas", id="a negative number"),
    ],
)
def test_what_no_webhook_has_seen_is_an_error_and_not_a_flood(spec: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        SETS.replicas({"spec": spec})


HOSTILE: tuple[Any, ...] = (-1, [1], {"a": 1}, "x")


def places(value: Any, keys: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys to every value inside."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in pairs:
        yield (*keys, key)
        yield from places(item, (*keys, key))


def with_value(obj: dict[str, Any], keys: tuple[Any, ...], value: Any) -> dict[str, Any]:
    made = copy.deepcopy(obj)
    holder: Any = made
    for key in keys[:-1]:
        holder = holder[key]
    holder[keys[-1]] = value
    return made


def test_whatever_a_tenant_writes_into_a_set_without_a_schema_is_read_or_refused() -> None:
    sound = a_set()["spec"]
    workload = workload_for(SETS.replica(a_set(), 1), SETS, priority=Priority())
    refused = 0
    for keys in places(sound):
        for value in HOSTILE:
            job = {**replica(1, pod("llm-1"), pod("llm-1-1")), "spec": with_value(sound, keys, value)}
            for ask in (
                lambda job=job: SETS.replicas(job),
                lambda job=job: SETS.pod_sets(job),
                lambda job=job: SETS.priority(job),
                lambda job=job: SETS.matches(job, workload),
                lambda job=job: SETS.upkeep(job, workload),
                lambda job=job: SETS.start(job, INFOS),
                lambda job=job: SETS.pods_ready(job),
                lambda job=job: SETS.not_sent(job),
                lambda job=job: SETS.remote_manifest(job, INFOS, identity=IDENTITY),
            ):
                try:
                    ask()
                except BadInput:
                    refused += 1
                except Exception as error:
                    raise AssertionError(f"{keys} = {value!r}: {type(error).__name__}: {error}") from error
    assert refused


def test_the_priority_is_that_of_the_leader_unless_it_has_none() -> None:
    job = a_set(leader=template("2", priorityClassName="lead"), priorityClassName="work")
    assert SETS.priority(job).pod_class == "lead"
    assert SETS.priority(a_set(priorityClassName="work")).pod_class == "work"


def test_the_pods_of_a_replica_are_sent_as_a_group_each_with_what_its_pod_set_was_given() -> None:
    manifest = SETS.remote_manifest(replica(1, pod("llm-1"), pod("llm-1-1"), pod("llm-0")), INFOS, identity=IDENTITY)
    assert manifest["metadata"]["name"] == IDENTITY.workload_name
    pools = {each["metadata"]["name"]: each["spec"]["nodeSelector"]["pool"] for each in manifest["members"]}
    assert pools == {"llm-1": "large", "llm-1-1": "small"}
    group = PodGroup(manifest["members"])
    assert (group.total, group.is_fast, group.is_serving) == (3, True, True)


def test_a_replica_without_pods_that_could_be_sent_waits_for_them_and_a_large_one_is_not_sent() -> None:
    assert SETS.awaits_members(replica(1, pod("llm-0")))
    assert not SETS.awaits_members(replica(1, pod("llm-1")))
    large = replica(0, size=300)
    assert SETS.not_sent(large) == "the group has 300 pods, and at most 256 of one group are sent to a worker cluster"


def test_an_agent_serves_pods_and_not_the_kind_itself() -> None:
    assert [each.framework for each in served_integrations(["pod", FRAMEWORK])] == ["pod"]


def test_it_is_enabled_together_with_the_framework_pod_and_queued_by_one_controller() -> None:
    assert [each.framework for each in JobRegistry((FRAMEWORK,))] == [FRAMEWORK, "pod"]
    with pytest.raises(BadInput, match="is queued by the framework leaderworkerset"):
        JobRegistry((FRAMEWORK,), external=("LeaderWorkerSet.v1.leaderworkerset.x-k8s.io",))


def test_a_pod_names_it_by_the_annotation_and_the_label_together() -> None:
    annotations = {"kueue.x-k8s.io/pod-suspending-parent": FRAMEWORK}
    labels = {"leaderworkerset.sigs.k8s.io/name": "llm"}
    assert named_by({"metadata": {"annotations": annotations, "labels": labels}}, SETS) == "llm"
    assert named_by({"metadata": {"labels": labels}}, SETS) == ""
    assert named_by({"metadata": {"annotations": annotations}}, SETS) == ""
    assert named_by({"metadata": {"annotations": annotations, "labels": labels}}, STATEFUL_SET) == ""
