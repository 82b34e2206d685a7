# SPDX-License-Identifier: Apache-2.0
"""What a Configuration may not say (`docs/spec/kueue-api.md §6.1`).

Owns the rules between and within settings; pydantic has checked the types before. Each problem is a path and a
sentence, and all of them are found in one go.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from multikueue.api import featuregates, names
from multikueue.api.constants import DISPATCHER_ALL_AT_ONCE, DISPATCHER_INCREMENTAL, NAMESPACE_NAME_LABEL
from multikueue.api.meta import WireModel
from multikueue.api.selector import core_selector
from multikueue.core.errors import BadInput

if TYPE_CHECKING:
    from multikueue.api.configuration import (
        AdmissionFairSharing,
        Configuration,
        Metrics,
        MultiKueue,
        Resources,
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
_SOURCE_KINDS: Final = ("ClusterQueue", "LocalQueue", "Cohort", "Workload")


def unknown_fields(model: WireModel, path: str = "") -> Problems:
    """Every field that the models do not know, with the name that was probably meant."""
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
    for name, problem in featuregates.problems(configuration.feature_gates):
        yield f"featureGates.{name}", problem
    for kind, workers in configuration.controller.group_kind_concurrency.items():
        if workers < 1:
            yield f"controller.groupKindConcurrency[{kind}]", f"must be at least 1, got {workers}"
    for path, port in (
        ("webhook.port", configuration.webhook.port),
        ("visibilityServer.bindPort", configuration.visibility_server.bind_port),
    ):
        if not 0 <= port <= 65535:
            yield path, f"must be a port, got {port}"


def _not_negative(path: str, duration: timedelta | None) -> Problems:
    if duration is not None and duration < timedelta():
        yield path, "must not be negative"


def _one_of(path: str, value: str, allowed: tuple[str, ...]) -> Problems:
    if value not in allowed:
        yield path, f"expected one of {', '.join(allowed)}, got {value!r}"


def _namespace_selector(configuration: Configuration) -> Problems:
    path = "managedJobsNamespaceSelector"
    # The default is made later, from the namespace, and excludes both.
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
    for index, framework in enumerate(integrations.frameworks):
        path = f"integrations.frameworks[{index}]"
        yield from _one_of(path, framework, FRAMEWORKS)
        if framework in integrations.frameworks[:index]:
            yield path, f"{framework} is named twice"
    for index, name in enumerate(integrations.external_frameworks):
        yield from _external(
            f"integrations.externalFrameworks[{index}]", name, integrations.external_frameworks[:index]
        )
    for index, key in enumerate(integrations.label_keys_to_copy):
        for problem in names.label_key(key):
            yield f"integrations.labelKeysToCopy[{index}]", problem


def _external(path: str, name: str, earlier: tuple[str, ...]) -> Problems:
    parts = name.split(".", 2)
    if len(parts) != 3 or not all(parts):
        yield path, f"expected Kind.version.group, got {name!r}"
    elif f"{parts[2]}/{parts[0].lower()}" in FRAMEWORKS:
        yield path, f"{name} is a built-in integration; name it under integrations.frameworks"
    if name in earlier:
        yield path, f"{name} is named twice"


def _multikueue(settings: MultiKueue) -> Problems:
    yield from _not_negative("multiKueue.gcInterval", settings.gc_interval)
    yield from _not_negative("multiKueue.workerLostTimeout", settings.worker_lost_timeout)
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
    external = tuple(framework.name for framework in settings.external_frameworks)
    for index, name in enumerate(external):
        yield from _external(f"multiKueue.externalFrameworks[{index}].name", name, external[:index])
    profile = settings.cluster_profile
    if profile is not None and profile.access_providers and profile.credentials_providers:
        yield "multiKueue.clusterProfile", "accessProviders and credentialsProviders exclude each other"


def _metrics(metrics: Metrics) -> Problems:
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


def _admission_fair_sharing(sharing: AdmissionFairSharing) -> Problems:
    yield from _not_negative("admissionFairSharing.usageHalfLifeTime", sharing.usage_half_life_time)
    if sharing.usage_sampling_interval <= timedelta():
        yield "admissionFairSharing.usageSamplingInterval", "must be positive"
    for resource, weight in sharing.resource_weights.items():
        if weight < 0:
            yield f"admissionFairSharing.resourceWeights[{resource}]", f"must not be negative, got {weight}"
