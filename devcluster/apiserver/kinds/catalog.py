# SPDX-License-Identifier: Apache-2.0
"""The behaviours of built-in resources; those not listed have the one of their definition."""

from __future__ import annotations

from typing import Final

from devcluster.apiserver.kinds import (
    access,
    api_service,
    autoscaling,
    batch,
    certificates,
    cluster,
    configuration,
    definition,
    devices,
    events,
    flow_control,
    networking,
    pod,
    policies,
    replication,
    services,
    storage,
    webhooks,
    workloads,
)
from devcluster.apiserver.kinds.behaviour import KindBehaviour

_CATALOG: Final[dict[tuple[str, str], type[KindBehaviour]]] = {
    ("", "pods"): pod.PodBehaviour,
    ("", "nodes"): cluster.NodeBehaviour,
    ("", "namespaces"): cluster.NamespaceBehaviour,
    ("", "events"): events.EventBehaviour,
    ("events.k8s.io", "events"): events.NewEventBehaviour,
    ("", "configmaps"): configuration.ConfigMapBehaviour,
    ("", "secrets"): configuration.SecretBehaviour,
    ("", "serviceaccounts"): configuration.ServiceAccountBehaviour,
    ("", "services"): services.ServiceBehaviour,
    ("", "resourcequotas"): configuration.ResourceQuotaBehaviour,
    ("", "limitranges"): configuration.LimitRangeBehaviour,
    ("coordination.k8s.io", "leases"): configuration.LeaseBehaviour,
    ("scheduling.k8s.io", "priorityclasses"): configuration.PriorityClassBehaviour,
    ("rbac.authorization.k8s.io", "roles"): access.RoleBehaviour,
    ("rbac.authorization.k8s.io", "clusterroles"): access.RoleBehaviour,
    ("rbac.authorization.k8s.io", "rolebindings"): access.BindingBehaviour,
    ("rbac.authorization.k8s.io", "clusterrolebindings"): access.BindingBehaviour,
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): webhooks.WebhookBehaviour,
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): webhooks.WebhookBehaviour,
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): policies.PolicyBehaviour,
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"): policies.PolicyBindingBehaviour,
    ("certificates.k8s.io", "certificatesigningrequests"): certificates.CertificateRequestBehaviour,
    ("apiextensions.k8s.io", "customresourcedefinitions"): definition.DefinitionBehaviour,
    ("apiregistration.k8s.io", "apiservices"): api_service.ApiServiceBehaviour,
    ("batch", "jobs"): batch.JobBehaviour,
    ("batch", "cronjobs"): batch.CronJobBehaviour,
    ("apps", "deployments"): workloads.DeploymentBehaviour,
    ("apps", "replicasets"): workloads.ReplicaSetBehaviour,
    ("apps", "statefulsets"): workloads.StatefulSetBehaviour,
    ("apps", "daemonsets"): workloads.DaemonSetBehaviour,
    ("apps", "controllerrevisions"): replication.RevisionBehaviour,
    ("", "replicationcontrollers"): replication.ReplicationControllerBehaviour,
    ("", "podtemplates"): replication.PodTemplateBehaviour,
    ("", "persistentvolumeclaims"): storage.ClaimBehaviour,
    ("", "persistentvolumes"): storage.VolumeBehaviour,
    ("storage.k8s.io", "storageclasses"): storage.StorageClassBehaviour,
    ("storage.k8s.io", "volumeattributesclasses"): storage.AttributesClassBehaviour,
    ("storage.k8s.io", "volumeattachments"): storage.AttachmentBehaviour,
    ("storage.k8s.io", "csistoragecapacities"): storage.CapacityBehaviour,
    ("storage.k8s.io", "csidrivers"): storage.DriverBehaviour,
    ("", "endpoints"): networking.EndpointsBehaviour,
    ("discovery.k8s.io", "endpointslices"): networking.EndpointSliceBehaviour,
    ("networking.k8s.io", "networkpolicies"): networking.NetworkPolicyBehaviour,
    ("networking.k8s.io", "ingresses"): networking.IngressBehaviour,
    ("networking.k8s.io", "ingressclasses"): networking.IngressClassBehaviour,
    ("networking.k8s.io", "servicecidrs"): networking.ServiceRangeBehaviour,
    ("autoscaling", "horizontalpodautoscalers"): autoscaling.AutoscalerBehaviour,
    ("policy", "poddisruptionbudgets"): autoscaling.BudgetBehaviour,
    ("node.k8s.io", "runtimeclasses"): cluster.RuntimeClassBehaviour,
    ("resource.k8s.io", "deviceclasses"): devices.DeviceClassBehaviour,
    ("resource.k8s.io", "resourceclaims"): devices.DeviceClaimBehaviour,
    ("resource.k8s.io", "resourceclaimtemplates"): devices.DeviceTemplateBehaviour,
    ("resource.k8s.io", "resourceslices"): devices.DeviceSliceBehaviour,
    ("flowcontrol.apiserver.k8s.io", "flowschemas"): flow_control.FlowSchemaBehaviour,
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): flow_control.PriorityLevelBehaviour,
}


def behaviour(group: str, plural: str) -> KindBehaviour:
    """The behaviour of a resource's objects."""
    return _CATALOG.get((group, plural), KindBehaviour)()
