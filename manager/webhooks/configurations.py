# SPDX-License-Identifier: Apache-2.0
"""The webhook configurations and the CRDs' conversion stanza, as manifests.

Owns names, rules, paths and selectors of the webhooks (`docs/spec/kueue-api.md §3`). Pure; `webhooks.install` installs
them. System namespaces are excluded, so that a manager that is down blocks no cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import orjson

from manager.webhooks.owner_rights import CONTROLLER_ACCOUNTS, CONTROLLER_USER
from multikueue.api.constants import (
    ADMISSION_FIELD_MANAGER,
    ADMISSION_SCHEDULING_GATE,
    ADOPTS_ANNOTATION,
    ADOPTS_SEAL_ANNOTATION,
    JOB_WORKLOADS_FIELD_MANAGER,
    MANAGED_LABEL,
    NAMESPACE_NAME_LABEL,
)
from multikueue.api.crds import CONVERSION_PATH
from multikueue.api.meta import JsonObject
from multikueue.api.resource import (
    CLUSTER_QUEUES,
    COHORTS,
    JOB_LOG_REQUESTS,
    MUTATING_WEBHOOK_CONFIGURATIONS,
    PODS,
    RESOURCE_FLAVORS,
    VALIDATING_WEBHOOK_CONFIGURATIONS,
    WORKLOADS,
    Resource,
)
from multikueue.jobs.framework.capabilities import UpdatedKind
from multikueue.jobs.framework.protocol import JobIntegration
from multikueue.jobs.framework.traits import Hold

MUTATING_NAME: Final = "kueue-mutating-webhook-configuration"
VALIDATING_NAME: Final = "kueue-validating-webhook-configuration"
TIMEOUT_SECONDS: Final = 10
_USUAL_AMOUNT: Final = "^[0-9]{1,12}([.][0-9]{1,3})?(m|k|Ki|M|Mi|G|Gi|T|Ti)?$"
_AMOUNTS: Final = ("c.resources.requests", "c.resources.limits")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookClientConfig:
    """The API server's way to the manager: a URL without a path, or a Service; and the CA of its certificate."""

    ca_bundle: str
    """Empty: something else writes it, such as cert-manager's injector."""
    url: str = ""
    service: str = ""
    namespace: str = ""

    def client_config(self, path: str) -> JsonObject:
        """`clientConfig` of one webhook."""
        trust = {"caBundle": self.ca_bundle} if self.ca_bundle else {}
        if self.url:
            return {"url": f"{self.url.rstrip('/')}{path}", **trust}
        return {"service": {"name": self.service, "namespace": self.namespace, "path": path, "port": 443}, **trust}


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One webhook; `mutates` decides which configuration it belongs to."""

    resource: Resource
    mutates: bool
    operations: Sequence[str]
    subresources: Sequence[str] = ()
    subresources_alone: bool = False
    """Whether writes of the object itself are left out."""
    selected_namespaces: bool = False
    conditions: Sequence[tuple[str, str]] = field(default_factory=tuple)
    namespace_selector: JsonObject | None = None
    """With `selected_namespaces`: a selector that namespaces must match as well."""
    ambiguous: bool = False
    """Whether another enabled kind has the same name in another group."""
    purpose: str = ""
    """Distinguishes it from the webhook that Kueue has for the same kind."""
    not_by_us: bool = False
    """Whether writes that the manager has reviewed itself are excluded: its status applies, and Workloads of jobs."""
    never_by_us: bool = False
    """Whether all writes of the manager are excluded."""

    @property
    def path(self) -> str:
        """Where it is served, as Kueue names it."""
        group = self.resource.group.replace(".", "-")
        verb = "mutate" if self.mutates else "validate"
        verb = f"{verb}-{self.purpose}" if self.purpose else verb
        return f"/{verb}-{group}-{self.resource.version}-{self.resource.kind.lower()}"

    @property
    def name(self) -> str:
        """Unique within its configuration, as Kueue names it."""
        kind = self.resource.kind.lower()
        kind = f"{kind}-{self.resource.group.replace('.', '-')}" if self.ambiguous else kind
        return f"{'m' if self.mutates else 'v'}{self.purpose}{kind}.kb.io"

    def manifest(self, target: WebhookClientConfig, *, excluded: Sequence[str], user: str = "") -> JsonObject:
        """The entry of `webhooks`; `user` is the manager's user on that API server, if known."""
        entry: JsonObject = {
            "name": self.name,
            "admissionReviewVersions": ["v1"],
            "clientConfig": target.client_config(self.path),
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
                        *(() if self.subresources_alone else (self.resource.plural,)),
                        *(f"{self.resource.plural}/{subresource}" for subresource in self.subresources),
                    ],
                    "scope": "*",
                }
            ],
        }
        if self.selected_namespaces:
            wanted = self.namespace_selector or {}
            system = {"key": NAMESPACE_NAME_LABEL, "operator": "NotIn", "values": sorted(set(excluded))}
            expressions = [each for each in wanted.get("matchExpressions") or () if each != system]
            entry["namespaceSelector"] = {
                **({"matchLabels": wanted["matchLabels"]} if wanted.get("matchLabels") else {}),
                "matchExpressions": [system, *expressions],
            }
        conditions = [*([_not_ourselves(user)] if self.not_by_us and user else []), *self.conditions]
        if self.never_by_us and user:
            conditions.insert(0, ("not-by-us", f"request.userInfo.username != {orjson.dumps(user).decode()}"))
        if conditions:
            entry["matchConditions"] = [{"name": name, "expression": expression} for name, expression in conditions]
        return entry


def _not_ourselves(user: str) -> tuple[str, str]:
    """Our own status applies and Workloads are reviewed before they are sent; a call for each would double their cost.

    Any user may write under any field manager's name; only the user that the API server reports proves it is ours. That
    user may also be an administrator's, whose other writes are reviewed.
    """
    return (
        "not-reviewed-before",
        f"request.userInfo.username != {orjson.dumps(user).decode()} || !has(request.options.fieldManager)"
        " || !(has(request.subResource) && request.subResource == 'status'"
        f" && request.options.fieldManager == '{ADMISSION_FIELD_MANAGER}'"
        f" || request.operation == 'CREATE' && request.options.fieldManager == '{JOB_WORKLOADS_FIELD_MANAGER}')",
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


def _status_differs(*fields: str) -> str:
    """CEL: a status that has another value of one of these, or that reserves quota where the old one did not."""
    changed = (
        f"{_has_status(each, 'object')} != {_has_status(each, 'oldObject')}"
        f" || {_has_status(each, 'object')} && object.status.{each} != oldObject.status.{each}"
        for each in fields
    )
    return " || ".join((*changed, f"{_reserves('object')} && !{_reserves('oldObject')}"))


def _has_status(field: str, side: str) -> str:
    return f"(has({side}.status) && has({side}.status.{field}))"


def _reserves(side: str) -> str:
    condition = f"{side}.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True')"
    return f"({_has_status('conditions', side)} && {condition})"


def _has_rules_for(containers: str) -> str:
    """CEL: a container with other amounts than those that are valid at first sight; the name `pods` is reserved."""

    def unusual(amounts: str) -> str:
        amount = f"{amounts}[name]"
        usual = (
            f"type({amount}) == int ? {amount} >= 0 : type({amount}) == string && {amount}.matches('{_USUAL_AMOUNT}')"
        )
        return f"has({amounts}) && !{amounts}.all(name, name != 'pods' && ({usual}))"

    return f"{containers}.exists(c, has(c.resources) && ({' || '.join(map(unusual, _AMOUNTS))}))"


def _changed(annotation: str) -> str:
    """CEL: an update that adds, changes or removes that annotation; the object has others or this one."""
    values = (
        f"(has({each}.metadata.annotations) && '{annotation}' in {each}.metadata.annotations"
        f" ? {each}.metadata.annotations['{annotation}'] : '')"
        for each in ("object", "oldObject")
    )
    return " != ".join(values)


# Each call costs the API server and us a millisecond, and a Job would cost three more: an update that changes only
# finalizers or owners, or starts a job, breaks no rule, and there is nothing to default without minCount.
_CHANGES_SPEC_OR_METADATA: Final = (
    "spec-or-metadata-changed",
    _differs("spec", "metadata.labels", "metadata.annotations"),
)
_CHANGES_REVIEWED_STATUS: Final = (
    # Most statuses that others write only have another condition, such as Finished, about which there is no rule.
    "status-that-has-rules-changed",
    "request.operation != 'UPDATE' || !has(request.subResource) || request.subResource != 'status' || "
    + _status_differs("admission", "admissionChecks", "reclaimablePods", "clusterName"),
)
_NEW_WITH_RULES: Final = (
    # Most new Workloads have nothing that a rule is about. Of an annotation of Kueue, a topology, a part that may run,
    # metadata of pods and unusual amounts the schema of the definition knows too little.
    "new-with-something-that-has-rules",
    "request.operation != 'CREATE' || has(object.status) || !has(object.spec) || !has(object.spec.podSets)"
    " || has(object.metadata.annotations) && object.metadata.annotations.exists(k, k.contains('kueue.x-k8s.io/'))"
    " || object.spec.podSets.exists(s, has(s.minCount) || has(s.topologyRequest)"
    " || !has(s.template) || !has(s.template.spec) || !has(s.template.spec.containers)"
    " || has(s.template.metadata) && (has(s.template.metadata.labels) || has(s.template.metadata.annotations))"
    " || has(s.template.spec.resources)"
    f" || {_has_rules_for('s.template.spec.containers')}"
    " || has(s.template.spec.initContainers)"
    f" && {_has_rules_for('s.template.spec.initContainers')})",
)
_ASKS_FOR_ADOPTION: Final = (
    "asks-for-adoption",
    f"has(object.metadata.annotations) && '{ADOPTS_ANNOTATION}' in object.metadata.annotations"
    f" && (request.operation != 'UPDATE' || {_changed(ADOPTS_ANNOTATION)} || {_changed(ADOPTS_SEAL_ANNOTATION)})",
)
_NAMES_A_CONTROLLER: Final = (
    # Adding an owner is as good as naming it from the start; one that was there was reviewed then.
    "names-a-controller",
    "has(object.metadata.ownerReferences)"
    " && object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller"
    " && (request.operation != 'UPDATE' || !has(oldObject.metadata.ownerReferences)"
    " || !oldObject.metadata.ownerReferences.exists(p, p == o)))",
)
_NOT_BY_A_CONTROLLER: Final = (
    # Pods and child jobs that the cluster itself makes cost no call.
    "not-by-a-controller-of-the-cluster",
    f"request.userInfo.username != '{CONTROLLER_USER}'"
    f" && !request.userInfo.username.startsWith('{CONTROLLER_ACCOUNTS}')",
)
_GATED: Final = (
    "(has({each}.spec.schedulingGates)"
    f" && {{each}}.spec.schedulingGates.exists(g, g.name == '{ADMISSION_SCHEDULING_GATE}'))"
)
_OPENS_THE_GATE: Final = (
    "opens-the-gate",
    f"{_GATED.format(each='oldObject')} && !{_GATED.format(each='object')}",
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
        conditions=(_CHANGES_SPEC_OR_METADATA, _CHANGES_REVIEWED_STATUS, _NEW_WITH_RULES),
        not_by_us=True,
    ),
    Hook(resource=CLUSTER_QUEUES, mutates=False, operations=("CREATE", "UPDATE")),
    Hook(resource=COHORTS, mutates=False, operations=("CREATE", "UPDATE")),
    Hook(resource=RESOURCE_FLAVORS, mutates=False, operations=("CREATE", "UPDATE")),
)
LOG_REQUEST_HOOK: Final = Hook(resource=JOB_LOG_REQUESTS, mutates=True, operations=("CREATE",))
# A status write of a job may change annotations as well; one of a Workload may change nothing else.
_ADOPTION_HOOK: Final = Hook(
    resource=WORKLOADS,
    mutates=True,
    operations=("CREATE", "UPDATE"),
    conditions=(_ASKS_FOR_ADOPTION,),
    purpose="adoption",
)


def adoption_hooks(integrations: Iterable[JobIntegration]) -> tuple[Hook, ...]:
    """The webhooks that confirm a request to adopt a remote job, for Workloads and the kinds that workers can run."""
    kinds = [each.resource for each in integrations if each.traits.dispatched and each.traits.sent_as is None]
    return (
        _ADOPTION_HOOK,
        *(
            replace(
                _ADOPTION_HOOK, resource=resource, subresources=("status",), ambiguous=_is_ambiguous(resource, kinds)
            )
            for resource in kinds
        ),
    )


def job_hooks(
    integrations: Iterable[JobIntegration], *, namespace_selector: JsonObject | None = None
) -> tuple[Hook, ...]:
    """The two webhooks of each enabled kind: one that defaults a job, one that validates it.

    Of a kind whose objects others make as well, such as Pod, only those in namespaces that `namespace_selector`
    selects are sent: a manager that is down must not block them elsewhere.
    """
    integrations = tuple(integrations)
    kinds = [each.resource for each in integrations]
    found: list[Hook] = []
    for each in integrations:
        default = Hook(
            resource=each.resource,
            mutates=True,
            operations=("CREATE",),
            selected_namespaces=True,
            namespace_selector=namespace_selector
            if each.traits.needs_managed_label or each.traits.pods_are_jobs or each.traits.holds_pods
            else None,
            ambiguous=_is_ambiguous(each.resource, kinds),
        )
        changed = _differs("metadata.labels", "metadata.annotations", *each.traits.reviewed_fields)
        validate = replace(
            default,
            mutates=False,
            operations=("CREATE", "UPDATE"),
            subresources=each.traits.reviewed_subresources,
            conditions=(("not-the-same-pods", changed),),
        )
        if isinstance(each, UpdatedKind):
            default = replace(default, operations=("CREATE", "UPDATE"), conditions=(("not-the-same-pods", changed),))
        found += (default, validate)
    return tuple(found)


def owner_hooks(
    integrations: Iterable[JobIntegration], *, namespace_selector: JsonObject | None = None
) -> tuple[Hook, ...]:
    """The webhook of each enabled kind that reviews an owner in whose place an object would not be queued.

    A status write of a Job may change its owners as well; one of a pod may not.
    """
    integrations = tuple(integrations)
    validating = {
        hook.resource: hook
        for hook in job_hooks(integrations, namespace_selector=namespace_selector)
        if not hook.mutates
    }
    return tuple(
        replace(
            validating[each.resource],
            subresources=("status",) if each.traits.hold is Hold.SUSPEND else (),
            conditions=(_NOT_BY_A_CONTROLLER, _NAMES_A_CONTROLLER),
            purpose="owners",
        )
        for each in integrations
    )


def gate_hooks(
    integrations: Iterable[JobIntegration], *, namespace_selector: JsonObject | None = None
) -> tuple[Hook, ...]:
    """The webhook that reviews users who remove the gate of a pod; the manager does that when it is admitted."""
    return tuple(
        Hook(
            resource=each.resource,
            mutates=False,
            operations=("UPDATE",),
            selected_namespaces=True,
            namespace_selector=namespace_selector,
            conditions=(_OPENS_THE_GATE,),
            purpose="gates",
            never_by_us=True,
        )
        for each in integrations
        if each.traits.hold is Hold.GATE
    )


def resize_hook(
    integrations: Iterable[JobIntegration],
    *,
    external: Iterable[str] = (),
    namespace_selector: JsonObject | None = None,
) -> Hook:
    """The webhook that reviews resizes of pods that use quota: queued ones, and those that an enabled kind owns.

    Pods of other owners may be resized while the manager is down. `external` are kinds that another controller queues.
    """
    kinds = sorted({*(each.resource.kind for each in integrations), *external})
    queued = f"'{MANAGED_LABEL}' in object.metadata.labels"
    owned = f"object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller && o.kind in {_texts(kinds)})"
    return Hook(
        resource=PODS,
        mutates=False,
        operations=("UPDATE",),
        subresources=("resize",),
        subresources_alone=True,
        selected_namespaces=True,
        namespace_selector=namespace_selector,
        conditions=(
            (
                "uses-quota",
                f"has(object.metadata.labels) && {queued} || has(object.metadata.ownerReferences) && {owned}",
            ),
        ),
        purpose="resize",
    )


def _texts(values: Iterable[str]) -> str:
    """CEL: a list of texts."""
    return orjson.dumps(list(values)).decode()


def _is_ambiguous(resource: Resource, kinds: Iterable[Resource]) -> bool:
    return any(other.kind == resource.kind and other.group != resource.group for other in kinds)


def configurations(
    hooks: Sequence[Hook], target: WebhookClientConfig, *, excluded: Sequence[str], user: str = ""
) -> list[tuple[Resource, JsonObject]]:
    """The two configurations with these hooks.

    Namespaces in `excluded` are skipped for jobs. `user` is the manager's user on that API server; without one its own
    writes are reviewed like those of any user.
    """
    found = []
    for resource, name, mutates in (
        (MUTATING_WEBHOOK_CONFIGURATIONS, MUTATING_NAME, True),
        (VALIDATING_WEBHOOK_CONFIGURATIONS, VALIDATING_NAME, False),
    ):
        webhooks = [hook.manifest(target, excluded=excluded, user=user) for hook in hooks if hook.mutates is mutates]
        body: JsonObject = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "labels": {"app.kubernetes.io/name": "kueue"}},
            "webhooks": webhooks,
        }
        found.append((resource, body))
    return found


def conversion_patch(target: WebhookClientConfig) -> JsonObject:
    """The merge patch that makes a CustomResourceDefinition convert through this manager."""
    # A Service and a URL exclude each other, and a merge patch keeps what it does not name.
    other = {"service": None} if target.url else {"url": None}
    return {
        "spec": {
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    "clientConfig": {**target.client_config(CONVERSION_PATH), **other},
                    "conversionReviewVersions": ["v1"],
                },
            }
        }
    }
