# SPDX-License-Identifier: Apache-2.0
"""Admission: the built-in checks and mutations of a write that need other objects.

The namespace must be active, pods get their service account and priority, limit ranges and quotas apply. Webhooks are
in `webhooks`, ValidatingAdmissionPolicies in `policies`.
"""

from __future__ import annotations

from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.admission.hooks import Hooks
from devcluster.apiserver.admission.policies import Policies
from devcluster.apiserver.admission.review import Review
from devcluster.apiserver.admission.webhooks import Webhooks
from devcluster.apiserver.auth.escalation import Escalation
from devcluster.apiserver.auth.rbac import Authorizer
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.kinds import certificates
from devcluster.apiserver.registry.definitions import Definitions
from devcluster.apiserver.registry.resources import ResourceType
from multikueue.core.quantity import Quantity, QuantityError

_IMMORTAL: Final = frozenset({"default", "kube-system", "kube-public"})
_TOLERATION_SECONDS: Final = 300
_ACCOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


class AdmissionChain:
    """Admits writes: built-in steps, escalation checks, policies and webhooks."""

    def __init__(
        self, context: ServerContext, hooks: Hooks, *, authorizer: Authorizer, definitions: Definitions
    ) -> None:
        self._context = context
        self._definitions = definitions
        self._webhooks = Webhooks(context, hooks, authorizer)
        self._policies = Policies(context, authorizer)
        self.waits, self.mutate = self._webhooks.waits, self._webhooks.mutate
        escalation = Escalation(authorizer)
        self.check_escalation, self.check_creation = escalation.check, escalation.check_creation
        self.pods_are_completed = True
        """Whether pods get the token volume of their account and the like, as on a real cluster."""

    def concerns(self, kind: ResourceType, operation: str, subresource: str) -> bool:
        """Whether a webhook or a policy may be about such a write."""
        return self._policies.concern(kind, operation, subresource) or self.waits(kind, operation, subresource)

    async def validate(self, review: Review) -> None:
        """Evaluate the policies, then call the validating webhooks. Raises `StatusError`."""
        self._policies.validate(review)
        await self._webhooks.validate(review)

    def check_namespace(self, review: Review) -> None:
        """A namespaced object needs an active namespace. Raises `StatusError`."""
        kind = review.kind
        if review.operation == "CREATE":
            self._definitions.check_create(kind, review.name)
        if kind.namespaced:
            if review.operation == "CREATE":
                namespace = self._context.get("namespaces", review.namespace)
                if namespace is None:
                    raise errors.not_found(errors.About(review.namespace, "", "namespaces"))
                if documents.child(namespace, "status").get("phase") == "Terminating" and not review.subresource:
                    causes = [
                        errors.StatusCause(
                            "NamespaceTerminating",
                            f"namespace {review.namespace} is being terminated",
                            "metadata.namespace",
                        )
                    ]
                    error = errors.forbidden(
                        kind.about(review.name),
                        f"unable to create new content in namespace {review.namespace} because it is being terminated",
                    )
                    error.causes = causes
                    raise error
        elif kind.collection == "namespaces" and review.operation == "DELETE" and review.name in _IMMORTAL:
            raise errors.forbidden(kind.about(review.name), "this namespace may not be deleted")

    def complete(self, review: Review) -> None:
        """Apply the built-in mutations in place. Raises `StatusError`."""
        value = review.value
        if value is None or review.subresource:
            return
        if review.kind.collection == "pods" and review.operation == "CREATE":
            if self.pods_are_completed:
                self._complete_pod(value, review)
            self._apply_limits(value, review)
        elif review.kind.collection == certificates.COLLECTION and review.operation == "CREATE":
            refusal = certificates.refusal(value)
            if refusal is not None:
                raise errors.forbidden(review.kind.about(review.name), refusal)

    def count(self, review: Review) -> None:
        """Refuse an object that exceeds a quota. Raises `StatusError`."""
        if review.operation != "CREATE" or review.subresource or not review.kind.namespaced or review.value is None:
            return
        quotas = self._context.store.collection("resourcequotas")
        if not len(quotas):
            return
        requested = quota_of(review.value, review.kind)
        for quota in self._context.objects("resourcequotas", namespace=review.namespace):
            hard = documents.child(quota, "spec", "hard")
            relevant = {name: amount for name, amount in requested.items() if name in hard}
            if not relevant:
                continue
            used = used_of(self._context, review.namespace, hard)
            over = [name for name, amount in relevant.items() if used[name] + amount > Quantity.parse(hard[name])]
            if over:
                over.sort()
                text = (
                    f"exceeded quota: {quota['metadata']['name']}, "
                    f"requested: {','.join(f'{name}={relevant[name]}' for name in over)}, "
                    f"used: {','.join(f'{name}={used[name]}' for name in over)}, "
                    f"limited: {','.join(f'{name}={hard[name]}' for name in over)}"
                )
                raise errors.forbidden(review.kind.about(review.name), text)

    def _complete_pod(self, value: JsonObject, review: Review) -> None:
        spec = value["spec"]
        account = spec.get("serviceAccountName") or "default"
        found = self._context.get("serviceaccounts", f"{review.namespace}/{account}")
        if found is None:
            raise errors.forbidden(
                review.kind.about(review.name),
                f'error looking up service account {review.namespace}/{account}: serviceaccount "{account}" not found',
            )
        spec["serviceAccountName"] = spec["serviceAccount"] = account
        automount = spec.get("automountServiceAccountToken")
        if automount is None:
            automount = found.get("automountServiceAccountToken")
        if automount is not False:
            _mount_token(
                spec, "kube-api-access-" + "".join(self._context.rng.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
            )
        self._set_priority(spec, review)
        tolerations = spec.setdefault("tolerations", [])
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
            if not any(
                entry.get("key") in (key, None, "") and entry.get("effect") in ("NoExecute", None, "")
                for entry in tolerations
            ):
                tolerations.append(
                    {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _TOLERATION_SECONDS}
                )

    def _set_priority(self, spec: JsonObject, review: Review) -> None:
        name = spec.get("priorityClassName")
        chosen: JsonObject | None = None
        if name:
            chosen = self._context.get("priorityclasses.scheduling.k8s.io", name)
            if chosen is None:
                raise errors.forbidden(review.kind.about(review.name), f"no PriorityClass with name {name} was found")
        else:
            for entry in self._context.objects("priorityclasses.scheduling.k8s.io"):
                if entry.get("globalDefault"):
                    chosen = entry
                    spec["priorityClassName"] = entry["metadata"]["name"]
        spec["priority"] = chosen.get("value", 0) if chosen else 0
        spec.setdefault("preemptionPolicy", (chosen or {}).get("preemptionPolicy") or "PreemptLowerPriority")

    def _apply_limits(self, value: JsonObject, review: Review) -> None:
        for ranges in self._context.objects("limitranges", namespace=review.namespace):
            for limit in documents.items(ranges, "spec", "limits"):
                if limit.get("type") != "Container":
                    continue
                for container in documents.items(value, "spec", "containers"):
                    _limit_container(container, limit, review)


def _limit_container(container: JsonObject, limit: JsonObject, review: Review) -> None:
    resources = container.setdefault("resources", {})
    for target, source in (("limits", "default"), ("requests", "defaultRequest")):
        given = documents.child(limit, source)
        if given:
            amounts = resources.setdefault(target, {})
            for name, amount in given.items():
                amounts.setdefault(name, amount)
    for name, most in documents.child(limit, "max").items():
        amount = documents.child(resources, "limits").get(name)
        if amount is not None and Quantity.parse(amount) > Quantity.parse(most):
            text = f"maximum {name} usage per Container is {most}, but limit is {amount}"
            raise errors.forbidden(review.kind.about(review.name), text)


def _mount_token(spec: JsonObject, volume: str) -> None:
    mounts = [mount for c in documents.items(spec, "containers") for mount in documents.items(c, "volumeMounts")]
    if any(mount.get("mountPath") == _ACCOUNT_PATH for mount in mounts):
        return
    spec.setdefault("volumes", []).append(
        {
            "name": volume,
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    {
                        "downwardAPI": {
                            "items": [
                                {
                                    "path": "namespace",
                                    "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
                                }
                            ]
                        }
                    },
                ],
                "defaultMode": 420,
            },
        }
    )
    for container in (*documents.items(spec, "containers"), *documents.items(spec, "initContainers")):
        container.setdefault("volumeMounts", []).append({"name": volume, "readOnly": True, "mountPath": _ACCOUNT_PATH})


def quota_of(value: JsonObject, kind: ResourceType) -> dict[str, Quantity]:
    """The amounts that an object counts for in quotas."""
    one = Quantity.of(1)
    found = {f"count/{kind.qualified}": one, kind.plural: one}
    if kind.collection == "pods":
        for group, target in (("requests", "requests."), ("limits", "limits.")):
            for container in documents.items(value, "spec", "containers"):
                for name, amount in documents.child(container, "resources", group).items():
                    try:
                        parsed = Quantity.parse(amount)
                    except QuantityError:
                        continue
                    found[target + name] = found.get(target + name, Quantity(0)) + parsed
                    if group == "requests":
                        found[name] = found.get(name, Quantity(0)) + parsed
    return found


def used_of(context: ServerContext, namespace: str, hard: JsonObject) -> dict[str, Quantity]:
    """The amount of each limited resource that a namespace uses."""
    used = dict.fromkeys(hard, Quantity(0))
    for kind in context.registry.stored():
        if not kind.namespaced:
            continue
        names = {f"count/{kind.qualified}", kind.plural}
        if kind.collection != "pods" and not names & hard.keys():
            continue
        for value in context.objects(kind.collection, namespace=namespace):
            if kind.collection == "pods" and documents.child(value, "status").get("phase") in ("Succeeded", "Failed"):
                continue
            for name, amount in quota_of(value, kind).items():
                if name in used:
                    used[name] = used[name] + amount
    return used


def new_options(kind: str, manager: str, *, dry_run: bool) -> JsonObject:
    """The options in an AdmissionReview."""
    found: JsonObject = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if manager:
        found["fieldManager"] = manager
    if dry_run:
        found["dryRun"] = ["All"]
    return found
