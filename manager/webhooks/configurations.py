# SPDX-License-Identifier: Apache-2.0
"""Where the API server is told to ask us: webhook configurations and the CRDs' conversion stanza.

Owns names, rules, paths and selectors of the webhooks (`docs/spec/kueue-api.md §3`) as manifests. Pure; who installs
them is `webhooks.install`. System namespaces are never asked about, so that a manager that is down blocks no cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from multikueue.api.constants import ADMISSION_FIELD_MANAGER, NAMESPACE_NAME_LABEL
from multikueue.api.crds import CONVERSION_PATH
from multikueue.api.meta import JsonObject
from multikueue.api.resource import (
    CLUSTER_QUEUES,
    COHORTS,
    JOBS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    RESOURCE_FLAVORS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    WORKLOADS,
    Resource,
)

MUTATING_NAME: Final = "kueue-mutating-webhook-configuration"
VALIDATING_NAME: Final = "kueue-validating-webhook-configuration"
TIMEOUT_SECONDS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How the API server gets to us: a URL without a path, or a Service; and the CA that vouches for us."""

    ca_bundle: str
    url: str = ""
    service: str = ""
    namespace: str = ""

    def client_config(self, path: str) -> JsonObject:
        """`clientConfig` of one webhook."""
        if self.url:
            return {"url": f"{self.url.rstrip('/')}{path}", "caBundle": self.ca_bundle}
        return {
            "service": {"name": self.service, "namespace": self.namespace, "path": path, "port": 443},
            "caBundle": self.ca_bundle,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One webhook; `mutates` tells which configuration it belongs to."""

    resource: Resource
    mutates: bool
    operations: Sequence[str]
    subresources: Sequence[str] = ()
    selected_namespaces: bool = False
    conditions: Sequence[tuple[str, str]] = field(default_factory=tuple)

    @property
    def path(self) -> str:
        """Where it is served, as Kueue names it."""
        group = self.resource.group.replace(".", "-")
        verb = "mutate" if self.mutates else "validate"
        return f"/{verb}-{group}-{self.resource.version}-{self.resource.kind.lower()}"

    @property
    def name(self) -> str:
        """Unique within its configuration, as Kueue names it."""
        return f"{'m' if self.mutates else 'v'}{self.resource.kind.lower()}.kb.io"

    def manifest(self, reach: Reach, *, excluded: Sequence[str]) -> JsonObject:
        """The entry of `webhooks`."""
        entry: JsonObject = {
            "name": self.name,
            "admissionReviewVersions": ["v1"],
            "clientConfig": reach.client_config(self.path),
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "timeoutSeconds": TIMEOUT_SECONDS,
            "matchPolicy": "Equivalent",
            "rules": [
                {
                    "apiGroups": [self.resource.group],
                    "apiVersions": [self.resource.version],
                    "operations": list(self.operations),
                    "resources": [
                        self.resource.plural,
                        *(f"{self.resource.plural}/{subresource}" for subresource in self.subresources),
                    ],
                    "scope": "*",
                }
            ],
        }
        if self.selected_namespaces:
            entry["namespaceSelector"] = {
                "matchExpressions": [
                    {"key": NAMESPACE_NAME_LABEL, "operator": "NotIn", "values": sorted(set(excluded))}
                ]
            }
        if self.conditions:
            entry["matchConditions"] = [
                {"name": name, "expression": expression} for name, expression in self.conditions
            ]
        return entry


# Our own status applies are built from validated parts; asking ourselves about each would double the cost of a write.
_NOT_OURSELVES: Final = (
    "not-our-own-status",
    f"!has(request.subResource) || request.subResource != 'status' || !has(request.options.fieldManager)"
    f" || request.options.fieldManager != '{ADMISSION_FIELD_MANAGER}'",
)


def _differs(*fields: str) -> str:
    """CEL: a write that is no update of the object itself, or that changes one of these."""
    changed = (
        f"has(object.{field}) != has(oldObject.{field}) || has(object.{field}) && object.{field} != oldObject.{field}"
        for field in fields
    )
    return " || ".join(
        ("request.operation != 'UPDATE'", "has(request.subResource) && request.subResource != ''", *changed)
    )


# Each call costs the API server and us a millisecond, and a Job would cost three more: who changes nothing but
# finalizers or owners, or starts a job, breaks no rule of ours, and there is nothing to default without minCount.
_ASKS_FOR_SOMETHING_ELSE: Final = ("not-the-same-wishes", _differs("spec", "metadata.labels", "metadata.annotations"))
_IS_ANOTHER_JOB: Final = (
    "not-the-same-pods",
    _differs("metadata.labels", "metadata.annotations", "spec.parallelism", "spec.completions", "spec.template"),
)
_MAY_RUN_IN_PART: Final = (
    "with-min-count",
    "has(object.spec) && has(object.spec.podSets) && object.spec.podSets.exists(set, has(set.minCount))",
)
KUEUE_HOOKS: Final = (
    Hook(resource=WORKLOADS, mutates=True, operations=("CREATE",), conditions=(_MAY_RUN_IN_PART,)),
    Hook(resource=CLUSTER_QUEUES, mutates=True, operations=("CREATE",)),
    Hook(resource=RESOURCE_FLAVORS, mutates=True, operations=("CREATE",)),
    Hook(
        resource=WORKLOADS,
        mutates=False,
        operations=("CREATE", "UPDATE"),
        subresources=("status",),
        conditions=(_NOT_OURSELVES, _ASKS_FOR_SOMETHING_ELSE),
    ),
    Hook(resource=CLUSTER_QUEUES, mutates=False, operations=("CREATE", "UPDATE")),
    Hook(resource=COHORTS, mutates=False, operations=("CREATE", "UPDATE")),
    Hook(resource=RESOURCE_FLAVORS, mutates=False, operations=("CREATE", "UPDATE")),
)
JOB_HOOKS: Final = (
    Hook(resource=JOBS, mutates=True, operations=("CREATE",), selected_namespaces=True),
    Hook(
        resource=JOBS,
        mutates=False,
        operations=("CREATE", "UPDATE"),
        selected_namespaces=True,
        conditions=(_IS_ANOTHER_JOB,),
    ),
)


def configurations(
    hooks: Sequence[Hook], reach: Reach, *, excluded: Sequence[str]
) -> list[tuple[Resource, JsonObject]]:
    """The two configurations with these hooks; namespaces in `excluded` are not asked about for jobs."""
    found = []
    for resource, name, mutates in (
        (MUTATING_WEBHOOK_CONFIGURATIONS, MUTATING_NAME, True),
        (VALIDATING_WEBHOOK_CONFIGURATIONS, VALIDATING_NAME, False),
    ):
        webhooks = [hook.manifest(reach, excluded=excluded) for hook in hooks if hook.mutates is mutates]
        body: JsonObject = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "kueue"}},
            "webhooks": webhooks,
        }
        found.append((resource, body))
    return found


def conversion_patch(reach: Reach) -> JsonObject:
    """The merge patch that makes a CustomResourceDefinition convert through us."""
    # A Service and a URL exclude each other, and a merge patch keeps what it does not name.
    other = {"service": None} if reach.url else {"url": None}
    return {
        "spec": {
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    "clientConfig": {**reach.client_config(CONVERSION_PATH), **other},
                    "conversionReviewVersions": ["v1"],
                },
            }
        }
    }
