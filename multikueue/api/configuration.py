# SPDX-License-Identifier: Apache-2.0
"""The Configuration file of the manager (`docs/spec/kueue-api.md §6`, defaults also `docs/spec/engine.md §0.5`).

Owns one model, in the words of config.kueue.x-k8s.io/v1beta2, into which both versions are read. Promises that a
field nobody knows is an error with its path, and that every other mistake is named the same way, all at once. What
a setting does is told where it is used.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from pydantic import Field, ValidationError

from multikueue.api import configuration_rules, configuration_v1beta1, featuregates
from multikueue.api.codec import problem_lines, without_nulls
from multikueue.api.constants import (
    BATCH_JOB_FRAMEWORK,
    CONFIG_GROUP,
    DEFAULT_NAMESPACE,
    DEFAULT_ORIGIN,
    DISPATCHER_CAPACITY,
    NAMESPACE_NAME_LABEL,
)
from multikueue.api.duration import Duration
from multikueue.api.meta import Amount, JsonObject, LabelSelector, LabelSelectorRequirement, WireModel
from multikueue.core.errors import BadInput

_MINUTE = timedelta(minutes=1)
PREEMPTION_STRATEGIES = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


class Webhook(WireModel):
    """Where the webhooks are served."""

    port: int = 9443
    host: str = ""
    cert_dir: str = "/tmp/k8s-webhook-server/serving-certs"


class LeaderElection(WireModel):
    """Which of several managers leads."""

    leader_elect: bool = True
    lease_duration: Duration = timedelta(seconds=15)
    renew_deadline: Duration = timedelta(seconds=10)
    retry_period: Duration = timedelta(seconds=2)
    resource_lock: str = "leases"
    resource_name: str = "c1f6bfd2.kueue.x-k8s.io"
    resource_namespace: str = ""


class CustomLabel(WireModel):
    """A label of an object that its metrics carry."""

    name: str
    source_kind: str = "ClusterQueue"
    source_label_key: str = ""
    source_annotation_key: str = ""
    tracked_values: tuple[str, ...] = ()


class LocalQueueMetrics(WireModel):
    """Which LocalQueues have metrics of their own."""

    enable: bool = True
    local_queue_selector: LabelSelector | None = None


class Metrics(WireModel):
    """What is measured, and where it is served."""

    bind_address: str = ":8443"
    enable_cluster_queue_resources: bool = False
    custom_labels: tuple[CustomLabel, ...] = ()
    local_queue_metrics: LocalQueueMetrics = Field(default_factory=LocalQueueMetrics)


class Health(WireModel):
    """Where probes are answered."""

    health_probe_bind_address: str = ":8081"
    readiness_endpoint_name: str = "readyz"
    liveness_endpoint_name: str = "healthz"


def _concurrency() -> dict[str, int]:
    return {
        "Job.batch": 5,
        "Pod": 5,
        "Workload.kueue.x-k8s.io": 10,
        "LocalQueue.kueue.x-k8s.io": 5,
        "ClusterQueue.kueue.x-k8s.io": 5,
        "Cohort.kueue.x-k8s.io": 1,
        "ResourceFlavor.kueue.x-k8s.io": 1,
    }


class Controller(WireModel):
    """How many objects of a kind are reconciled at once."""

    group_kind_concurrency: dict[str, int] = Field(default_factory=_concurrency)
    cache_sync_timeout: Duration = 2 * _MINUTE


class Tls(WireModel):
    """What our servers accept."""

    min_version: str = ""
    cipher_suites: tuple[str, ...] = ()
    curve_preferences: tuple[str, ...] = ()


class InternalCertManagement(WireModel):
    """Whether the manager makes its own serving certificate."""

    enable: bool = True
    webhook_service_name: str = "kueue-webhook-service"
    webhook_secret_name: str = "kueue-webhook-server-cert"


class RequeuingStrategy(WireModel):
    """How a workload comes back after its pods did not get ready; no limit is for ever."""

    timestamp: str = "Eviction"
    backoff_limit_count: int | None = None
    backoff_base_seconds: int = 60
    backoff_max_seconds: int = 3600


class WaitForPodsReady(WireModel):
    """How long an admitted workload may take until its pods are ready."""

    timeout: Duration = 30 * _MINUTE
    block_admission: bool = False
    recovery_timeout: Duration | None = None
    requeuing_strategy: RequeuingStrategy = Field(default_factory=RequeuingStrategy)

    @property
    def recovery(self) -> timedelta | None:
        """How long a workload that was ready may lack a pod; None when that is not watched."""
        limit = self.timeout if self.recovery_timeout is None else self.recovery_timeout
        return limit or None


class ClientConnection(WireModel):
    """How fast the API server may be asked."""

    qps: float = 300
    burst: int = 500


class Integrations(WireModel):
    """Which kinds of jobs are managed."""

    frameworks: tuple[str, ...] = (BATCH_JOB_FRAMEWORK,)
    external_frameworks: tuple[str, ...] = ()
    label_keys_to_copy: tuple[str, ...] = ()


class IncrementalDispatcher(WireModel):
    """How many clusters each round adds."""

    step_size: int = 3


class ExternalFramework(WireModel):
    """A job kind that the generic adapter dispatches, as Kind.version.group."""

    name: str


class ExecConfig(WireModel):
    """A program that prints credentials, as a kubeconfig has it."""

    api_version: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[JsonObject, ...] = ()
    interactive_mode: str = ""
    provide_cluster_info: bool = False
    install_hint: str = ""


class AccessProvider(WireModel):
    """How credentials for a ClusterProfile are had."""

    name: str
    exec_config: ExecConfig = Field(default_factory=ExecConfig)


class ClusterProfile(WireModel):
    """Access to clusters named by a ClusterProfile; the second name is the older one."""

    access_providers: tuple[AccessProvider, ...] = ()
    credentials_providers: tuple[AccessProvider, ...] = ()


class MultiKueue(WireModel):
    """Dispatch to worker clusters."""

    gc_interval: Duration = _MINUTE
    origin: str = DEFAULT_ORIGIN
    worker_lost_timeout: Duration = 15 * _MINUTE
    dispatcher_name: str = DISPATCHER_CAPACITY
    incremental_dispatcher_config: IncrementalDispatcher | None = None
    external_frameworks: tuple[ExternalFramework, ...] = ()
    cluster_profile: ClusterProfile | None = None

    @property
    def step_size(self) -> int:
        """How many clusters the incremental dispatcher adds at a time."""
        return (self.incremental_dispatcher_config or IncrementalDispatcher()).step_size


class FairSharing(WireModel):
    """Its presence turns fair sharing on."""

    preemption_strategies: tuple[str, ...] = ()

    @property
    def strategies(self) -> tuple[str, ...]:
        """The strategies in order; both when none is named."""
        return self.preemption_strategies or PREEMPTION_STRATEGIES


class AdmissionFairSharing(WireModel):
    """Order among LocalQueues by what they have used; a half-life of 0 has no memory."""

    usage_half_life_time: Duration
    usage_sampling_interval: Duration = 5 * _MINUTE
    resource_weights: dict[str, float] = Field(default_factory=dict)


class ResourceTransformation(WireModel):
    """How a requested resource counts as others."""

    input: str
    strategy: str = "Retain"
    multiply_by: str | None = None
    outputs: dict[str, Amount] = Field(default_factory=dict)


class DeviceCounter(WireModel):
    """A counter or capacity of a device that a request is charged by."""

    name: str
    driver: str = ""
    device_selector: str = ""


class DeviceSource(WireModel):
    """Where the amount of a mapped resource comes from."""

    counter: DeviceCounter | None = None
    capacity: DeviceCounter | None = None


class DeviceClassMapping(WireModel):
    """The resource name that device classes count as."""

    name: str
    device_class_names: tuple[str, ...] = ()
    sources: tuple[DeviceSource, ...] = ()


class Resources(WireModel):
    """How requests become quota."""

    quota_check_strategy: str = "BlockUndeclared"
    exclude_resource_prefixes: tuple[str, ...] = ()
    transformations: tuple[ResourceTransformation, ...] = ()
    device_class_mappings: tuple[DeviceClassMapping, ...] = ()


class WorkloadRetention(WireModel):
    """When finished or deactivated workloads are deleted; None keeps them."""

    after_finished: Duration | None = None
    after_deactivated_by_kueue: Duration | None = None


class ObjectRetentionPolicies(WireModel):
    """What is deleted after a while."""

    workloads: WorkloadRetention = Field(default_factory=WorkloadRetention)


class VisibilityServer(WireModel):
    """Where pending workloads are shown."""

    bind_address: str = "0.0.0.0"
    bind_port: int = 8082


def managed_jobs_selector(namespace: str) -> LabelSelector:
    """The default: every namespace but the system's and our own."""
    system = LabelSelectorRequirement(key=NAMESPACE_NAME_LABEL, operator="NotIn", values=("kube-system", namespace))
    return LabelSelector(match_expressions=(system,))


class Configuration(WireModel):
    """Everything that is set for a manager."""

    namespace: str = DEFAULT_NAMESPACE
    webhook: Webhook = Field(default_factory=Webhook)
    leader_election: LeaderElection = Field(default_factory=LeaderElection)
    metrics: Metrics = Field(default_factory=Metrics)
    health: Health = Field(default_factory=Health)
    pprof_bind_address: str = ""
    controller: Controller = Field(default_factory=Controller)
    tls: Tls | None = None
    manage_jobs_without_queue_name: bool = False
    managed_jobs_namespace_selector: LabelSelector = Field(
        default_factory=lambda: managed_jobs_selector(DEFAULT_NAMESPACE)
    )
    internal_cert_management: InternalCertManagement = Field(default_factory=InternalCertManagement)
    wait_for_pods_ready: WaitForPodsReady | None = Field(default_factory=WaitForPodsReady)
    client_connection: ClientConnection = Field(default_factory=ClientConnection)
    integrations: Integrations = Field(default_factory=Integrations)
    multikueue: MultiKueue = Field(default_factory=MultiKueue, alias="multiKueue")
    fair_sharing: FairSharing | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    resources: Resources = Field(default_factory=Resources)
    feature_gates: dict[str, bool] = Field(default_factory=dict)
    object_retention_policies: ObjectRetentionPolicies = Field(default_factory=ObjectRetentionPolicies)
    visibility_server: VisibilityServer = Field(default_factory=VisibilityServer)

    def gate(self, name: str) -> bool:
        """Whether a feature gate is on. Raises `KeyError` where there is no such gate."""
        return featuregates.enabled(self.feature_gates, name)


def load(source: Path | str, *, namespace: str = DEFAULT_NAMESPACE) -> Configuration:
    """The configuration in a file (a `Path`) or in YAML text; empty text is all defaults.

    `namespace` is ours where the file does not say. Raises `BadInput` naming file, path and problem.
    """
    if isinstance(source, Path):
        try:
            text = source.read_text(encoding="utf-8")
        except OSError as error:
            raise BadInput(f"configuration {source}: cannot read it: {error.strerror or error}") from error
        return _read(text, origin=f"configuration {source}", namespace=namespace)
    return _read(source, origin="configuration", namespace=namespace)


def _read(text: str, *, origin: str, namespace: str) -> Configuration:
    import yaml

    try:
        document = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise BadInput(f"{origin}: not YAML: {error}") from error
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise BadInput(f"{origin}: expected a mapping of settings, got {type(document).__name__}")
    settings = _current(without_nulls(document), origin)
    settings.setdefault("namespace", namespace)
    try:
        configuration = Configuration.model_validate(settings)
    except ValidationError as error:
        raise BadInput("; ".join(f"{origin}: {line}" for line in problem_lines(error))) from error
    found = [*configuration_rules.unknown_fields(configuration), *configuration_rules.problems(configuration)]
    if found:
        raise BadInput("; ".join(f"{origin}: {path}: {problem}" for path, problem in found))
    return _completed(configuration)


def _current(document: JsonObject, origin: str) -> JsonObject:
    settings = dict(document)
    api_version = settings.pop("apiVersion", f"{CONFIG_GROUP}/v1beta2")
    kind = settings.pop("kind", "Configuration")
    if kind != "Configuration":
        raise BadInput(f"{origin}: kind: expected Configuration, got {kind!r}")
    if api_version == f"{CONFIG_GROUP}/v1beta1":
        return configuration_v1beta1.upgrade(settings)
    if api_version != f"{CONFIG_GROUP}/v1beta2":
        raise BadInput(f"{origin}: apiVersion: expected {CONFIG_GROUP}/v1beta2 or v1beta1, got {api_version!r}")
    return settings


def _completed(configuration: Configuration) -> Configuration:
    changes: dict[str, object] = {}
    if "managed_jobs_namespace_selector" not in configuration.model_fields_set:
        changes["managed_jobs_namespace_selector"] = managed_jobs_selector(configuration.namespace)
    if configuration.gate("DisableWaitForPodsReady"):
        changes["wait_for_pods_ready"] = None
    return configuration.model_copy(update=changes) if changes else configuration
