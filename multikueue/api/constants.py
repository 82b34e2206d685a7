# SPDX-License-Identifier: Apache-2.0
"""The strings of the API: labels, annotations, finalizers, gates, controller names, field managers, enum values.

Those of Kueue are exactly Kueue's (`docs/spec/kueue-api.md §2`). Messages are with the code that writes them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from multikueue.api.resource import KUEUE_GROUP, KUEUE_VERSION, OWN_GROUP, OWN_VERSION

KUEUE_API_VERSION: Final = f"{KUEUE_GROUP}/{KUEUE_VERSION}"
KUEUE_V1BETA1_API_VERSION: Final = f"{KUEUE_GROUP}/v1beta1"
OWN_API_VERSION: Final = f"{OWN_GROUP}/{OWN_VERSION}"
CONFIG_GROUP: Final = "config.kueue.x-k8s.io"
VISIBILITY_GROUP: Final = "visibility.kueue.x-k8s.io"

# Labels, kueue-api.md §2.1.
QUEUE_NAME_LABEL: Final = "kueue.x-k8s.io/queue-name"
PRIORITY_CLASS_LABEL: Final = "kueue.x-k8s.io/priority-class"
MAX_EXEC_TIME_LABEL: Final = "kueue.x-k8s.io/max-exec-time-seconds"
PREBUILT_WORKLOAD_LABEL: Final = "kueue.x-k8s.io/prebuilt-workload-name"
JOB_UID_LABEL: Final = "kueue.x-k8s.io/job-uid"
MANAGED_LABEL: Final = "kueue.x-k8s.io/managed"
MANAGED_LABEL_VALUE: Final = "true"
POD_SET_LABEL: Final = "kueue.x-k8s.io/podset"
CLUSTER_QUEUE_LABEL: Final = "kueue.x-k8s.io/cluster-queue-name"
LOCAL_QUEUE_LABEL: Final = "kueue.x-k8s.io/local-queue-name"
DEFAULT_QUEUE_LABEL: Final = "kueue.x-k8s.io/default-queue"
"""On a namespace: the LocalQueue of its jobs that name none."""
POD_GROUP_NAME_LABEL: Final = "kueue.x-k8s.io/pod-group-name"
POD_GROUP_POD_INDEX_LABEL: Final = "kueue.x-k8s.io/pod-group-pod-index"
ORIGIN_LABEL: Final = "kueue.x-k8s.io/multikueue-origin"
WORKER_WORKLOAD_POD_LABEL: Final = "kueue.x-k8s.io/multikueue-worker-workload-pod"
CONCURRENT_ADMISSION_PARENT_LABEL: Final = "kueue.x-k8s.io/concurrent-admission-parent"
AUTO_GENERATED_LABEL: Final = "kueue.x-k8s.io/auto-generated"

# Annotations, kueue-api.md §2.2.
ADMISSION_GATED_BY_ANNOTATION: Final = "kueue.x-k8s.io/admission-gated-by"
COMPONENT_WORKLOAD_INDEX_ANNOTATION: Final = "kueue.x-k8s.io/component-workload-index"
ELASTIC_JOB_ANNOTATION: Final = "kueue.x-k8s.io/elastic-job"
IS_GROUP_WORKLOAD_ANNOTATION: Final = "kueue.x-k8s.io/is-group-workload"
JOB_COMPLETIONS_EQUAL_PARALLELISM_ANNOTATION: Final = "kueue.x-k8s.io/job-completions-equal-parallelism"
JOB_MIN_PARALLELISM_ANNOTATION: Final = "kueue.x-k8s.io/job-min-parallelism"
JOB_OWNER_GVK_ANNOTATION: Final = "kueue.x-k8s.io/job-owner-gvk"
JOB_OWNER_NAME_ANNOTATION: Final = "kueue.x-k8s.io/job-owner-name"
ORIGIN_UID_ANNOTATION: Final = "kueue.x-k8s.io/multikueue-origin-uid"
POD_GROUP_FAST_ADMISSION_ANNOTATION: Final = "kueue.x-k8s.io/pod-group-fast-admission"
POD_GROUP_POD_INDEX_LABEL_ANNOTATION: Final = "kueue.x-k8s.io/pod-group-pod-index-label"
POD_GROUP_SERVING_ANNOTATION: Final = "kueue.x-k8s.io/pod-group-serving"
POD_GROUP_TOTAL_COUNT_ANNOTATION: Final = "kueue.x-k8s.io/pod-group-total-count"
POD_INDEX_OFFSET_ANNOTATION: Final = "kueue.x-k8s.io/pod-index-offset"
POD_SUSPENDING_PARENT_ANNOTATION: Final = "kueue.x-k8s.io/pod-suspending-parent"
POD_SET_GROUP_NAME_ANNOTATION: Final = "kueue.x-k8s.io/podset-group-name"
POD_SET_PREFERRED_TOPOLOGY_ANNOTATION: Final = "kueue.x-k8s.io/podset-preferred-topology"
POD_SET_REQUIRED_TOPOLOGY_ANNOTATION: Final = "kueue.x-k8s.io/podset-required-topology"
POD_SET_UNCONSTRAINED_TOPOLOGY_ANNOTATION: Final = "kueue.x-k8s.io/podset-unconstrained-topology"
POD_SET_SLICE_REQUIRED_TOPOLOGY_ANNOTATION: Final = "kueue.x-k8s.io/podset-slice-required-topology"
POD_SET_SLICE_REQUIRED_TOPOLOGY_CONSTRAINTS_ANNOTATION: Final = (
    "kueue.x-k8s.io/podset-slice-required-topology-constraints"
)
POD_SET_SLICE_SIZE_ANNOTATION: Final = "kueue.x-k8s.io/podset-slice-size"
MAX_TOPOLOGY_CONSTRAINTS_LENGTH: Final = 4096
PRIORITY_BOOST_ANNOTATION: Final = "kueue.x-k8s.io/priority-boost"
RAY_CLUSTER_GENERATION_ANNOTATION: Final = "kueue.x-k8s.io/raycluster-generation"
RAY_CLUSTER_REPLICA_SIZES_ANNOTATION: Final = "kueue.x-k8s.io/raycluster-podset-replica-sizes"
RETRIABLE_IN_GROUP_ANNOTATION: Final = "kueue.x-k8s.io/retriable-in-group"
ROLE_HASH_ANNOTATION: Final = "kueue.x-k8s.io/role-hash"
SAFE_TO_FORCEFULLY_DELETE_ANNOTATION: Final = "kueue.x-k8s.io/safe-to-forcefully-delete"
STOPPING_ANNOTATION: Final = "kueue.x-k8s.io/stopping"
WORKLOAD_ANNOTATION: Final = "kueue.x-k8s.io/workload"
WORKLOAD_ALLOWED_FLAVORS_ANNOTATION: Final = "kueue.x-k8s.io/workload-allowed-resource-flavors"
WORKLOAD_SLICE_NAME_ANNOTATION: Final = "kueue.x-k8s.io/workload-slice-name"
WORKLOAD_SLICE_REPLACEMENT_FOR_ANNOTATION: Final = "kueue.x-k8s.io/workload-slice-replacement-for"
# Since 0.18 a name too long for a label value is written as an annotation under the same key.
PREBUILT_WORKLOAD_ANNOTATION: Final = PREBUILT_WORKLOAD_LABEL
PROVISIONING_PARAMETER_PREFIX: Final = "provreq.kueue.x-k8s.io/"
CONSUME_PROVISIONING_REQUEST_ANNOTATION: Final = "autoscaling.x-k8s.io/consume-provisioning-request"
PROVISIONING_CLASS_NAME_ANNOTATION: Final = "autoscaling.x-k8s.io/provisioning-class-name"

# Gates, finalizers, managers, names, kueue-api.md §2.3.
ADMISSION_SCHEDULING_GATE: Final = "kueue.x-k8s.io/admission"
TOPOLOGY_SCHEDULING_GATE: Final = "kueue.x-k8s.io/topology"
SCHEDULING_GATES: Final = frozenset({ADMISSION_SCHEDULING_GATE, TOPOLOGY_SCHEDULING_GATE})
"""Those that Kueue gives a pod, and takes away once it is admitted and placed."""
ELASTIC_JOB_SCHEDULING_GATE: Final = "kueue.x-k8s.io/elastic-job"
ELASTIC_JOB_POD_LABEL: Final = "kueue.x-k8s.io/elastic-job"
UNTRACKED_VALUE: Final = "kueue.x-k8s.io/_UNTRACKED_VALUE_"
"""Of a custom label of metrics, for each value that is not one of those that the Configuration lists."""
RESOURCE_IN_USE_FINALIZER: Final = "kueue.x-k8s.io/resource-in-use"
POD_FINALIZER: Final = "kueue.x-k8s.io/managed"
MULTIKUEUE_CONTROLLER: Final = "kueue.x-k8s.io/multikueue"
PROVISIONING_CONTROLLER: Final = "kueue.x-k8s.io/provisioning-request"
FORMER_PROVISIONING_CONTROLLER: Final = "kueue.x-k8s.io/provisioning"
PROVISIONING_CONTROLLERS: Final = frozenset({PROVISIONING_CONTROLLER, FORMER_PROVISIONING_CONTROLLER})
MULTIKUEUE_MANAGED_BY: Final = "kueue.x-k8s.io/multikueue"
JOB_CONTROLLER_MANAGED_BY: Final = "kubernetes.io/job-controller"
DISPATCHER_ALL_AT_ONCE: Final = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"
DISPATCHER_INCREMENTAL: Final = "kueue.x-k8s.io/multikueue-dispatcher-incremental"
DISPATCHER_CAPACITY: Final = "multikueue.io/dispatcher-capacity"
MULTIKUEUE_PREEMPTION_GATE: Final = "kueue.x-k8s.io/multikueue"
CONCURRENT_ADMISSION_PREEMPTION_GATE: Final = "kueue.x-k8s.io/concurrent-admission"
KUBECONFIG_SECRET_KEY: Final = "kubeconfig"
DEFAULT_ORIGIN: Final = "multikueue"
ADMISSION_FIELD_MANAGER: Final = "kueue-admission"
JOB_CONTROLLER_FIELD_MANAGER_PREFIX: Final = "kueue-job-controller-"
JOB_WORKLOADS_FIELD_MANAGER: Final = "multikueue-job-workloads"
"""Creates the Workloads of jobs, which the manager reviews before it sends them."""
RECLAIMABLE_PODS_FIELD_MANAGER: Final = "kueue-reclaimable-pods"
TRAIN_JOB_PATCH_MANAGER: Final = "kueue.x-k8s.io/manager"
DEFAULT_LOCAL_QUEUE: Final = "default"
DEFAULT_PRIORITY_CLASS: Final = "default"
DEFAULT_POD_SET: Final = "main"
BATCH_JOB_FRAMEWORK: Final = "batch/job"
POD_FRAMEWORK: Final = "pod"
DEPLOYMENT_FRAMEWORK: Final = "deployment"
STATEFUL_SET_FRAMEWORK: Final = "statefulset"
LEADER_WORKER_SET_FRAMEWORK: Final = "leaderworkerset.x-k8s.io/leaderworkerset"
UNTRACKED_METRIC_VALUE: Final = "kueue.x-k8s.io/_UNTRACKED_VALUE_"
HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
NAMESPACE_NAME_LABEL: Final = "kubernetes.io/metadata.name"
DEFAULT_NAMESPACE: Final = "kueue-system"
AGENT_NAMESPACE: Final = "multikueue-system"
"""The default namespace of an agent and its identity on a worker cluster."""
PODS_RESOURCE: Final = "pods"

# Priority classes: v1beta2 names a group and a kind, v1beta1 a source.
WORKLOAD_PRIORITY_CLASS_GROUP: Final = KUEUE_GROUP
WORKLOAD_PRIORITY_CLASS_KIND: Final = "WorkloadPriorityClass"
POD_PRIORITY_CLASS_GROUP: Final = "scheduling.k8s.io"
POD_PRIORITY_CLASS_KIND: Final = "PriorityClass"
WORKLOAD_PRIORITY_CLASS_SOURCE: Final = "kueue.x-k8s.io/workloadpriorityclass"
POD_PRIORITY_CLASS_SOURCE: Final = "scheduling.k8s.io/priorityclass"

# What the batch controllers of Kubernetes write.
BATCH_JOB_NAME_LABEL: Final = "batch.kubernetes.io/job-name"
BATCH_CONTROLLER_UID_LABEL: Final = "batch.kubernetes.io/controller-uid"
LEGACY_JOB_NAME_LABEL: Final = "job-name"
LEGACY_CONTROLLER_UID_LABEL: Final = "controller-uid"

# Ours: contracts of multikueue.io.
CLUSTER_LABEL: Final = "multikueue.io/cluster"
FAILED_JOB_LABEL: Final = "multikueue.io/failed-job"
"""On the ConfigMap with the exit codes and last lines of a failed job: the name of the job."""
EPOCH_ANNOTATION: Final = "multikueue.io/epoch"
FIRST_EPOCH_ANNOTATION: Final = "multikueue.io/first-epoch"
"""On a slice of an elastic job that replaces another: the epoch of that one, which evictions of the slice count on."""
MANAGER_UID_ANNOTATION: Final = "multikueue.io/manager-uid"
CLUSTER_UID_ANNOTATION: Final = "multikueue.io/cluster-uid"
ASSIGNMENT_ANNOTATION: Final = "multikueue.io/assignment"
REMOTE_POD_LABEL: Final = "multikueue.io/remote-pods"  # a digest of the assignment
WORKLOAD_NAME_ANNOTATION: Final = "multikueue.io/workload-name"
CANNOT_STOP_ANNOTATION: Final = "multikueue.io/cannot-stop-since"
"""On the Lease of an agent that cannot reach the worker's API server: it runs, and cannot stop Jobs there."""
TRANSPORT_ANNOTATION: Final = "multikueue.io/transport"
PARTITION_POLICY_ANNOTATION: Final = "multikueue.io/partition-policy"
CLUSTERS_ANNOTATION: Final = "multikueue.io/clusters"
"""On a job or Workload: the only clusters that may run it, comma-separated."""
CLUSTER_SELECTOR_ANNOTATION: Final = "multikueue.io/cluster-selector"
"""On a job or Workload: a label selector that a MultiKueueCluster must match."""
PREFERRED_CLUSTERS_ANNOTATION: Final = "multikueue.io/preferred-clusters"
"""On a job or Workload: a label selector; clusters that match it are preferred."""
PLACEMENT_ANNOTATION: Final = "multikueue.io/placement"
"""On a job or Workload: spread or pack."""
WEIGHT_ANNOTATION: Final = "multikueue.io/weight"
"""On a MultiKueueCluster: how much it is preferred; 1 by default."""
VERDICTS_ANNOTATION: Final = "multikueue.io/verdicts"
"""On an assignment: the result of each filter and score for each cluster when it was created."""
ROUND_ANNOTATION: Final = "multikueue.io/dispatch-round"
"""On a Workload: the round of the incremental dispatcher, as epoch, clusters nominated, and when it began."""
AVOIDED_ANNOTATION: Final = "multikueue.io/avoided-clusters"
"""On a Workload: clusters on which it failed, each with the time until which it is avoided."""
GATE_OPENING_ANNOTATION: Final = "multikueue.io/preemption-gate-opened"
"""On a Workload: the last opened preemption gate, as epoch, cluster and time."""
ADOPTS_ANNOTATION: Final = "multikueue.io/adopts"
"""On a job, by `mkctl cluster recover`: the remote job to adopt, as cluster, manager uid, job uid and epoch."""
ADOPT_VERB: Final = "adopt"
"""On MultiKueueClusters: the RBAC verb for a job to adopt a remote job that runs there."""
ADOPTS_SEAL_ANNOTATION: Final = "multikueue.io/adopts-seal"
"""With `ADOPTS_ANNOTATION`: the manager's confirmation that its writer has the right."""
RUNTIME_ANNOTATION: Final = "multikueue.io/runtime"
"""On a Workload: uid and generation of the runtime that described the pods of its job, and the seal of its pod sets."""
LOG_REQUEST_SEAL_ANNOTATION: Final = "multikueue.io/log-request-seal"
"""On a JobLogRequest: proof that the user who created it may read the logs."""
MAILBOX_SEAL_ANNOTATION: Final = "multikueue.io/mailbox-seal"
"""On a mailbox namespace: the manager's confirmation that it created the namespace, or was given it."""
MAILBOX_NAMESPACE_UID_ANNOTATION: Final = "multikueue.io/mailbox-namespace-uid"
"""On a MultiKueueCluster: the uid of a namespace that an administrator gives it as its mailbox."""
RUN_FOR_ANNOTATION: Final = "multikueue.io/run-for"
EXIT_CODE_ANNOTATION: Final = "multikueue.io/exit-code"
FAIL_ONCE_ANNOTATION: Final = "multikueue.io/fail-once"
NEVER_READY_ANNOTATION: Final = "multikueue.io/never-ready"
READY_AFTER_ANNOTATION: Final = "multikueue.io/ready-after"
ALLOWED_NAMESPACES_ANNOTATION: Final = "multikueue.io/allowed-namespaces"
"""On a MultiKueueCluster: comma-separated patterns of namespaces whose work may be sent there."""
DENIED_NAMESPACES_ANNOTATION: Final = "multikueue.io/denied-namespaces"
"""On a MultiKueueCluster: patterns of namespaces whose work is not sent there, even if allowed."""
ALLOWED_SERVICE_ACCOUNTS_ANNOTATION: Final = "multikueue.io/allowed-service-accounts"
"""On a MultiKueueCluster: patterns of the service accounts that work sent there may run as."""
POD_SECURITY_ANNOTATION: Final = "multikueue.io/pod-security"
"""On a MultiKueueCluster: the Pod Security level that work sent there must meet."""
SEND_OBJECTS_ANNOTATION: Final = "multikueue.io/send-objects"
"""On a MultiKueueCluster: the kinds of the objects that are sent there with the jobs whose pods name them."""
SENT_FROM_ANNOTATION: Final = "multikueue.io/sent-from"
"""On an object that is sent with jobs: its namespace and name on the management cluster."""
SENT_VERSION_ANNOTATION: Final = "multikueue.io/sent-version"
"""On an object that is sent with jobs: the version of its contents."""
SENT_TYPE_ANNOTATION: Final = "multikueue.io/sent-type"
"""On a Secret in a mailbox: the type of the Secret that it was made from."""
SENT_OBJECT_LABEL: Final = "multikueue.io/sent-object"
"""On an object in a mailbox, or on a worker, that was made from one of the management cluster."""
MAILBOX_NAMESPACE_PREFIX: Final = "mk-"
MAILBOX_OBJECT_NAME: Final = "agent"
"""The name of both the Lease and the ClusterReport in a mailbox."""
AGENT_USER_PREFIX: Final = "system:mk:cluster:"
AGENT_GROUP: Final = "system:mk:agents"


class TransportType(StrEnum):
    """The transport of assignments to a worker cluster."""

    AGENT = "agent"
    PUSH = "push"


class PartitionPolicy(StrEnum):
    """What happens to running work while its worker cluster is unreachable."""

    KEEP = "keep"
    FAILOVER = "failover"
    FENCED = "fenced"


class PodSecurityLevel(StrEnum):
    """A level of the Kubernetes Pod Security Standards, the most permissive first."""

    PRIVILEGED = "privileged"
    BASELINE = "baseline"
    RESTRICTED = "restricted"


class OwnerTrust(StrEnum):
    """Who may write an owner reference that leaves an object to the quota of its owner."""

    AUTHORIZED = "Authorized"
    EVERYONE = "Everyone"


class StopPolicy(StrEnum):
    """Whether a queue admits and keeps work, kueue-api.md §9.10."""

    NONE = "None"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"


class QueueingStrategy(StrEnum):
    """What a ClusterQueue does if its head does not fit."""

    STRICT_FIFO = "StrictFIFO"
    BEST_EFFORT_FIFO = "BestEffortFIFO"


class FungibilityPolicy(StrEnum):
    """Whether the search for a flavor stops at one that needs borrowing or preemption."""

    MAY_STOP_SEARCH = "MayStopSearch"
    TRY_NEXT_FLAVOR = "TryNextFlavor"


class FungibilityPreference(StrEnum):
    """The preferred flavor if one needs borrowing and the other preemption."""

    BORROWING_OVER_PREEMPTION = "BorrowingOverPreemption"
    PREEMPTION_OVER_BORROWING = "PreemptionOverBorrowing"


class PreemptionPolicy(StrEnum):
    """Which workloads may be preempted; the valid values depend on the field."""

    NEVER = "Never"
    ANY = "Any"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"


class AdmissionMode(StrEnum):
    """Whether the order in a ClusterQueue follows the usage of its LocalQueues."""

    USAGE_BASED = "UsageBasedAdmissionFairSharing"
    NONE = "NoAdmissionFairSharing"


class CheckState(StrEnum):
    """The state of one admission check of a workload."""

    PENDING = "Pending"
    READY = "Ready"
    RETRY = "Retry"
    REJECTED = "Rejected"


class GatePosition(StrEnum):
    """The position of a preemption gate."""

    CLOSED = "Closed"
    OPEN = "Open"


class DelayedTopology(StrEnum):
    """Whether a delayed topology assignment was made."""

    PENDING = "Pending"
    READY = "Ready"


class KubeConfigLocation(StrEnum):
    """Where the kubeconfig of a MultiKueueCluster is."""

    SECRET = "Secret"
    PATH = "Path"


class QuotaManagement(StrEnum):
    """Who sets the quota of a ClusterQueue on the manager."""

    MANUAL = "Manual"
    AUTOMATED = "Automated"
