# SPDX-License-Identifier: Apache-2.0
"""Validation of a Configuration (`docs/spec/kueue-api.md §6.1`).

The rules within and between settings; pydantic has checked the types before. Each problem is a path and a sentence, and
all of them are reported at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from multikueue.api import featuregates, names
from multikueue.api.constants import (
    DISPATCHER_ALL_AT_ONCE,
    DISPATCHER_INCREMENTAL,
    NAMESPACE_NAME_LABEL,
    OwnerTrust,
    PodSecurityLevel,
)
from multikueue.api.meta import JsonObject, WireModel
from multikueue.api.selector import core_selector
from multikueue.api.tls_names import CIPHER_SUITES, TLS13_CIPHER_SUITES, TLS_VERSIONS
from multikueue.core.errors import BadInput
from multikueue.core.printable import excerpt

if TYPE_CHECKING:
    from multikueue.api.configuration import (
        AdmissionFairSharingSettings,
        Configuration,
        DispatchPolicySettings,
        ExternalFramework,
        MetricsSettings,
        MultiKueue,
        PendingReasons,
        Resources,
        Tls,
        WaitForPodsReady,
    )

Problems: TypeAlias = Iterator[tuple[str, str]]

FRAMEWORKS: Final = (
    "batch/job",
    "jobset.x-k8s.io/jobset",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/jaxjob",
    "kubeflow.org/mpijob",
    "trainer.kubeflow.org/trainjob",
    "ray.io/rayjob",
    "ray.io/raycluster",
    "ray.io/rayservice",
    "workload.codeflare.dev/appwrapper",
    "sparkoperator.k8s.io/sparkapplication",
    "pod",
    "deployment",
    "statefulset",
    "leaderworkerset.x-k8s.io/leaderworkerset",
)
"""Every built-in integration, `docs/spec/kueue-api.md §4.1`."""
_STRATEGIES: Final = (
    ("LessThanOrEqualToFinalShare",),
    ("LessThanInitialShare",),
    ("LessThanOrEqualToFinalShare", "LessThanInitialShare"),
)
_MOST_KEPT: Final = timedelta(hours=24)
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_VERSION: Final = re.compile(r"v[0-9]+((alpha|beta)[0-9]+)?")
_PLURAL: Final = re.compile(r"[a-z][a-z0-9]{0,62}")
_NOT_JOBS: Final = (".k8s.io", "kueue.x-k8s.io", "multikueue.io")
"""The groups of Kubernetes, of Kueue and of this project, by their ends: an agent must not create their objects."""
_SOURCE_KINDS: Final = ("ClusterQueue", "LocalQueue", "Cohort", "Workload")


def unknown_fields(model: WireModel, path: str = "") -> Problems:
    """All unknown fields, each with the name that was probably meant."""
    known = [info.alias or name for name, info in type(model).model_fields.items()]
    for name in model.model_extra or ():
        yield f"{path}{name}", f"unknown field{_meant(name, known)}"
    for field, info in type(model).model_fields.items():
        value = getattr(model, field)
        where = f"{path}{info.alias or field}"
        if isinstance(value, WireModel):
            yield from unknown_fields(value, f"{where}.")
        elif isinstance(value, tuple):
            for index, item in enumerate(value):
                if isinstance(item, WireModel):
                    yield from unknown_fields(item, f"{where}[{index}].")


def _meant(name: str, known: list[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def problems(configuration: Configuration) -> Problems:
    """Everything else that is wrong."""
    yield from _namespace_selector(configuration)
    yield from _integrations(configuration)
    yield from _multikueue(configuration.multikueue)
    yield from _metrics(configuration.metrics)
    yield from _resources(configuration.resources)
    if configuration.wait_for_pods_ready is not None:
        yield from _wait_for_pods_ready(configuration.wait_for_pods_ready)
    if configuration.fair_sharing is not None:
        given = configuration.fair_sharing.preemption_strategies
        if given not in _STRATEGIES:
            allowed = ", ".join(f"[{', '.join(strategies)}]" for strategies in _STRATEGIES)
            yield "fairSharing.preemptionStrategies", f"expected one of {allowed}, got [{', '.join(given)}]"
    if configuration.admission_fair_sharing is not None:
        yield from _admission_fair_sharing(configuration.admission_fair_sharing)
    retention = configuration.object_retention_policies.workloads
    yield from _not_negative("objectRetentionPolicies.workloads.afterFinished", retention.after_finished)
    yield from _not_negative(
        "objectRetentionPolicies.workloads.afterDeactivatedByKueue", retention.after_deactivated_by_kueue
    )
    yield from _pending_reasons(configuration.pending_reasons)
    yield from _not_negative("preemptionDelay", configuration.preemption_delay)
    for name, problem in featuregates.problems(configuration.feature_gates):
        yield f"featureGates.{name}", problem
    for kind, workers in configuration.controller.group_kind_concurrency.items():
        if workers < 1:
            yield f"controller.groupKindConcurrency[{kind}]", f"must be at least 1, got {workers}"
    if configuration.tls is not None:
        yield from _tls(configuration.tls)
    for path, port in (
        ("webhook.port", configuration.webhook.port),
        ("visibilityServer.bindPort", configuration.visibility_server.bind_port),
    ):
        if not 0 <= port <= 65535:
            yield path, f"must be a port, got {port}"


def without_effect(configuration: Configuration) -> Iterator[str]:
    """The fields that are set to something else than their default and that the manager does not use."""
    metrics, tls = configuration.metrics, configuration.tls
    for path, given in (
        ("pprofBindAddress", configuration.pprof_bind_address),
        ("tls.curvePreferences", tls is not None and tls.curve_preferences),
        ("metrics.customLabels", metrics.custom_labels and not configuration.gate(featuregates.CUSTOM_LABELS)),
        (
            "metrics.customLabels[sourceKind=Workload]",
            any(each.source_kind == "Workload" for each in metrics.custom_labels),
        ),
        ("controller.cacheSyncTimeout", "cache_sync_timeout" in configuration.controller.model_fields_set),
    ):
        if given:
            yield path


def _tls(settings: Tls) -> Problems:
    if settings.min_version:
        yield from _one_of("tls.minVersion", settings.min_version, tuple(TLS_VERSIONS))
    for index, name in enumerate(settings.cipher_suites):
        if name not in CIPHER_SUITES and name not in TLS13_CIPHER_SUITES:
            yield f"tls.cipherSuites[{index}]", f"{excerpt(name)} is not a cipher suite that can be chosen"


def _not_negative(path: str, duration: timedelta | None) -> Problems:
    if duration is not None and duration < timedelta():
        yield path, "must not be negative"


def _one_of(path: str, value: str, allowed: tuple[str, ...]) -> Problems:
    if value not in allowed:
        yield path, f"expected one of {', '.join(allowed)}, got {value!r}"


def _namespace_selector(configuration: Configuration) -> Problems:
    path = "managedJobsNamespaceSelector"
    # The default is set later, from the namespace, and excludes both.
    if "managed_jobs_namespace_selector" not in configuration.model_fields_set:
        return
    try:
        matcher = core_selector(configuration.managed_jobs_namespace_selector)
    except BadInput as error:
        yield path, str(error)
        return
    for name in ("kube-system", configuration.namespace):
        if matcher.matches({NAMESPACE_NAME_LABEL: name}):
            yield path, f"must not match the namespace {name}"


def _integrations(configuration: Configuration) -> Problems:
    integrations = configuration.integrations
    declared = tuple(_declared_name(each) for each in integrations.declarations)
    for index, framework in enumerate(integrations.frameworks):
        path = f"integrations.frameworks[{index}]"
        yield from _one_of(path, framework, (*FRAMEWORKS, *declared))
        if framework in integrations.frameworks[:index]:
            yield path, f"{framework} is named twice"
    for index, name in enumerate(integrations.external_frameworks):
        yield from _external(
            f"integrations.externalFrameworks[{index}]", name, integrations.external_frameworks[:index]
        )
    for index, key in enumerate(integrations.label_keys_to_copy):
        for problem in names.label_key(key):
            yield f"integrations.labelKeysToCopy[{index}]", problem
    owners = integrations.owner_references
    yield from _one_of("integrations.ownerReferences.trust", owners.trust, tuple(OwnerTrust))
    for index, pattern in enumerate(owners.trusted_users):
        if not pattern or pattern.startswith("*"):
            path = f"integrations.ownerReferences.trustedUsers[{index}]"
            yield path, f"expected a user or a pattern that begins with more than a wildcard, got {pattern!r}"


def _declared_name(declaration: JsonObject) -> str:
    """The framework that a declaration is of; the rest of it is read with the job kinds."""
    metadata = declaration.get("metadata")
    return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""


def _external(path: str, name: str, earlier: tuple[str, ...]) -> Problems:
    parts = name.split(".", 2)
    if len(parts) != 3 or not all(parts):
        yield path, f"expected Kind.version.group, got {name!r}"
    elif f"{parts[2]}/{parts[0].lower()}" in FRAMEWORKS:
        yield path, f"{name} is a built-in integration; name it under integrations.frameworks"
    if name in earlier:
        yield path, f"{name} is named twice"


def external_problems(frameworks: Sequence[ExternalFramework]) -> Problems:
    """The problems of `multiKueue.externalFrameworks`, each with its path below that."""
    external = tuple(framework.name for framework in frameworks)
    kinds: dict[tuple[str, str], str] = {}
    for index, framework in enumerate(frameworks):
        path, name = f"[{index}].name", framework.name
        problems = tuple(_external(path, name, external[:index])) or tuple(_kind_name(path, name))
        yield from problems
        if framework.plural and not _PLURAL.fullmatch(framework.plural):
            yield f"[{index}].plural", f"expected lower case letters and digits, got {framework.plural!r}"
        if problems:
            continue
        kind, _, group = name.split(".", 2)
        other = kinds.setdefault((group, kind), name)
        if other != name:
            yield path, f"{name} is the kind of {other} in another version; name one of the two"


def _kind_name(path: str, name: str) -> Problems:
    """The problems of a Kind.version.group whose jobs are sent to workers."""
    kind, version, group = name.split(".", 2)
    if not _KIND.fullmatch(kind):
        yield path, f"expected a kind in upper camel case before the first dot, got {kind!r}"
    if not _VERSION.fullmatch(version):
        yield path, f"expected a version such as v1 or v1beta1 after the kind, got {version!r}"
    problem = next(names.dns_subdomain(group), "")
    if problem:
        yield path, f"group {group!r}: {problem}"
    elif "." not in group or group.endswith(_NOT_JOBS):
        yield path, f"objects of the group {group} are no jobs with spec.managedBy; expected a kind of another project"


def _multikueue(settings: MultiKueue) -> Problems:
    yield from _not_negative("multiKueue.gcInterval", settings.gc_interval)
    yield from _not_negative("multiKueue.workerLostTimeout", settings.worker_lost_timeout)
    yield from _not_negative("multiKueue.podsStartTimeout", settings.pods_start_timeout)
    if settings.provisioning_clusters < 1:
        yield "multiKueue.provisioningClusters", f"must be at least 1, got {settings.provisioning_clusters}"
    yield from _not_negative("multiKueue.keepFailedJobs", settings.keep_failed_jobs)
    if settings.keep_failed_jobs > _MOST_KEPT:
        yield "multiKueue.keepFailedJobs", f"must be at most 24h, got {settings.keep_failed_jobs}"
    for problem in names.label_value(settings.origin):
        yield "multiKueue.origin", problem
    if not settings.origin:
        yield "multiKueue.origin", "must not be empty"
    dispatcher = settings.dispatcher_name
    domain, slash, rest = dispatcher.partition("/")
    if not slash or list(names.dns_subdomain(domain)) or not rest:
        yield "multiKueue.dispatcherName", f"expected domain/path such as {DISPATCHER_ALL_AT_ONCE}, got {dispatcher!r}"
    if settings.incremental_dispatcher_config is not None:
        path = "multiKueue.incrementalDispatcherConfig"
        if dispatcher != DISPATCHER_INCREMENTAL:
            yield path, f"may be set only with the dispatcher {DISPATCHER_INCREMENTAL}"
        if settings.step_size < 1:
            yield f"{path}.stepSize", f"must be at least 1, got {settings.step_size}"
    yield from (
        (f"multiKueue.externalFrameworks{path}", text) for path, text in external_problems(settings.external_frameworks)
    )
    profile = settings.cluster_profile
    if profile is not None and profile.access_providers and profile.credentials_providers:
        yield "multiKueue.clusterProfile", "accessProviders and credentialsProviders exclude each other"
    yield from _dispatch_policy(settings.dispatch_policy)


def _pending_reasons(budget: PendingReasons) -> Problems:
    if not 0 <= budget.writes_per_second < float("inf"):
        yield "pendingReasons.writesPerSecond", f"must be a number from 0, got {budget.writes_per_second}"
    if budget.burst < 1:
        yield "pendingReasons.burst", f"must be at least 1, got {budget.burst}"
    yield from _not_negative("pendingReasons.figuresInterval", budget.figures_interval)


def _dispatch_policy(policy: DispatchPolicySettings) -> Problems:
    path = "multiKueue.dispatchPolicy"
    for field, patterns in (
        ("allowedNamespaces", policy.allowed_namespaces),
        ("deniedNamespaces", policy.denied_namespaces),
        ("serviceAccounts", policy.service_accounts),
    ):
        if patterns is None:
            continue
        if not 1 <= len(patterns) <= names.MAX_PATTERNS:
            # An empty list would be ambiguous: everything or nothing.
            yield f"{path}.{field}", f"expected 1 to {names.MAX_PATTERNS} patterns, got {len(patterns)}"
        for index, pattern in enumerate(patterns):
            for problem in names.name_pattern(pattern):
                yield f"{path}.{field}[{index}]", problem
    yield from _one_of(f"{path}.podSecurity", policy.pod_security, tuple(PodSecurityLevel))


def _metrics(metrics: MetricsSettings) -> Problems:
    if metrics.authorization and not metrics.secure_serving:
        yield "metrics.authorization", "needs secureServing: tokens would be sent in the clear"
    if metrics.cert_dir and not metrics.secure_serving:
        yield "metrics.certDir", "needs secureServing"
    if len(metrics.custom_labels) > 20:
        yield "metrics.customLabels", f"at most 20 labels, got {len(metrics.custom_labels)}"
    for index, label in enumerate(metrics.custom_labels):
        path = f"metrics.customLabels[{index}]"
        if not names.METRIC_LABEL.fullmatch(label.name):
            yield f"{path}.name", f"expected letters, digits and underscores after a letter, got {label.name!r}"
        yield from _one_of(f"{path}.sourceKind", label.source_kind, _SOURCE_KINDS)
        if bool(label.source_label_key) == bool(label.source_annotation_key):
            yield path, "exactly one of sourceLabelKey and sourceAnnotationKey must be set"
        least, most = (1, 12) if label.source_kind == "Workload" else (0, 16)
        if not least <= len(label.tracked_values) <= most:
            yield f"{path}.trackedValues", f"expected {least} to {most} values, got {len(label.tracked_values)}"
    for kind in _SOURCE_KINDS:
        most = 2 if kind == "Workload" else 6
        count = sum(label.source_kind == kind for label in metrics.custom_labels)
        if count > most:
            yield "metrics.customLabels", f"at most {most} labels of {kind}, got {count}"


def _resources(resources: Resources) -> Problems:
    strategies = ("BlockUndeclared", "IgnoreUndeclared")
    yield from _one_of("resources.quotaCheckStrategy", resources.quota_check_strategy, strategies)
    if resources.quota_check_strategy == "IgnoreUndeclared" and resources.exclude_resource_prefixes:
        yield "resources.excludeResourcePrefixes", "may not be set with quotaCheckStrategy IgnoreUndeclared"
    inputs = [transformation.input for transformation in resources.transformations]
    for index, transformation in enumerate(resources.transformations):
        path = f"resources.transformations[{index}]"
        yield from _one_of(f"{path}.strategy", transformation.strategy, ("Retain", "Replace"))
        if transformation.input in inputs[:index]:
            yield f"{path}.input", f"{transformation.input} is named twice"
    if len(resources.device_class_mappings) > 16:
        yield "resources.deviceClassMappings", f"at most 16 mappings, got {len(resources.device_class_mappings)}"
    for index, mapping in enumerate(resources.device_class_mappings):
        path = f"resources.deviceClassMappings[{index}]"
        if len(mapping.name) > 253:
            yield f"{path}.name", "must be no more than 253 characters"
        if not 1 <= len(mapping.device_class_names) <= 8:
            yield f"{path}.deviceClassNames", f"expected 1 to 8 names, got {len(mapping.device_class_names)}"


def _wait_for_pods_ready(waiting: WaitForPodsReady) -> Problems:
    if waiting.timeout <= timedelta():
        yield "waitForPodsReady.timeout", "must be positive"
    yield from _not_negative("waitForPodsReady.recoveryTimeout", waiting.recovery_timeout)
    strategy = waiting.requeuing_strategy
    path = "waitForPodsReady.requeuingStrategy"
    yield from _one_of(f"{path}.timestamp", strategy.timestamp, ("Eviction", "Creation"))
    for name, value in (
        ("backoffLimitCount", strategy.backoff_limit_count or 0),
        ("backoffBaseSeconds", strategy.backoff_base_seconds),
        ("backoffMaxSeconds", strategy.backoff_max_seconds),
    ):
        if value < 0:
            yield f"{path}.{name}", f"must not be negative, got {value}"


def _admission_fair_sharing(sharing: AdmissionFairSharingSettings) -> Problems:
    yield from _not_negative("admissionFairSharing.usageHalfLifeTime", sharing.usage_half_life_time)
    if sharing.usage_sampling_interval <= timedelta():
        yield "admissionFairSharing.usageSamplingInterval", "must be positive"
    for resource, weight in sharing.resource_weights.items():
        if weight < 0:
            yield f"admissionFairSharing.resourceWeights[{resource}]", f"must not be negative, got {weight}"
