# SPDX-License-Identifier: Apache-2.0
"""The Configuration file of the manager (`docs/spec/kueue-api.md §6`, defaults also `docs/spec/engine.md §0.5`).

One model with the fields of config.kueue.x-k8s.io/v1beta2, into which both versions are read. An unknown field is an
error with its path, like every other mistake, and all are reported at once. What a setting does is documented where it
is used.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TypeAlias

from pydantic import Field

from multikueue.api import featuregates
from multikueue.api.constants import (
    BATCH_JOB_FRAMEWORK,
    DEFAULT_NAMESPACE,
    DEFAULT_ORIGIN,
    DISPATCHER_CAPACITY,
    NAMESPACE_NAME_LABEL,
    OwnerTrust,
    PodSecurityLevel,
)
from multikueue.api.duration import Duration
from multikueue.api.meta import Amount, JsonObject, LabelSelectorRequirement, WireLabelSelector, WireModel

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
    """Which LocalQueues have metrics."""

    enable: bool = True
    local_queue_selector: WireLabelSelector | None = None


class MetricsSettings(WireModel):
    """What is measured, and where it is served."""

    bind_address: str = ":8443"
    secure_serving: bool = False
    """Serve over TLS; not in Kueue, like the next two."""
    cert_dir: str = ""
    """Holds `tls.crt` and `tls.key`; empty for the certificate of the webhooks."""
    authorization: bool = False
    """Serve only users who may `get` /metrics, by TokenReview and SubjectAccessReview."""
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


class ControllerSettings(WireModel):
    """How many objects of a kind are reconciled at once."""

    group_kind_concurrency: dict[str, int] = Field(default_factory=_concurrency)
    cache_sync_timeout: Duration = 2 * _MINUTE


class Tls(WireModel):
    """The TLS settings of our servers."""

    min_version: str = ""
    cipher_suites: tuple[str, ...] = ()
    curve_preferences: tuple[str, ...] = ()


class InternalCertManagement(WireModel):
    """Whether the manager creates its serving certificate."""

    enable: bool = True
    webhook_service_name: str = "kueue-webhook-service"
    webhook_secret_name: str = "kueue-webhook-server-cert"


class RequeuingStrategy(WireModel):
    """How a workload is requeued after its pods were not ready in time; without a limit for ever."""

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

    @property
    def awaits_starts(self) -> bool:
        """Whether ten seconds count until it is known that the pods of a workload are ready."""
        return self.block_admission or self.timeout < _MINUTE


class ClientConnection(WireModel):
    """The rate limit of requests to the API server."""

    qps: float = 300
    burst: int = 500


class OwnerReferenceSettings(WireModel):
    """Whose owner references leave an object to the quota of its owner. Not in Kueue, which trusts everyone.

    Patterns of users have the wildcards `*` and `?`.
    """

    trust: str = OwnerTrust.AUTHORIZED
    trusted_users: tuple[str, ...] = ()


class Integrations(WireModel):
    """Which kinds of jobs are managed."""

    frameworks: tuple[str, ...] = (BATCH_JOB_FRAMEWORK,)
    external_frameworks: tuple[str, ...] = ()
    label_keys_to_copy: tuple[str, ...] = ()
    declarations: tuple[JsonObject, ...] = ()
    """Declarations of job kinds (docs/jobs/your-own-kind.md); not in Kueue."""
    owner_references: OwnerReferenceSettings = Field(default_factory=OwnerReferenceSettings)


FrameworkRule: TypeAlias = Callable[[Integrations], tuple[tuple[str, str], ...]]
"""The problems of the frameworks and declarations, each with its path."""


class IncrementalDispatcher(WireModel):
    """How many clusters each round adds."""

    step_size: int = 3


class ExternalFramework(WireModel):
    """A job kind that the generic adapter dispatches, as Kind.version.group."""

    name: str
    plural: str = ""
    """The plural of its CustomResourceDefinition, if it is not the usual one. Not in Kueue."""


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
    """How the credentials of a ClusterProfile are obtained."""

    name: str
    exec_config: ExecConfig = Field(default_factory=ExecConfig)


class ClusterProfile(WireModel):
    """Access to clusters named by a ClusterProfile; the second name is the older one."""

    access_providers: tuple[AccessProvider, ...] = ()
    credentials_providers: tuple[AccessProvider, ...] = ()


class DispatchPolicySettings(WireModel):
    """What may be sent to any worker cluster; a missing list allows everything, or denies nothing.

    Names are patterns with the wildcards `*` and `?`. Each MultiKueueCluster may restrict it further.
    """

    allowed_namespaces: tuple[str, ...] | None = None
    denied_namespaces: tuple[str, ...] | None = None
    service_accounts: tuple[str, ...] | None = None
    pod_security: str = PodSecurityLevel.PRIVILEGED


class MultiKueue(WireModel):
    """Dispatch to worker clusters."""

    gc_interval: Duration = _MINUTE
    origin: str = DEFAULT_ORIGIN
    worker_lost_timeout: Duration = 15 * _MINUTE
    pods_start_timeout: Duration = 5 * _MINUTE
    """How long a cluster may fail to start any pod of a workload; 0 leaves it there. Not in Kueue."""
    keep_failed_jobs: Duration = 10 * _MINUTE
    """For how long the remote Job of a failed workload is kept after its end; 0 removes it at once."""
    provisioning_clusters: int = 1
    """How many clusters the capacity dispatcher asks at a time to provision capacity for a workload. Not in Kueue."""
    dispatcher_name: str = DISPATCHER_CAPACITY
    incremental_dispatcher_config: IncrementalDispatcher | None = None
    external_frameworks: tuple[ExternalFramework, ...] = ()
    cluster_profile: ClusterProfile | None = None
    dispatch_policy: DispatchPolicySettings = Field(default_factory=DispatchPolicySettings)

    @property
    def step_size(self) -> int:
        """How many clusters the incremental dispatcher adds at a time."""
        return (self.incremental_dispatcher_config or IncrementalDispatcher()).step_size


class FairSharingSettings(WireModel):
    """Its presence turns fair sharing on."""

    preemption_strategies: tuple[str, ...] = ()

    @property
    def strategies(self) -> tuple[str, ...]:
        """The strategies in order; both when none is named."""
        return self.preemption_strategies or PREEMPTION_STRATEGIES


class AdmissionFairSharingSettings(WireModel):
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


class PendingReasons(WireModel):
    """The rate limit of writes of why Workloads are pending."""

    writes_per_second: float = 10.0
    """Over long; 0 for no limit."""
    burst: int = 100
    """Writes at once before that holds."""
    figures_interval: Duration = _MINUTE
    """How long a condition keeps old amounts while its reason stays."""


class VisibilityServer(WireModel):
    """Where pending workloads are shown."""

    bind_address: str = "0.0.0.0"
    bind_port: int = 8082


def managed_jobs_selector(namespace: str) -> WireLabelSelector:
    """The default: all namespaces but kube-system and that of the manager."""
    system = LabelSelectorRequirement(key=NAMESPACE_NAME_LABEL, operator="NotIn", values=("kube-system", namespace))
    return WireLabelSelector(match_expressions=(system,))


class Configuration(WireModel):
    """All settings of a manager."""

    namespace: str = DEFAULT_NAMESPACE
    webhook: Webhook = Field(default_factory=Webhook)
    leader_election: LeaderElection = Field(default_factory=LeaderElection)
    metrics: MetricsSettings = Field(default_factory=MetricsSettings)
    health: Health = Field(default_factory=Health)
    pprof_bind_address: str = ""
    controller: ControllerSettings = Field(default_factory=ControllerSettings)
    tls: Tls | None = None
    manage_jobs_without_queue_name: bool = False
    managed_jobs_namespace_selector: WireLabelSelector = Field(
        default_factory=lambda: managed_jobs_selector(DEFAULT_NAMESPACE)
    )
    internal_cert_management: InternalCertManagement = Field(default_factory=InternalCertManagement)
    wait_for_pods_ready: WaitForPodsReady | None = Field(default_factory=WaitForPodsReady)
    client_connection: ClientConnection = Field(default_factory=ClientConnection)
    integrations: Integrations = Field(default_factory=Integrations)
    multikueue: MultiKueue = Field(default_factory=MultiKueue, alias="multiKueue")
    fair_sharing: FairSharingSettings | None = None
    admission_fair_sharing: AdmissionFairSharingSettings | None = None
    resources: Resources = Field(default_factory=Resources)
    feature_gates: dict[str, bool] = Field(default_factory=dict)
    object_retention_policies: ObjectRetentionPolicies = Field(default_factory=ObjectRetentionPolicies)
    pending_reasons: PendingReasons = Field(default_factory=PendingReasons)
    preemption_delay: Duration = timedelta(milliseconds=100)
    """How long after its decision an eviction is written, if the preemptor still waits then."""
    visibility_server: VisibilityServer = Field(default_factory=VisibilityServer)

    def gate(self, name: str) -> bool:
        """Whether a feature gate is on. Raises `KeyError` where there is no such gate."""
        return featuregates.enabled(self.feature_gates, name)

    @property
    def counts_devices(self) -> bool:
        """Whether devices that pods claim count as resources of the quota."""
        return self.gate(featuregates.DEVICES) and bool(self.resources.device_class_mappings)
