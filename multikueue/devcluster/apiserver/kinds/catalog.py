# SPDX-License-Identifier: Apache-2.0
"""Which built-in resource has which behaviour; those that are not listed go by their definition alone."""

from __future__ import annotations

from typing import Final

from multikueue.devcluster.apiserver.kinds import (
    access,
    apiservice,
    batch,
    certificates,
    cluster,
    configuration,
    definition,
    pod,
    webhooks,
    workloads,
)
from multikueue.devcluster.apiserver.kinds.behaviour import Behaviour

_CATALOG: Final[dict[tuple[str, str], type[Behaviour]]] = {
    ("", "pods"): pod.PodBehaviour,
    ("", "nodes"): cluster.NodeBehaviour,
    ("", "namespaces"): cluster.NamespaceBehaviour,
    ("", "events"): cluster.EventBehaviour,
    ("events.k8s.io", "events"): cluster.NewEventBehaviour,
    ("", "configmaps"): configuration.ConfigMapBehaviour,
    ("", "secrets"): configuration.SecretBehaviour,
    ("", "serviceaccounts"): configuration.ServiceAccountBehaviour,
    ("", "services"): cluster.ServiceBehaviour,
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
    ("certificates.k8s.io", "certificatesigningrequests"): certificates.CertificateRequestBehaviour,
    ("apiextensions.k8s.io", "customresourcedefinitions"): definition.DefinitionBehaviour,
    ("apiregistration.k8s.io", "apiservices"): apiservice.ApiServiceBehaviour,
    ("batch", "jobs"): batch.JobBehaviour,
    ("batch", "cronjobs"): batch.CronJobBehaviour,
    ("apps", "deployments"): workloads.DeploymentBehaviour,
    ("apps", "replicasets"): workloads.ReplicaSetBehaviour,
    ("apps", "statefulsets"): workloads.StatefulSetBehaviour,
    ("apps", "daemonsets"): workloads.DaemonSetBehaviour,
}


def behaviour(group: str, plural: str) -> Behaviour:
    """What the objects of a resource do of their own."""
    return _CATALOG.get((group, plural), Behaviour)()
