# SPDX-License-Identifier: Apache-2.0
"""Admission: what looks at a write between its reading and its storing.

Owns the built-in steps that need other objects: the namespace must live, pods get their account and their priority,
limit ranges and quotas. Webhooks are `webhooks`'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from multikueue.core.quantity import Quantity, QuantityError
from multikueue.devcluster.apiserver import documents, errors
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.hooks import Hooks
from multikueue.devcluster.apiserver.kinds import certificates
from multikueue.devcluster.apiserver.resources import ResourceType
from multikueue.devcluster.apiserver.webhooks import Review, Webhooks, selects
from multikueue.devcluster.apiserver.world import World

_IMMORTAL: Final = frozenset({"default", "kube-system", "kube-public"})
_TOLERATION_SECONDS: Final = 300
_ACCOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


__all__ = ["Admission", "Review", "new_options", "quota_of", "selects", "used_of"]


class Admission:
    """Looks at writes."""

    def __init__(self, world: World, hooks: Hooks) -> None:
        self._world = world
        webhooks = Webhooks(world, hooks)
        self.waits, self.mutate, self.validate = webhooks.waits, webhooks.mutate, webhooks.validate
        self.guard: Callable[[Review], None] = lambda _: None
        """Looks at writes that need more than the right to write; set by whoever knows the rights."""
        self.admit: Callable[[ResourceType, str], None] = lambda _kind, _name: None
        """Refuses objects of a kind that is going away."""
        self.guard_creation: Callable[[Review], None] = lambda _: None
        """Looks at creations that were asked for as updates."""
        self.pods_are_completed = True
        """Pods get their account's token volume and the like, as on a real cluster."""

    def check_namespace(self, review: Review) -> None:
        """A namespaced write needs a namespace that lives. Raises `StatusError`."""
        kind = review.kind
        if review.operation == "CREATE":
            self.admit(kind, review.name)
        if kind.namespaced:
            if review.operation == "CREATE":
                namespace = self._world.get("namespaces", review.namespace)
                if namespace is None:
                    raise errors.not_found(errors.About(review.namespace, "", "namespaces"))
                if documents.child(namespace, "status").get("phase") == "Terminating" and not review.subresource:
                    causes = [
                        errors.Cause(
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
        """What the built-in steps add to an object, in place. Raises `StatusError`."""
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
        """Refuse what a quota has no room for. Raises `StatusError`."""
        if review.operation != "CREATE" or review.subresource or not review.kind.namespaced or review.value is None:
            return
        quotas = self._world.store.collection("resourcequotas")
        if not len(quotas):
            return
        asked = quota_of(review.value, review.kind)
        for quota in self._world.objects("resourcequotas", namespace=review.namespace):
            hard = documents.child(quota, "spec", "hard")
            relevant = {name: amount for name, amount in asked.items() if name in hard}
            if not relevant:
                continue
            used = used_of(self._world, review.namespace, hard)
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
        found = self._world.get("serviceaccounts", f"{review.namespace}/{account}")
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
                spec, "kube-api-access-" + "".join(self._world.rng.choices("bcdfghjklmnpqrstvwxz2456789", k=5))
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
            chosen = self._world.get("priorityclasses.scheduling.k8s.io", name)
            if chosen is None:
                raise errors.forbidden(review.kind.about(review.name), f"no PriorityClass with name {name} was found")
        else:
            for entry in self._world.objects("priorityclasses.scheduling.k8s.io"):
                if entry.get("globalDefault"):
                    chosen = entry
                    spec["priorityClassName"] = entry["metadata"]["name"]
        spec["priority"] = chosen.get("value", 0) if chosen else 0
        spec.setdefault("preemptionPolicy", (chosen or {}).get("preemptionPolicy") or "PreemptLowerPriority")

    def _apply_limits(self, value: JsonObject, review: Review) -> None:
        for ranges in self._world.objects("limitranges", namespace=review.namespace):
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
    """What an object counts for in quotas."""
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


def used_of(world: World, namespace: str, hard: JsonObject) -> dict[str, Quantity]:
    """How much of each limited resource a namespace uses."""
    used = dict.fromkeys(hard, Quantity(0))
    for kind in world.registry.stored():
        if not kind.namespaced:
            continue
        names = {f"count/{kind.qualified}", kind.plural}
        if kind.collection != "pods" and not names & hard.keys():
            continue
        for value in world.objects(kind.collection, namespace=namespace):
            if kind.collection == "pods" and documents.child(value, "status").get("phase") in ("Succeeded", "Failed"):
                continue
            for name, amount in quota_of(value, kind).items():
                if name in used:
                    used[name] = used[name] + amount
    return used


def new_options(kind: str, manager: str, *, dry_run: bool) -> JsonObject:
    """The options that a review tells of."""
    found: JsonObject = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    if manager:
        found["fieldManager"] = manager
    if dry_run:
        found["dryRun"] = ["All"]
    return found
