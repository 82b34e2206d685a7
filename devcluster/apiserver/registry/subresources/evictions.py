# SPDX-License-Identifier: Apache-2.0
"""The subresource `eviction` of pods: a deletion that disruption budgets allow.

Owns the order of a real server: the budget is used up before the preconditions are checked, and the pod's condition is
written before the deletion. A dry run is answered in the same way and writes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final
from urllib.parse import parse_qs

from devcluster import disruption_budgets
from devcluster.apiserver import conditions, errors
from devcluster.apiserver.admission.admission import AdmissionChain, new_options
from devcluster.apiserver.admission.review import Review
from devcluster.apiserver.codec import decoding, documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.http.requests import Answer, Request, RequestTarget, answer
from devcluster.apiserver.kinds.behaviour import KindBehaviour
from devcluster.apiserver.registry import deletion_options, options
from devcluster.apiserver.registry.deleting import Deleter
from devcluster.apiserver.registry.deletion_options import DeleteOptions
from devcluster.apiserver.registry.resources import ResourceType
from devcluster.apiserver.schema import builtin

_BUDGETS: Final = "poddisruptionbudgets.policy"
_MOST_DISRUPTED: Final = 2000
_RETRY_SECONDS: Final = 10
_VIOLATES: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_SEVERAL: Final = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
_NO_BUDGET: Final = ("Pending", "Succeeded", "Failed")
"""Pods in these phases are evicted without a budget."""
_EVICTION: Final = ResourceType(
    group="policy",
    version="v1",
    kind="Eviction",
    plural="evictions",
    singular="eviction",
    namespaced=True,
    node=builtin.node("io.k8s.api.policy.v1.Eviction"),
    behaviour=KindBehaviour(),
    collection="",
)
_OLD_VERSION: Final = "policy/v1beta1"
"""A real server reads evictions of this version as well."""


class Evictions:
    """Answers evictions."""

    def __init__(self, context: ServerContext, admission: AdmissionChain, deleter: Deleter) -> None:
        self._context = context
        self._admission = admission
        self._deleter = deleter

    async def evict(self, request: Request, kind: ResourceType, target: RequestTarget) -> Answer:
        """POST of a pod's `eviction`. Raises `StatusError`."""
        options.check(request)
        value = _read(request, target)
        given = documents.child(value, "deleteOptions")
        dry_runs = _dry_runs(request, given)
        await self._admit(request, kind, target, value)
        preconditions = documents.child(given, "preconditions")
        wanted = DeleteOptions(
            uid=preconditions.get("uid", ""),
            resource_version=preconditions.get("resourceVersion", ""),
            dry_run=bool(dry_runs),
        )
        key = kind.key(target.namespace, target.name)
        pod = self._context.get(kind.collection, key)
        if pod is None:
            raise errors.not_found(kind.about(target.name))
        budget = self._budget_of(pod) if _needs_budget(pod) else None
        unhealthy = budget is not None and _is_unguarded(pod, budget)
        if budget is not None and not unhealthy:
            self._use(budget, target.name, dry_run=wanted.dry_run)
        # The version of an unhealthy pod is that of which the health was checked, whatever the client asks for.
        checked = replace(wanted, resource_version="") if unhealthy else wanted
        try:
            checked.check_preconditions(pod["metadata"], kind.about_kind(target.name))
        except errors.StatusError as error:
            if budget is None or not unhealthy or wanted.resource_version:
                raise
            raise _unprocessed(budget) from error
        if not wanted.dry_run:
            self._mark(kind, key, pod)
        full = deletion_options.options_of(given, {}, dry_runs=dry_runs)
        entry = self._context.store.collection(kind.collection).get(key)
        if entry is not None:
            self._deleter.begin(kind, entry, entry.parse(), full)
        return answer(201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})

    async def _admit(self, request: Request, kind: ResourceType, target: RequestTarget, value: JsonObject) -> None:
        """Ask the policies and webhooks that validate evictions. Raises `StatusError`."""
        if not self._admission.concerns(kind, "CREATE", target.subresource):
            return
        dry_run = options.dry_run(request)  # webhooks do not see that of the deletion
        review = Review(
            kind=kind,
            operation="CREATE",
            user=request.user,
            namespace=target.namespace,
            name=target.name,
            value=value,
            old=None,
            subresource=target.subresource,
            dry_run=dry_run,
            options=new_options("CreateOptions", options.manager(request), dry_run=dry_run),
            warnings=request.warnings,
        )
        await self._admission.validate(review)

    def _budget_of(self, pod: JsonObject) -> JsonObject | None:
        """The budget that selects the pod, if any. Raises `StatusError` if there are several."""
        metadata = pod["metadata"]
        labels = documents.strings(metadata.get("labels"))
        budgets = self._context.objects(_BUDGETS, namespace=metadata["namespace"])
        found = [budget for budget in budgets if disruption_budgets.selects(budget, labels)]
        if len(found) > 1:
            raise errors.StatusError(500, "", _SEVERAL)
        return found[0] if found else None

    def _use(self, budget: JsonObject, pod: str, *, dry_run: bool) -> None:
        """Take one disruption from the budget, and note the pod there. Raises `StatusError`."""
        metadata, status = budget["metadata"], documents.child(budget, "status")
        allowed, disrupted = status.get("disruptionsAllowed", 0), documents.child(status, "disruptedPods")
        if status.get("observedGeneration", 0) < metadata.get("generation", 0):
            raise _unprocessed(budget)
        about = errors.About(metadata["name"], "policy", "poddisruptionbudget")
        if len(disrupted) > _MOST_DISRUPTED:
            text = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
            raise errors.forbidden(about, text)
        if allowed == 0:
            raise _refused(_why(budget))
        if dry_run:
            return
        stamp = self._context.stamp()
        changed = {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": {**disrupted, pod: stamp}}
        if allowed == 1:
            state, reason = disruption_budgets.expected_condition(0)
            changed = disruption_budgets.with_condition(changed, state=state, reason=reason, now=stamp)
        kind = self._context.registry.find("policy", "v1", "poddisruptionbudgets")
        assert kind is not None
        # The server itself writes it, as a real one does through a client of its own.
        value = {**budget, "metadata": dict(metadata), "status": changed}
        conditions.store_status(self._context, kind, value, old=budget)

    def _mark(self, kind: ResourceType, key: str, pod: JsonObject) -> None:
        """Give the pod the condition DisruptionTarget; a real server changes no managed fields with it."""
        status = documents.child(pod, "status")
        found = documents.items(status, "conditions")
        old = next((entry for entry in found if entry.get("type") == disruption_budgets.TARGET), None)
        made = {
            "type": disruption_budgets.TARGET,
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": self._context.stamp(),
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        if old is not None and old.get("status") == "True":
            made["lastTransitionTime"] = old.get("lastTransitionTime")
        changed = [made if entry is old else entry for entry in found] + ([made] if old is None else [])
        if changed != found:
            self._context.store.put(kind.collection, key, {**pod, "status": {**status, "conditions": changed}})


def _read(request: Request, target: RequestTarget) -> JsonObject:
    """The eviction in the body, of the pod in the path. Raises `StatusError`."""
    if _OLD_VERSION.encode() in request.body:
        body = decoding.decode(request)
        if isinstance(body, dict) and body.get("apiVersion") == _OLD_VERSION:
            request = replace(request, body=documents.dump({**body, "apiVersion": _EVICTION.api_version}))
    value = decoding.read(request, _EVICTION)
    metadata = documents.metadata(value)
    if metadata.get("namespace", target.namespace) != target.namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if metadata.get("name") != target.name:
        raise errors.bad_request("name in URL does not match name in Eviction object")
    return value


def _dry_runs(request: Request, given: JsonObject) -> list[str]:
    """The values of `dryRun` in the options of the deletion or in the parameter. Raises `StatusError`."""
    in_query = parse_qs(request.query_text, keep_blank_values=True).get("dryRun", [])
    in_body: list[str] = given.get("dryRun") or []
    if in_query and in_body and in_query != in_body:
        shown = " and ".join(f"[{' '.join(values)}]" for values in (in_query, in_body))
        raise errors.StatusError(500, "", f"Non-matching dry-run options in request and content: {shown}")
    return in_body or in_query


def _needs_budget(pod: JsonObject) -> bool:
    """Whether the pod runs and is not being deleted, so that a budget may protect it."""
    return documents.child(pod, "status").get("phase") not in _NO_BUDGET and "deletionTimestamp" not in pod["metadata"]


def _is_unguarded(pod: JsonObject, budget: JsonObject) -> bool:
    """Whether the pod is not ready, and the budget's policy does not protect such pods now."""
    states = {entry.get("type"): entry.get("status") for entry in documents.items(pod, "status", "conditions")}
    if states.get("Ready") == "True":
        return False
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = documents.child(budget, "status")
    healthy: int = status.get("currentHealthy", 0)
    needed: int = status.get("desiredHealthy", 0)
    return healthy >= needed > 0


def _why(budget: JsonObject) -> str:
    """Why the budget allows no disruption."""
    name, status = budget["metadata"]["name"], documents.child(budget, "status")
    condition = disruption_budgets.condition_of(budget)
    if condition is not None and (condition["status"], condition["reason"]) == (
        "False",
        disruption_budgets.SYNC_FAILED,
    ):
        return (
            f"The disruption budget {name} does not allow evicting pods currently because it failed sync: "
            f"{condition.get('message', '')}"
        )
    healthy, needed = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if healthy <= needed:
        return f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"
    return f"The disruption budget {name} does not allow evicting pods currently"


def _refused(why: str, *, retry_after: int | None = None) -> errors.StatusError:
    cause = errors.StatusCause("DisruptionBudget", why)
    return errors.StatusError(429, "TooManyRequests", _VIOLATES, None, [cause], retry_after=retry_after)


def _unprocessed(budget: JsonObject) -> errors.StatusError:
    text = f"The disruption budget {budget['metadata']['name']} is still being processed by the server."
    return _refused(text, retry_after=_RETRY_SECONDS)
