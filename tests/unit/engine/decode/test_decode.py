# SPDX-License-Identifier: Apache-2.0
"""API objects as engine values."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from multikueue.api.constants import AdmissionMode, CheckState, FungibilityPolicy, QueueingStrategy, StopPolicy
from multikueue.core.errors import BadInput
from multikueue.core.keys import Key
from multikueue.core.quantity import Quantity
from multikueue.core.selectors import LabelSelector, Requirement
from multikueue.core.taints import Taint, Toleration
from multikueue.engine import Settings, decode
from multikueue.engine.decode.configuration import seconds
from multikueue.engine.resources import UNLIMITED
from multikueue.engine.settings import FairStrategy, QuotaCheck, RequeueTimestamp
from multikueue.engine.values import CheckRule, PreemptionRules, PriorityClass, Quota
from multikueue.engine.workloads import NodeUpdate
from tests.support.engine_builders import at

QUEUE = {
    "metadata": {"name": "q", "deletionTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {
        "cohortName": "co",
        "queueingStrategy": "StrictFIFO",
        "stopPolicy": "HoldAndDrain",
        "namespaceSelector": {
            "matchLabels": {"team": "x"},
            "matchExpressions": [{"key": "env", "operator": "In", "values": ["a", "b"]}],
        },
        "resourceGroups": [
            {
                "coveredResources": ["cpu", "memory"],
                "flavors": [
                    {
                        "name": "spot",
                        "resources": [
                            {"name": "cpu", "nominalQuota": "1500m", "borrowingLimit": 2, "lendingLimit": "0"},
                            {"name": "memory", "nominalQuota": "9223372036854775807"},
                        ],
                    }
                ],
            }
        ],
        "preemption": {
            "withinClusterQueue": "LowerPriority",
            "reclaimWithinCohort": "Any",
            "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 100},
        },
        "flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "TryNextFlavor"},
        "admissionChecksStrategy": {"admissionChecks": [{"name": "all"}, {"name": "some", "onFlavors": ["spot"]}]},
        "fairSharing": {"weight": "500m"},
        "admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"},
    },
}


def test_a_cluster_queue() -> None:
    value = decode.cluster_queue(QUEUE)
    assert (value.name, value.cohort, value.strategy, value.stop_policy, value.terminating) == (
        "q",
        "co",
        QueueingStrategy.STRICT_FIFO,
        StopPolicy.HOLD_AND_DRAIN,
        True,
    )
    flavor = value.resource_groups[0].flavors[0]
    assert flavor.quotas == {"cpu": Quota(1500, 2000, 0), "memory": Quota(UNLIMITED)}
    assert value.namespace_selector == LabelSelector(
        (Requirement("team", "In", ("x",)), Requirement("env", "In", ("a", "b")))
    )
    assert value.preemption == PreemptionRules(
        within_cluster_queue="LowerPriority",
        reclaim_within_cohort="Any",
        borrow_within_cohort="LowerPriority",
        max_priority_threshold=100,
    )
    assert value.fungibility.when_can_borrow is FungibilityPolicy.MAY_STOP_SEARCH
    assert value.checks == (CheckRule("all"), CheckRule("some", frozenset({"spot"})))
    assert (value.weight, value.admission_mode) == (0.5, AdmissionMode.USAGE_BASED)


def test_what_a_cluster_queue_leaves_out_has_its_default() -> None:
    value = decode.cluster_queue({"metadata": {"name": "q"}, "spec": {}})
    assert value.strategy is QueueingStrategy.BEST_EFFORT_FIFO
    assert value.namespace_selector is None
    assert value.preemption == PreemptionRules()
    assert not value.preemption.may_borrow
    assert value.fungibility.when_can_preempt is FungibilityPolicy.TRY_NEXT_FLAVOR
    assert (value.weight, value.stop_policy) == (1.0, StopPolicy.NONE)
    everything = decode.cluster_queue({"metadata": {"name": "q"}, "spec": {"namespaceSelector": {}}})
    assert everything.namespace_selector == LabelSelector()


def test_flavors_cohorts_local_queues_and_the_rest() -> None:
    flavor = decode.flavor(
        {
            "metadata": {"name": "f"},
            "spec": {
                "nodeLabels": {"pool": "p"},
                "nodeTaints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
                "tolerations": [{"key": "k", "operator": "Exists"}],
                "topologyName": "t",
            },
        }
    )
    assert (flavor.node_labels, flavor.taints, flavor.tolerations, flavor.topology) == (
        {"pool": "p"},
        (Taint("k", "v", "NoSchedule"),),
        (Toleration("k", "Exists"),),
        "t",
    )
    topology = decode.topology(
        {"metadata": {"name": "t"}, "spec": {"levels": [{"nodeLabel": "r"}, {"nodeLabel": "h"}]}}
    )
    assert (topology.name, topology.levels) == ("t", ("r", "h"))
    cohort = decode.cohort({"metadata": {"name": "c"}, "spec": {"parentName": "p", "fairSharing": {"weight": 0}}})
    assert (cohort.parent, cohort.weight) == ("p", 0.0)
    local = decode.local_queue(
        {"metadata": {"name": "l", "namespace": "n"}, "spec": {"clusterQueue": "q", "stopPolicy": "Hold"}}
    )
    assert (local.key, local.cluster_queue, local.stop_policy) == (Key("n", "l"), "q", StopPolicy.HOLD)
    recorded = {"consumedResources": {"cpu": "1500m"}, "lastUpdate": "2026-11-21T10:00:00Z"}
    used = decode.local_queue(
        {
            "metadata": {"name": "l", "namespace": "n"},
            "status": {"fairSharing": {"weightedShare": 1, "admissionFairSharingStatus": recorded}},
        }
    )
    assert (used.consumed, used.sampled_at) == ({"cpu": 1.5}, datetime(2026, 11, 21, 10, tzinfo=UTC))
    check = {"metadata": {"name": "c"}, "spec": {"controllerName": "x"}}
    assert not decode.admission_check(check).active
    active = {**check, "status": {"conditions": [{"type": "Active", "status": "True"}]}}
    assert decode.admission_check(active).active
    assert decode.namespace({"metadata": {"name": "n", "labels": {"a": "b"}}}).labels == {"a": "b"}
    assert decode.runtime_class({"metadata": {"name": "r"}, "overhead": {"podFixed": {"cpu": "250m"}}}).overhead == {
        "cpu": Quantity.parse("250m")
    }
    assert decode.priority_class({"kind": "PriorityClass", "metadata": {"name": "p"}, "value": 7}) == PriorityClass(
        "scheduling.k8s.io", "p", 7
    )


POD = {
    "initContainers": [{"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}],
    "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": 2}, "limits": {"cpu": "3"}}}],
    "nodeSelector": {"zone": "a"},
    "tolerations": [{"operator": "Exists"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [{"key": "zone", "operator": "Exists"}],
                        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
                    }
                ]
            }
        }
    },
    "runtimeClassName": "kata",
}
WORKLOAD = {
    "metadata": {
        "name": "w",
        "namespace": "n",
        "uid": "u",
        "generation": 3,
        "creationTimestamp": "2026-01-01T00:00:05Z",
        "labels": {"kueue.x-k8s.io/job-uid": "j"},
        "annotations": {
            "kueue.x-k8s.io/admission-gated-by": "example.com/a, example.com/b",
            "kueue.x-k8s.io/priority-boost": "-4",
            "kueue.x-k8s.io/workload-slice-replacement-for": "n/old",
        },
    },
    "spec": {
        "queueName": "lq",
        "priority": 7,
        "podSets": [{"name": "ps", "count": 3, "minCount": 2, "template": {"spec": POD}}],
        "preemptionGates": [{"name": "g"}],
        "maximumExecutionTimeSeconds": 60,
    },
    "status": {
        "conditions": [
            {
                "type": "QuotaReserved",
                "status": "True",
                "reason": "QuotaReserved",
                "message": "long",
                "lastTransitionTime": "2026-01-01T00:00:09Z",
            },
            {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "why"},
        ],
        "admission": {
            "clusterQueue": "q",
            "podSetAssignments": [
                {"name": "ps", "count": 2, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "4", "memory": "1Ki"}}
            ],
        },
        "admissionChecks": [
            {
                "name": "c",
                "state": "Retry",
                "message": "m",
                "retryCount": 2,
                "podSetUpdates": [
                    {"name": "ps", "nodeSelector": {"pool": "a"}, "tolerations": [{"key": "t"}]},
                    {"name": "labelled", "labels": {"a": "b"}},
                ],
            }
        ],
        "reclaimablePods": [{"name": "ps", "count": 1}],
        "requeueState": {"count": 2, "requeueAt": "2026-01-01T00:01:00Z"},
    },
}


def test_a_workload() -> None:
    value = decode.workload(WORKLOAD, decode.Shapes())
    assert (value.key, value.uid, value.created, value.generation) == (Key("n", "w"), "u", at(5), 3)
    assert (value.queue_name, value.priority, value.priority_boost, value.job_uid) == ("lq", 7, -4, "j")
    assert value.gated_by == ("example.com/a", "example.com/b")
    assert value.preemption_gate_closed
    assert value.replaces == "n/old"
    assert (value.pod_sets[0].name, value.pod_sets[0].count, value.pod_sets[0].min_count) == ("ps", 3, 2)
    shape = value.pod_sets[0].shape
    assert [(c.init, c.sidecar) for c in shape.containers] == [(True, True), (False, False)]
    assert shape.affinity is not None
    assert shape.affinity[0].fields[0].key == "metadata.name"
    assert value.admission is not None
    assert value.admission.pod_sets[0].usage == {"cpu": 4000, "memory": 1024}
    assert value.reserved
    assert value.evicted
    assert [c.message for c in value.conditions] == ["", "why"]
    assert value.checks[0].state is CheckState.RETRY
    update = NodeUpdate(name="ps", node_selector={"pool": "a"}, tolerations=(Toleration(key="t"),))
    assert value.checks[0].updates == (update,), "labels decide about no node"
    assert (value.requeue_at, value.requeue_count, value.reclaimable) == (at(60), 2, {"ps": 1})


def test_equal_pods_are_one_object_and_others_are_not() -> None:
    shapes = decode.Shapes(limit=2)
    first = decode.workload(WORKLOAD, shapes).pod_sets[0].shape
    assert decode.workload(WORKLOAD, shapes).pod_sets[0].shape is first
    other = shapes.of({**POD, "nodeSelector": {"zone": "b"}})
    assert other.fingerprint != first.fingerprint
    relabelled = shapes.of({**POD, "hostname": "h", "containers": [{**POD["containers"][0], "image": "j"}]})  # type: ignore[index]
    assert relabelled is first, "what admission does not look at makes no difference"


@pytest.mark.parametrize(
    ("annotation", "want"),
    [
        pytest.param("12", 12, id="a number"),
        pytest.param("99999999999", 0, id="a number of more than 32 bits is none"),
        pytest.param("much", 0, id="text is none"),
    ],
)
def test_priority_boost(annotation: str, want: int) -> None:
    data = {"metadata": {"annotations": {"kueue.x-k8s.io/priority-boost": annotation}}, "spec": {}}
    assert decode.workload(data, decode.Shapes()).priority_boost == want


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param(
            {"podSets": [{"name": "a", "count": "many"}]},
            "podSet a: count: expected a whole number",
            id="a count that is none",
        ),
        pytest.param(
            {
                "podSets": [
                    {
                        "name": "a",
                        "template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "x"}}}]}},
                    }
                ]
            },
            'podSet a: container c: resources.requests: "x" is not a quantity',
            id="an amount that is none",
        ),
        pytest.param({"podSets": {"name": "a"}}, "podSets: expected a list of objects", id="an object for a list"),
    ],
)
def test_mistakes_are_named(spec: dict[str, object], want: str) -> None:
    with pytest.raises(BadInput, match=want):
        decode.workload({"metadata": {"name": "w"}, "spec": spec}, decode.Shapes())


def test_settings_of_an_empty_configuration_are_the_defaults() -> None:
    assert decode.settings({}) == Settings()


def test_settings() -> None:
    found = decode.settings(
        {
            "fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]},
            "admissionFairSharing": {"usageHalfLifeTime": "1h30m", "resourceWeights": {"cpu": "2.5"}},
            "waitForPodsReady": {
                "timeout": "5m",
                "blockAdmission": True,
                "requeuingStrategy": {"timestamp": "Creation", "backoffLimitCount": 3, "backoffBaseSeconds": 1},
            },
            "resources": {
                "quotaCheckStrategy": "IgnoreUndeclared",
                "excludeResourcePrefixes": ["example.com/"],
                "transformations": [
                    {"input": "gpu", "strategy": "Replace", "outputs": {"credits": "10"}, "multiplyBy": "cpu"}
                ],
            },
            "featureGates": {"PartialAdmission": False, "PriorityBoost": True, "Unheard": True},
        }
    )
    assert (found.fair_sharing, found.fair_strategies) == (True, (FairStrategy.LESS_THAN_INITIAL_SHARE,))
    assert found.admission_fair_sharing is not None
    assert (found.admission_fair_sharing.half_life_seconds, found.admission_fair_sharing.sampling_seconds) == (
        5400,
        300,
    )
    assert found.pods_ready is not None
    assert (found.pods_ready.timeout_seconds, found.pods_ready.recovery_timeout_seconds) == (300, 300)
    assert found.pods_ready.timestamp is RequeueTimestamp.CREATION
    assert found.quota_check is QuotaCheck.IGNORE_UNDECLARED
    assert found.exclude_resource_prefixes == ("example.com/",)
    assert not found.transformations[0].retain
    assert (found.gates.partial_admission, found.gates.priority_boost) == (False, True)


def test_fair_sharing_without_strategies_has_both() -> None:
    assert decode.settings({"fairSharing": {}}).fair_strategies == tuple(FairStrategy)


@pytest.mark.parametrize(
    ("text", "want"), [("0", 0.0), ("0s", 0.0), ("1h30m", 5400.0), ("1.5s", 1.5), ("200ms", 0.2)], ids=str
)
def test_durations(text: str, want: float) -> None:
    assert seconds(text) == pytest.approx(want)


@pytest.mark.parametrize("text", ["", "5", "m", "1h 5m", "-1s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(BadInput):
        seconds(text)
