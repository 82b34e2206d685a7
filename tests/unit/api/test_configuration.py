# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from multikueue.api.configuration import Configuration
from multikueue.api.configuration_file import load
from multikueue.api.configuration_rules import without_effect
from multikueue.core.errors import BadInput

V1 = "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n"
V2 = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def test_an_empty_file_has_kueues_defaults() -> None:
    settings = load("")
    assert settings.namespace == "kueue-system"
    assert settings.multikueue.gc_interval == timedelta(minutes=1)
    assert settings.multikueue.worker_lost_timeout == timedelta(minutes=15)
    assert settings.multikueue.pods_start_timeout == timedelta(minutes=5)
    assert settings.multikueue.origin == "multikueue"
    assert settings.multikueue.step_size == 3
    assert settings.integrations.frameworks == ("batch/job",)
    assert settings.fair_sharing is None
    assert settings.admission_fair_sharing is None
    assert settings.resources.quota_check_strategy == "BlockUndeclared"
    assert (settings.client_connection.qps, settings.client_connection.burst) == (300, 500)
    assert settings.object_retention_policies.workloads.after_finished is None
    waiting = settings.wait_for_pods_ready
    assert waiting is not None
    assert (waiting.timeout, waiting.recovery) == (timedelta(minutes=30), timedelta(minutes=30))
    assert not waiting.block_admission
    assert waiting.requeuing_strategy.timestamp == "Eviction"
    assert waiting.requeuing_strategy.backoff_limit_count is None
    assert load("") == Configuration(namespace="kueue-system")


def test_the_namespaces_of_the_system_are_left_alone_by_default() -> None:
    selector = load("", namespace="elsewhere").managed_jobs_namespace_selector
    assert selector.match_expressions[0].operator == "NotIn"
    assert selector.match_expressions[0].values == ("kube-system", "elsewhere")


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "configuration.yaml"
    path.write_text(V2 + "multiKueue: {gcInterval: 0, origin: west}\nfeatureGates: {PartialAdmission: false}\n")
    settings = load(path)
    assert settings.multikueue.gc_interval == timedelta()
    assert settings.multikueue.origin == "west"
    assert not settings.gate("PartialAdmission")
    assert settings.gate("MultiKueue")


def test_the_budget_of_reasons_is_read() -> None:
    found = load("pendingReasons: {writesPerSecond: 0, burst: 7, figuresInterval: 5m}").pending_reasons
    assert (found.writes_per_second, found.burst, found.figures_interval) == (0, 7, timedelta(minutes=5))
    assert load("").pending_reasons.writes_per_second == 10


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"configuration .*none.yaml: cannot read it: No such file"):
        load(tmp_path / "none.yaml")


def test_zero_turns_the_watch_over_recovery_off() -> None:
    waiting = load("waitForPodsReady: {recoveryTimeout: 0s}").wait_for_pods_ready
    assert waiting is not None
    assert waiting.recovery is None


def test_a_gate_turns_waiting_for_pods_off() -> None:
    assert load("featureGates: {DisableWaitForPodsReady: true}").wait_for_pods_ready is None


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("", False, id="by default nothing waits for them"),
        pytest.param("blockAdmission: true", True, id="admission waits for them"),
        pytest.param("timeout: 59s", True, id="they have less than a minute"),
        pytest.param("timeout: 1m", False, id="they have a minute"),
    ],
)
def test_whether_starts_on_workers_are_awaited(text: str, want: bool) -> None:
    waiting = load(f"waitForPodsReady: {{{text}}}").wait_for_pods_ready
    assert waiting is not None
    assert waiting.awaits_starts is want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("", None, id="nothing said is off"),
        pytest.param("waitForPodsReady: {timeout: 1m}", None, id="presence without enable is off"),
        pytest.param("waitForPodsReady: {enable: true}", (timedelta(minutes=5), True), id="on with its older defaults"),
        pytest.param(
            "waitForPodsReady: {enable: true, timeout: 1m, blockAdmission: false}",
            (timedelta(minutes=1), False),
            id="on with what is said",
        ),
    ],
)
def test_waiting_for_pods_in_v1beta1(text: str, want: tuple[timedelta, bool] | None) -> None:
    waiting = load(V1 + text).wait_for_pods_ready
    assert want == (waiting and (waiting.timeout, waiting.block_admission))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("fairSharing: {enable: false}", None, id="switched off"),
        pytest.param(
            "fairSharing: {enable: true}", ("LessThanOrEqualToFinalShare", "LessThanInitialShare"), id="switched on"
        ),
        pytest.param(
            "fairSharing: {enable: true, preemptionStrategies: [LessThanInitialShare]}",
            ("LessThanInitialShare",),
            id="with a strategy",
        ),
    ],
)
def test_fair_sharing_in_v1beta1(text: str, want: tuple[str, ...] | None) -> None:
    sharing = load(V1 + text).fair_sharing
    assert want == (sharing and sharing.strategies)


def test_what_v1beta1_only_had_is_taken() -> None:
    settings = load(
        V1
        + "queueVisibility: {updateIntervalSeconds: 5}\n"
        + "integrations:\n  frameworks: [pod]\n  podOptions:\n"
        + "    namespaceSelector: {matchLabels: {managed: 'yes'}}\n    podSelector: {}\n"
    )
    assert settings.integrations.frameworks == ("pod",)
    assert settings.managed_jobs_namespace_selector.match_labels == {"managed": "yes"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "multiKueue: {gcIntervall: 1m}",
            "multiKueue.gcIntervall: unknown field; did you mean gcInterval",
            id="a typing error",
        ),
        pytest.param("nonsense: 1", "configuration: nonsense: unknown field", id="a field at the top"),
        pytest.param(
            "managedJobsNamespaceSelector: {matchExpressions: [{key: a, operator: Exists, extra: 1}]}",
            r"managedJobsNamespaceSelector.matchExpressions\[0\].extra: unknown field",
            id="a field within a list",
        ),
        pytest.param("queueVisibility: {}", "queueVisibility: unknown field", id="a field of v1beta1"),
        pytest.param("apiVersion: v1", "apiVersion: expected config.kueue.x-k8s.io/v1beta2", id="another version"),
        pytest.param("kind: ConfigMap", "kind: expected Configuration, got 'ConfigMap'", id="another kind"),
        pytest.param("- a", "expected a mapping of settings, got list", id="a list"),
        pytest.param("a: [", "not YAML", id="broken YAML"),
        pytest.param(
            "multiKueue: {gcInterval: soon}", 'multiKueue.gcInterval: "soon" is not a duration', id="no duration"
        ),
        pytest.param("webhook: {port: x}", "webhook.port: Input should be a valid integer", id="no number"),
        pytest.param("webhook: {port: 70000}", "webhook.port: must be a port, got 70000", id="no port"),
        pytest.param("multiKueue: {origin: 'a b'}", "multiKueue.origin: a valid label", id="an illegal origin"),
        pytest.param("multiKueue: {origin: ''}", "multiKueue.origin: must not be empty", id="an empty origin"),
        pytest.param("multiKueue: {gcInterval: -1s}", "gcInterval: must not be negative", id="negative time"),
        pytest.param(
            "multiKueue: {provisioningClusters: 0}",
            "multiKueue.provisioningClusters: must be at least 1, got 0",
            id="no cluster to provision on",
        ),
        pytest.param(
            "multiKueue: {podsStartTimeout: -1s}", "podsStartTimeout: must not be negative", id="another negative time"
        ),
        pytest.param("multiKueue: {dispatcherName: mine}", "expected domain/path", id="a dispatcher without a domain"),
        pytest.param(
            "multiKueue: {incrementalDispatcherConfig: {stepSize: 2}}",
            "may be set only with the dispatcher kueue.x-k8s.io/multikueue-dispatcher-incremental",
            id="steps without the incremental dispatcher",
        ),
        pytest.param(
            "multiKueue:\n  dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental\n"
            "  incrementalDispatcherConfig: {stepSize: 0}",
            "stepSize: must be at least 1, got 0",
            id="no steps",
        ),
        pytest.param(
            "multiKueue: {externalFrameworks: [{name: Job.v1.batch}]}", "is a built-in integration", id="a built-in"
        ),
        pytest.param(
            "multiKueue: {externalFrameworks: [{name: Job}]}", "expected Kind.version.group", id="no group and version"
        ),
        pytest.param(
            "multiKueue: {externalFrameworks: [{name: A.v1.b}, {name: A.v1.b}]}", "is named twice", id="named twice"
        ),
        pytest.param(
            "multiKueue: {externalFrameworks: [{name: A.v1.b.c}, {name: A.v2.b.c}]}",
            r"externalFrameworks\[1\].name: A.v2.b.c is the kind of A.v1.b.c in another version",
            id="an external kind in two versions",
        ),
        pytest.param(
            "multiKueue: {externalFrameworks: [{name: run.v1.b.c}]}",
            "expected a kind in upper camel case before the first dot, got 'run'",
            id="an external kind in lower case",
        ),
        pytest.param(
            "multiKueue: {externalFrameworks: [{name: Run.latest.b.c}]}",
            "expected a version such as v1 or v1beta1 after the kind, got 'latest'",
            id="an external kind without a version",
        ),
        pytest.param(
            "multiKueue: {externalFrameworks: [{name: Run.v1.B_.c}]}",
            "group 'B_.c': a lowercase RFC 1123 subdomain",
            id="an external kind without a group",
        ),
        pytest.param(
            "multiKueue: {externalFrameworks: [{name: ClusterRole.v1.rbac.authorization.k8s.io}]}",
            "objects of the group rbac.authorization.k8s.io are no jobs",
            id="a kind of Kubernetes as an external one",
        ),
        pytest.param(
            "multiKueue: {externalFrameworks: [{name: ReplicaSet.v1.apps}]}",
            "objects of the group apps are no jobs",
            id="a built-in kind of Kubernetes as an external one",
        ),
        pytest.param(
            "multiKueue: {externalFrameworks: [{name: Workload.v1beta2.kueue.x-k8s.io}]}",
            "objects of the group kueue.x-k8s.io are no jobs",
            id="a kind of Kueue as an external one",
        ),
        pytest.param(
            "multiKueue: {externalFrameworks: [{name: Fish.v1.b.c, plural: Fish}]}",
            r"externalFrameworks\[0\].plural: expected lower case letters and digits, got 'Fish'",
            id="the plural of an external kind",
        ),
        pytest.param(
            "integrations: {frameworks: [batch/jobs]}",
            r"integrations.frameworks\[0\]: expected one of batch/job, ",
            id="a framework that is none",
        ),
        pytest.param("integrations: {labelKeysToCopy: ['a b']}", r"labelKeysToCopy\[0\]: name part", id="a label key"),
        pytest.param("fairSharing: {}", "preemptionStrategies: expected one of", id="fair sharing without strategies"),
        pytest.param(
            "fairSharing: {preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]}",
            "preemptionStrategies: expected one of",
            id="strategies in the other order",
        ),
        pytest.param("admissionFairSharing: {}", "usageHalfLifeTime: Field required", id="no half-life"),
        pytest.param(
            "admissionFairSharing: {usageHalfLifeTime: 0, resourceWeights: {cpu: -1}}",
            r"resourceWeights\[cpu\]: must not be negative",
            id="a negative weight",
        ),
        pytest.param(
            "resources: {quotaCheckStrategy: IgnoreUndeclared, excludeResourcePrefixes: [x]}",
            "excludeResourcePrefixes: may not be set with quotaCheckStrategy IgnoreUndeclared",
            id="prefixes that are ignored anyway",
        ),
        pytest.param(
            "resources: {transformations: [{input: a}, {input: a}]}",
            r"\[1\].input: a is named twice",
            id="an input twice",
        ),
        pytest.param(
            "managedJobsNamespaceSelector: {}", "must not match the namespace kube-system", id="everything managed"
        ),
        pytest.param(
            "managedJobsNamespaceSelector: {matchExpressions: [{key: a, operator: Near}]}",
            "managedJobsNamespaceSelector: a: unknown operator 'Near'",
            id="an operator that is none",
        ),
        pytest.param("featureGates: {Kueue: true}", "featureGates.Kueue: there is no such", id="a gate that is none"),
        pytest.param("featureGates: {LendingLimit: true}", "this gate has graduated", id="a graduated gate"),
        pytest.param("featureGates: {TLSOptions: false}", "is locked to true", id="a gate that is locked"),
        pytest.param(
            "featureGates: {MultiKueue: false, MultiKueueClusterProfile: true}",
            "featureGates.MultiKueueClusterProfile: needs MultiKueue, which is off",
            id="a gate without its parent",
        ),
        pytest.param("waitForPodsReady: {timeout: 0s}", "waitForPodsReady.timeout: must be positive", id="no timeout"),
        pytest.param(
            "waitForPodsReady: {requeuingStrategy: {timestamp: Now}}",
            "timestamp: expected one of Eviction, Creation, got 'Now'",
            id="a timestamp that is none",
        ),
        pytest.param(
            "metrics: {customLabels: [{name: 1a, sourceLabelKey: x}]}",
            r"customLabels\[0\].name: expected letters",
            id="a metric label that is none",
        ),
        pytest.param(
            "metrics: {customLabels: [{name: a, sourceKind: Workload, sourceLabelKey: x}]}",
            r"trackedValues: expected 1 to 12 values, got 0",
            id="a label of workloads without values",
        ),
        pytest.param(
            "pendingReasons: {writesPerSecond: -1}",
            "pendingReasons.writesPerSecond: must be a number from 0, got -1",
            id="a negative budget of reasons",
        ),
        pytest.param("preemptionDelay: -1s", "preemptionDelay: must not be negative", id="a negative delay"),
        pytest.param("pendingReasons: {burst: 0}", "pendingReasons.burst: must be at least 1", id="no reason at once"),
        pytest.param(
            "pendingReasons: {figuresInterval: -1s}", "figuresInterval: must not be negative", id="figures before"
        ),
        pytest.param(
            "controller: {groupKindConcurrency: {Job.batch: 0}}", r"\[Job.batch\]: must be at least 1", id="no workers"
        ),
    ],
)
def test_a_mistake_is_named_with_its_path(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        load(text)


def test_all_mistakes_are_named_at_once() -> None:
    with pytest.raises(BadInput, match=r"nonsense: unknown field; .*webhook.port: must be a port"):
        load("nonsense: 1\nwebhook: {port: -1}")


@pytest.mark.parametrize(
    ("settings", "fields"),
    [
        ("", []),
        ("tls: {minVersion: VersionTLS12}\nmetrics: {localQueueMetrics: {enable: true}}", []),
        (
            "pprofBindAddress: ':8083'\ncontroller: {cacheSyncTimeout: 2m}",
            ["pprofBindAddress", "controller.cacheSyncTimeout"],
        ),
        ("tls: {curvePreferences: [X25519]}", ["tls.curvePreferences"]),
        ("metrics: {customLabels: [{name: a, sourceLabelKey: x}]}", ["metrics.customLabels"]),
        (
            "featureGates: {CustomMetricLabels: true}\nmetrics: {customLabels: [{name: a, sourceLabelKey: x}]}",
            [],
        ),
        (
            "featureGates: {CustomMetricLabels: true}\nmetrics: {customLabels: [{name: a, sourceKind: Workload,"
            " sourceLabelKey: x, trackedValues: [y]}]}",
            ["metrics.customLabels[sourceKind=Workload]"],
        ),
        ("metrics: {enableClusterQueueResources: true, localQueueMetrics: {localQueueSelector: {}}}", []),
    ],
)
def test_fields_that_the_manager_does_not_use_are_named_where_they_are_set(settings: str, fields: list[str]) -> None:
    assert list(without_effect(load(settings))) == fields
