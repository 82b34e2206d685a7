# SPDX-License-Identifier: Apache-2.0
"""Admission: the built-in checks and mutations of a write that need other objects.

The namespace must be active, pods get their service account and priority, limit ranges and quotas apply. Webhooks are
in `webhooks`, ValidatingAdmissionPolicies and MutatingAdmissionPolicies in `policies`.
"""

from __future__ import annotations

from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.admission import limit_ranges, quotas, runtime_classes
from devcluster.apiserver.admission.hooks import Hooks
from devcluster.apiserver.admission.new_metadata import check, hide, show
from devcluster.apiserver.admission.policies.mutating import MutatingPolicies
from devcluster.apiserver.admission.policies.mutations import completed
from devcluster.apiserver.admission.policies.validating import Policies
from devcluster.apiserver.admission.review import Review
from devcluster.apiserver.admission.rounds import Rounds
from devcluster.apiserver.admission.webhooks import Webhooks
from devcluster.apiserver.auth.escalation import Escalation
from devcluster.apiserver.auth.rbac import Authorizer
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.kinds import certificates
from devcluster.apiserver.registry.definitions import Definitions
from devcluster.apiserver.registry.resources import ResourceType

_IMMORTAL: Final = frozenset({"default", "kube-system", "kube-public"})
_TOKEN: Final = "kube-api-access-"
"""How the names of token volumes begin."""
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
        self._mutating = MutatingPolicies(context, authorizer)
        escalation = Escalation(authorizer)
        self.check_escalation, self.check_creation = escalation.check, escalation.check_creation
        self.pods_are_completed = True
        """Whether pods get the token volume of their account and the like, as on a real cluster."""

    def concerns(self, kind: ResourceType, operation: str, subresource: str) -> bool:
        """Whether a webhook or a policy may be about such a write."""
        return self._policies.concern(kind, operation, subresource) or self.waits(kind, operation, subresource)

    def waits(self, kind: ResourceType, operation: str, subresource: str) -> bool:
        """Whether a webhook or a mutating policy may be about such a write."""
        return self._mutating.concern(kind, operation, subresource) or self._webhooks.waits(
            kind, operation, subresource
        )

    async def mutate(self, review: Review) -> None:
        """Run the mutating policies, then the mutating webhooks; all again where a change requires it.

        Raises `StatusError`.
        """
        hidden = hide(review)
        try:
            await self._mutate_twice(review)
            check(review)
        finally:
            show(review, hidden)

    async def _mutate_twice(self, review: Review) -> None:
        of_policies, of_hooks = Rounds(), Rounds()
        self._mutating.mutate(review, of_policies)
        await self._webhooks.mutate(review, of_hooks)
        if not of_policies.changed and not of_hooks.changed:
            return
        of_policies.second = of_hooks.second = True
        if of_hooks.changed and review.value is not None:
            review.value = completed(review.value, review.kind)
        self.complete(review)
        self._mutating.mutate(review, of_policies)
        await self._webhooks.mutate(review, of_hooks)

    def _limits(self, review: Review) -> list[JsonObject]:
        return limit_ranges.limits_in(self._context.objects("limitranges", namespace=review.namespace))

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
            limit_ranges.set_defaults(value, self._limits(review))
        elif review.kind.collection == certificates.COLLECTION and review.operation == "CREATE":
            refusal = certificates.refusal(value)
            if refusal is not None:
                raise errors.forbidden(review.kind.about(review.name), refusal)

    def count(self, review: Review) -> None:
        """Refuse a write that exceeds a limit range or a quota. Raises `StatusError`."""
        if review.value is not None and limit_ranges.concern(review):
            found = limit_ranges.problems(review.value, review.kind.collection, self._limits(review))
            if found:
                text = found[0] if len(found) == 1 else f"[{', '.join(found)}]"
                raise errors.forbidden(review.kind.about(review.name), text)
        quotas.check(self._context, review)

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
            _mount_token(spec, _TOKEN + "".join(self._context.rng.choices("bcdfghjklmnpqrstvwxz2456789", k=5)))
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
        self._set_runtime_class(spec, review)

    def _set_runtime_class(self, spec: JsonObject, review: Review) -> None:
        name = spec.get("runtimeClassName")
        found = self._context.get(runtime_classes.COLLECTION, name) if name else None
        if name and found is None:
            refusal: str | None = f'pod rejected: RuntimeClass "{name}" not found'
        else:
            refusal = runtime_classes.complete(spec, found)
        if refusal is not None:
            raise errors.forbidden(review.kind.about(review.name), refusal)

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
        computed = {
            "priority": (chosen or {}).get("value", 0),
            "preemptionPolicy": (chosen or {}).get("preemptionPolicy") or "PreemptLowerPriority",
        }
        for field, value in computed.items():
            given = spec.setdefault(field, value)
            if given != value:
                what = "integer value of priority" if field == "priority" else "string value of PreemptionPolicy"
                text = (
                    f"the {what} ({given}) must not be provided in pod spec; priority admission controller computed "
                    f"{value} from the given PriorityClass name"
                )
                raise errors.forbidden(review.kind.about(review.name), text)


def _mount_token(spec: JsonObject, volume: str) -> None:
    present = [entry["name"] for entry in documents.items(spec, "volumes") if entry["name"].startswith(_TOKEN)]
    volume = present[0] if present else volume
    unmounted = [
        container
        for container in (*documents.items(spec, "containers"), *documents.items(spec, "initContainers"))
        if all(mount.get("mountPath") != _ACCOUNT_PATH for mount in documents.items(container, "volumeMounts"))
    ]
    for container in unmounted:
        container.setdefault("volumeMounts", []).append({"name": volume, "readOnly": True, "mountPath": _ACCOUNT_PATH})
    if present or not unmounted:
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


def new_options(kind: str, manager: str, *, dry_run: bool) -> JsonObject:
    """The options in an AdmissionReview."""
    found: JsonObject = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if manager:
        found["fieldManager"] = manager
    if dry_run:
        found["dryRun"] = ["All"]
    return found
