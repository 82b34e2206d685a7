# SPDX-License-Identifier: Apache-2.0
"""Resources that only a local cluster's own components use, and the labels that connect EndpointSlices to Services."""

from __future__ import annotations

from typing import Final

from multikueue.api.resource import Resource

CRON_JOBS: Final = Resource("batch", "v1", "CronJob", "cronjobs", True, ("cj",))
ENDPOINTS: Final = Resource("", "v1", "Endpoints", "endpoints", True, ("ep",))
ENDPOINT_SLICES: Final = Resource("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", True)
RESOURCE_QUOTAS: Final = Resource("", "v1", "ResourceQuota", "resourcequotas", True, ("quota",))
DEPLOYMENTS: Final = Resource("apps", "v1", "Deployment", "deployments", True, ("deploy",))
REPLICA_SETS: Final = Resource("apps", "v1", "ReplicaSet", "replicasets", True, ("rs",))
STATEFUL_SETS: Final = Resource("apps", "v1", "StatefulSet", "statefulsets", True, ("sts",))
DAEMON_SETS: Final = Resource("apps", "v1", "DaemonSet", "daemonsets", True, ("ds",))
CONTROLLER_REVISIONS: Final = Resource("apps", "v1", "ControllerRevision", "controllerrevisions")
DISRUPTION_BUDGETS: Final = Resource("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, ("pdb",))
VOLUME_CLAIMS: Final = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", True, ("pvc",))
PERSISTENT_VOLUMES: Final = Resource("", "v1", "PersistentVolume", "persistentvolumes", False, ("pv",))
ATTRIBUTES_CLASSES: Final = Resource(
    "storage.k8s.io", "v1", "VolumeAttributesClass", "volumeattributesclasses", False, ("vac",)
)

SERVICE_NAME_LABEL: Final = "kubernetes.io/service-name"
MANAGED_BY_LABEL: Final = "endpointslice.kubernetes.io/managed-by"
