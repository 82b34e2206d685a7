# SPDX-License-Identifier: Apache-2.0
"""Admission: what looks at a write between its reading and its storing.

Owns the webhooks of both kinds (rules, selectors, match conditions, failure policy, patches) and the built-in steps
that need other objects: the namespace must live, pods get their account and their priority, limit ranges and quotas.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from multikueue.core.errors import BadInput
from multikueue.core.quantity import Quantity, QuantityError
from multikueue.core.selectors import LabelSelector, Requirement
from multikueue.devcluster.apiserver import documents, errors
from multikueue.devcluster.apiserver.cel.compile import Expression
from multikueue.devcluster.apiserver.cel.syntax import CelError
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.errors import StatusError
from multikueue.devcluster.apiserver.hooks import HookFailed, Hooks
from multikueue.devcluster.apiserver.patch import json_patch
from multikueue.devcluster.apiserver.requests import User
from multikueue.devcluster.apiserver.resources import ResourceType
from multikueue.devcluster.apiserver.world import World

_MUTATING: Final = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
_VALIDATING: Final = "validatingwebhookconfigurations.admissionregistration.k8s.io"
_FINDABLE: Final = frozenset({_MUTATING, _VALIDATING})
_VARIABLES: Final = frozenset({"object", "oldObject", "request"})
_IMMORTAL: Final = frozenset({"default", "kube-system", "kube-public"})
_TOLERATION_SECONDS: Final = 300
_ACCOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(slots=True, kw_only=True)
class Review:
    """One write as admission sees it."""

    kind: ResourceType
    operation: str
    user: User
    namespace: str
    name: str
    value: JsonObject | None
    old: JsonObject | None
    subresource: str = ""
    dry_run: bool = False
    options: JsonObject | None = None
    warnings: list[str] | None = None


class Admission:
    """Looks at writes."""

    def __init__(self, world: World, hooks: Hooks) -> None:
        self._world = world
        self._hooks = hooks
        self._expressions: dict[str, Expression] = {}
        self._configured: dict[str, tuple[int, list[JsonObject]]] = {}
        self.guard: Callable[[Review], None] = lambda _: None
        """Looks at writes that need more than the right to write; set by whoever knows the rights."""
        self.admit: Callable[[ResourceType, str], None] = lambda _kind, _name: None
        """Refuses objects of a kind that is going away."""
        self.guard_creation: Callable[[Review], None] = lambda _: None
        """Looks at creations that were asked for as updates."""
        self.pods_are_completed = True
        """Pods get their account's token volume and the like, as on a real cluster."""

    def waits(self, kind: ResourceType, operation: str, subresource: str) -> bool:
        """Whether a webhook may have to be asked about such a write."""
        return any(
            _covered(hook, kind, operation, subresource)
            for collection in (_MUTATING, _VALIDATING)
            for hook in self._webhooks(collection)
        )

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
        elif review.kind.collection == "serviceaccounts" or review.kind.collection == "resourcequotas":
            return

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

    async def mutate(self, review: Review) -> None:
        """Let the mutating webhooks change the object. Raises `StatusError`."""
        for hook in self._webhooks(_MUTATING):
            if not self._meant(hook, review):
                continue
            response = await self._ask(hook, review)
            if response is None or review.value is None:
                continue
            patch = response.get("patch")
            if patch:
                try:
                    operations = documents.load(b64decode(patch))
                    review.value = json_patch.json_patch(review.value, operations)
                except (ValueError, json_patch.PatchFailed) as error:
                    raise errors.internal(f"webhook {hook['name']}: {error}") from error

    async def validate(self, review: Review) -> None:
        """Let the validating webhooks look at the object. Raises `StatusError`."""
        for hook in self._webhooks(_VALIDATING):
            if self._meant(hook, review):
                await self._ask(hook, review)

    def _webhooks(self, collection: str) -> list[JsonObject]:
        rows = self._world.store.collection(collection)
        kept = self._configured.get(collection)
        if kept is None or kept[0] != rows.version:
            found = [
                {**hook, "configuration": value["metadata"]["name"]}
                for value in self._world.objects(collection)
                for hook in documents.items(value, "webhooks")
            ]
            kept = self._configured[collection] = (rows.version, found)
        return kept[1]

    def _meant(self, hook: JsonObject, review: Review) -> bool:
        if review.kind.collection in _FINDABLE or not _covered(hook, review.kind, review.operation, review.subresource):
            return False
        labels: dict[str, str] | None = None
        if review.kind.namespaced:
            namespace = self._world.get("namespaces", review.namespace) or {}
            labels = documents.strings(documents.metadata(namespace).get("labels"))
        elif review.kind.collection == "namespaces":
            labels = documents.strings(documents.metadata(review.value or review.old or {}).get("labels"))
        if labels is not None and not selects(hook.get("namespaceSelector"), labels):
            return False
        selector = hook.get("objectSelector")
        if selector and not any(
            selects(selector, documents.strings(documents.metadata(value).get("labels")))
            for value in (review.value, review.old)
            if value is not None
        ):
            return False
        return self._conditions_hold(hook, review)

    def _conditions_hold(self, hook: JsonObject, review: Review) -> bool:
        conditions = documents.items(hook, "matchConditions")
        if not conditions:
            return True
        variables = {"object": review.value, "oldObject": review.old, "request": self._request(review)}
        for condition in conditions:
            text = condition.get("expression", "true")
            try:
                expression = self._expressions.get(text)
                if expression is None:
                    expression = self._expressions[text] = Expression(text, variables=_VARIABLES)
                if expression.evaluate(variables) is not True:
                    return False
            except CelError as error:
                if hook.get("failurePolicy") == "Ignore":
                    return False
                raise errors.forbidden(review.kind.about(review.name), f"{hook['name']}: {error}") from error
        return True

    def _request(self, review: Review) -> JsonObject:
        kind = review.kind
        gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        gvr = {"group": kind.group, "version": kind.version, "resource": kind.plural}
        found: JsonObject = {
            "uid": self._hooks.new_uid(),
            "kind": gvk,
            "resource": gvr,
            "requestKind": gvk,
            "requestResource": gvr,
            "name": review.name,
            "operation": review.operation,
            "userInfo": review.user.document(),
            "object": review.value,
            "oldObject": review.old,
            "dryRun": review.dry_run,
            "options": review.options,
        }
        if review.subresource:
            found["subResource"] = found["requestSubResource"] = review.subresource
        if review.namespace:
            found["namespace"] = review.namespace
        return found

    async def _ask(self, hook: JsonObject, review: Review) -> JsonObject | None:
        name = hook["name"]
        if review.dry_run and hook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            raise errors.bad_request(f'admission webhook "{name}" does not support dry run')
        request = self._request(review)
        body = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
        try:
            answer = await self._hooks.call(
                hook.get("clientConfig", {}), body, seconds=float(hook.get("timeoutSeconds", 10))
            )
            response = documents.child(answer, "response")
            if response.get("uid") != request["uid"]:
                raise HookFailed(f"expected response.uid={request['uid']!r}, got {response.get('uid')!r}")
        except HookFailed as error:
            if hook.get("failurePolicy") == "Ignore":
                return None
            raise errors.internal(f'failed calling webhook "{name}": failed to call webhook: {error}') from error
        if review.warnings is not None:
            review.warnings += [str(text) for text in response.get("warnings") or []]
        if response.get("allowed") is not True:
            raise _denied(name, documents.child(response, "status"))
        return response

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


def _denied(name: str, status: JsonObject) -> StatusError:
    """What a webhook's refusal is answered with."""
    message = status.get("message")
    reason = status.get("reason")
    prefix = f'admission webhook "{name}" denied the request'
    text = f"{prefix}: {message or reason}" if message or reason else f"{prefix} without explanation"
    code = status.get("code") or 400
    causes = [
        errors.Cause(cause.get("reason", ""), cause.get("message", ""), cause.get("field", ""))
        for cause in documents.items(status, "details", "causes")
    ]
    return StatusError(code if 400 <= code < 600 else 400, reason or "", text, None, causes)


def _covered(hook: JsonObject, kind: ResourceType, operation: str, subresource: str) -> bool:
    resource = f"{kind.plural}/{subresource}" if subresource else kind.plural
    scope = "Namespaced" if kind.namespaced else "Cluster"
    for rule in documents.items(hook, "rules"):
        operations, resources = rule.get("operations") or [], rule.get("resources") or []
        groups, api_versions = rule.get("apiGroups") or [], rule.get("apiVersions") or []
        if "*" not in operations and operation not in operations:
            continue
        if "*" not in groups and kind.group not in groups:
            continue
        # Equivalent matching: a rule for another version of the same group is meant too.
        if "*" not in api_versions and kind.version not in api_versions and hook.get("matchPolicy") == "Exact":
            continue
        if rule.get("scope", "*") not in ("*", scope):
            continue
        wildcard = "*" in resources and not subresource
        if wildcard or "*/*" in resources or resource in resources or f"{kind.plural}/*" in resources:
            return True
    return False


def selects(selector: object, labels: dict[str, str]) -> bool:
    """Whether a label selector of the API matches; an unreadable one does not."""
    if not isinstance(selector, dict) or not selector:
        return True
    try:
        requirements = [
            Requirement(entry.get("key", ""), entry.get("operator", ""), tuple(entry.get("values") or ()))
            for entry in documents.items(selector, "matchExpressions")
        ]
    except BadInput:
        return False
    base = LabelSelector.of(documents.strings(selector.get("matchLabels")))
    return base.matches(labels) and LabelSelector(tuple(requirements)).matches(labels)


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
