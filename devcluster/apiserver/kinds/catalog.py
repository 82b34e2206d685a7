# SPDX-License-Identifier: Apache-2.0
"""The behaviours of built-in resources; those not listed have the one of their definition."""

from __future__ import annotations

from typing import Final

from devcluster.apiserver.kinds import (
    access,
    api_service,
    batch,
    certificates,
    cluster,
    configuration,
    definition,
    events,
    pod,
    policies,
    services,
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
}


def behaviour(group: str, plural: str) -> KindBehaviour:
    """The behaviour of a resource's objects."""
    return _CATALOG.get((group, plural), KindBehaviour)()
