# SPDX-License-Identifier: Apache-2.0
"""The resources that we read or write, and their URL paths.

Owns group, version, kind, plural and scope of each, and the path of an object or a collection. Promises that a name
cannot break out of its path segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from multikueue.core.errors import BadInput

KUEUE_GROUP: Final = "kueue.x-k8s.io"
KUEUE_VERSION: Final = "v1beta2"
"""The one version that is stored and used inside; the others are converted at the edge."""
OWN_GROUP: Final = "multikueue.io"
OWN_VERSION: Final = "v1alpha1"


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of one version of an API group."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """The value of `apiVersion`: `group/version`, or the version alone for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        """The kind in lower case, as kubectl takes it."""
        return self.kind.lower()

    @property
    def list_kind(self) -> str:
        """The kind of a list of these objects."""
        return f"{self.kind}List"

    @property
    def qualified(self) -> str:
        """`plural.group`, which is also the name of the CustomResourceDefinition; the plural for the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def base_path(self) -> str:
        """The path of the API version, without a slash at the end."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def at(self, version: str) -> Resource:
        """The same resource in another version."""
        return Resource(self.group, version, self.kind, self.plural, self.namespaced, self.short_names)

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The URL path of an object, or of the collection when `name` is None.

        A namespaced collection without `namespace` spans all namespaces. Raises `BadInput` when a namespaced object
        has no namespace, or a subresource no object.
        """
        parts = [self.base_path]
        if namespace and self.namespaced:
            parts += ("namespaces", _segment(namespace))
        elif name is not None and self.namespaced:
            raise BadInput(f"{self.kind} {name}: a namespace is needed to address it")
        parts.append(self.plural)
        if name is not None:
            parts.append(_segment(name))
        if subresource is not None:
            if name is None:
                raise BadInput(f"{self.kind}: subresource {subresource} needs the name of an object")
            parts.append(subresource)
        return "/".join(parts)

    def __str__(self) -> str:
        return self.qualified


def _segment(text: str) -> str:
    # Clients and proxies resolve dot segments, so these would address another object.
    if text in {"", ".", ".."}:
        raise BadInput(f"{text!r} cannot be the name of an object")
    return quote(text, safe=":@$&'()*+,;=")


def _kueue(kind: str, plural: str, *short_names: str, namespaced: bool = False) -> Resource:
    return Resource(KUEUE_GROUP, KUEUE_VERSION, kind, plural, namespaced, short_names)


def _own(kind: str, plural: str, *short_names: str, namespaced: bool) -> Resource:
    return Resource(OWN_GROUP, OWN_VERSION, kind, plural, namespaced, short_names)


def _rbac(kind: str, plural: str, *, namespaced: bool) -> Resource:
    return Resource("rbac.authorization.k8s.io", "v1", kind, plural, namespaced)


WORKLOADS: Final = _kueue("Workload", "workloads", "kwl", "kueueworkload", "kueueworkloads", namespaced=True)
CLUSTER_QUEUES: Final = _kueue("ClusterQueue", "clusterqueues", "cq")
LOCAL_QUEUES: Final = _kueue("LocalQueue", "localqueues", "queue", "queues", "lq", namespaced=True)
COHORTS: Final = _kueue("Cohort", "cohorts", "co")
RESOURCE_FLAVORS: Final = _kueue("ResourceFlavor", "resourceflavors", "flavor", "flavors", "rf")
ADMISSION_CHECKS: Final = _kueue("AdmissionCheck", "admissionchecks", "ac")
MULTIKUEUE_CLUSTERS: Final = _kueue("MultiKueueCluster", "multikueueclusters", "mkc")
MULTIKUEUE_CONFIGS: Final = _kueue("MultiKueueConfig", "multikueueconfigs", "mkconf")
PROVISIONING_REQUEST_CONFIGS: Final = _kueue("ProvisioningRequestConfig", "provisioningrequestconfigs", "prc")
TOPOLOGIES: Final = _kueue("Topology", "topologies", "topo")
WORKLOAD_PRIORITY_CLASSES: Final = _kueue("WorkloadPriorityClass", "workloadpriorityclasses", "wpc")

REMOTE_ASSIGNMENTS: Final = _own("RemoteAssignment", "remoteassignments", "ra", namespaced=True)
CLUSTER_REPORTS: Final = _own("ClusterReport", "clusterreports", "mkreport", namespaced=True)
CLUSTER_REGISTRATIONS: Final = _own("ClusterRegistration", "clusterregistrations", "mkreg", namespaced=False)
JOB_LOG_REQUESTS: Final = _own("JobLogRequest", "joblogrequests", "mklog", namespaced=True)

CLUSTER_PROFILES: Final = Resource("multicluster.x-k8s.io", "v1alpha1", "ClusterProfile", "clusterprofiles")

PROVISIONING_REQUESTS: Final = Resource(
    "autoscaling.x-k8s.io", "v1", "ProvisioningRequest", "provisioningrequests", True, ("provreq", "provreqs")
)
"""Of the cluster autoscaler, whose definition of it is not ours."""

JOBS: Final = Resource("batch", "v1", "Job", "jobs")
PODS: Final = Resource("", "v1", "Pod", "pods", True, ("po",))
DEPLOYMENTS: Final = Resource("apps", "v1", "Deployment", "deployments", True, ("deploy",))
STATEFUL_SETS: Final = Resource("apps", "v1", "StatefulSet", "statefulsets", True, ("sts",))
LEADER_WORKER_SETS: Final = Resource("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets")
POD_TEMPLATES: Final = Resource("", "v1", "PodTemplate", "podtemplates")
NODES: Final = Resource("", "v1", "Node", "nodes", False, ("no",))
NAMESPACES: Final = Resource("", "v1", "Namespace", "namespaces", False, ("ns",))
SECRETS: Final = Resource("", "v1", "Secret", "secrets")
CONFIG_MAPS: Final = Resource("", "v1", "ConfigMap", "configmaps", True, ("cm",))
SERVICES: Final = Resource("", "v1", "Service", "services", True, ("svc",))
SERVICE_ACCOUNTS: Final = Resource("", "v1", "ServiceAccount", "serviceaccounts", True, ("sa",))
PERSISTENT_VOLUME_CLAIMS: Final = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", True, ("pvc",))
LIMIT_RANGES: Final = Resource("", "v1", "LimitRange", "limitranges", True, ("limits",))
LEASES: Final = Resource("coordination.k8s.io", "v1", "Lease", "leases")
EVENTS: Final = Resource("events.k8s.io", "v1", "Event", "events", True, ("ev",))
ROLES: Final = _rbac("Role", "roles", namespaced=True)
ROLE_BINDINGS: Final = _rbac("RoleBinding", "rolebindings", namespaced=True)
CLUSTER_ROLES: Final = _rbac("ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDINGS: Final = _rbac("ClusterRoleBinding", "clusterrolebindings", namespaced=False)
PRIORITY_CLASSES: Final = Resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False, ("pc",))
RUNTIME_CLASSES: Final = Resource("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", False)
DEVICE_CLASSES: Final = Resource("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", False)
RESOURCE_CLAIMS: Final = Resource("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims")
RESOURCE_CLAIM_TEMPLATES: Final = Resource("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates")
CERTIFICATE_SIGNING_REQUESTS: Final = Resource(
    "certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests", False, ("csr",)
)
TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", False)
SUBJECT_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", False
)
CUSTOM_RESOURCE_DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False, ("crd", "crds")
)
API_SERVICES: Final = Resource("apiregistration.k8s.io", "v1", "APIService", "apiservices", False)
MUTATING_WEBHOOK_CONFIGURATIONS: Final = Resource(
    "admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", False
)
VALIDATING_WEBHOOK_CONFIGURATIONS: Final = Resource(
    "admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", False
)

KUEUE_RESOURCES: Final = (
    WORKLOADS,
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    COHORTS,
    RESOURCE_FLAVORS,
    ADMISSION_CHECKS,
    MULTIKUEUE_CLUSTERS,
    MULTIKUEUE_CONFIGS,
    PROVISIONING_REQUEST_CONFIGS,
    TOPOLOGIES,
    WORKLOAD_PRIORITY_CLASSES,
)
OWN_RESOURCES: Final = (REMOTE_ASSIGNMENTS, CLUSTER_REPORTS, CLUSTER_REGISTRATIONS, JOB_LOG_REQUESTS)
