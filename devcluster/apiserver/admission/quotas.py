# SPDX-License-Identifier: Apache-2.0
"""Refuses writes that exceed a ResourceQuota.

The usage is that of the stored objects, not that of the status, so it is exact before the controller has written one.
"""

from __future__ import annotations

from collections.abc import Mapping

from devcluster import quota_usage
from devcluster.apiserver import errors
from devcluster.apiserver.admission.review import Review
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.context import ServerContext
from devcluster.quota_usage import Amounts
from multikueue.core.quantity import Quantity


def check(context: ServerContext, review: Review) -> None:
    """Refuse a write that exceeds a quota of its namespace. Raises `StatusError`."""
    value, resource = review.value, review.kind.qualified
    if value is None or not _is_counted(review) or not len(context.store.collection("resourcequotas")):
        return
    found: list[tuple[JsonObject, list[str]]] = []
    for quota in context.objects("resourcequotas", namespace=review.namespace):
        names = quota_usage.tracked(resource, documents.child(quota, "spec", "hard"))
        if names and quota_usage.selected(resource, value, quota["spec"]):
            found.append((quota, names))
    if resource == quota_usage.PODS:
        for quota, names in found:
            missing = quota_usage.unspecified(value, names)
            if missing:
                raise _refusal(review, f"failed quota: {quota['metadata']['name']}: must specify {missing}")
    for quota, names in found:
        requested = _requested(context, review, value, quota=quota, names=names)
        if requested:
            _check_one(context, review, quota, requested=requested)


def _is_counted(review: Review) -> bool:
    """Whether the usage of an object of this kind may grow by such a write."""
    if not review.kind.namespaced:
        return False
    resource, value, old = review.kind.qualified, review.value or {}, review.old or {}
    if review.operation == "CREATE":
        return not review.subresource and resource not in quota_usage.UNCOUNTED
    if review.operation != "UPDATE":
        return False
    if resource == quota_usage.PODS:
        return review.subresource == "resize" or (not review.subresource and _has_limit(value) != _has_limit(old))
    return not review.subresource and resource in (quota_usage.SERVICES, quota_usage.CLAIMS)


def _has_limit(pod: JsonObject) -> bool:
    return documents.child(pod, "spec").get("activeDeadlineSeconds") is not None


def _requested(
    context: ServerContext, review: Review, value: JsonObject, *, quota: JsonObject, names: list[str]
) -> Amounts:
    """By how much the usage of the quota grows."""
    resource, now, old = review.kind.qualified, context.now(), review.old
    new = quota_usage.usage(resource, value, now=now)
    counted = old is not None and quota_usage.selected(resource, old, quota["spec"])
    before = quota_usage.usage(resource, old, now=now) if old is not None and counted else {}
    return {name: amount for name, amount in quota_usage.increase(new, before).items() if name in names}


def _check_one(context: ServerContext, review: Review, quota: JsonObject, *, requested: Amounts) -> None:
    hard = documents.child(quota, "spec", "hard")
    used = _used(context, review, quota, names=requested)
    over = sorted(name for name in requested if used[name] + requested[name] > Quantity.parse(hard[name]))
    if over:
        text = (
            f"exceeded quota: {quota['metadata']['name']}, requested: {_listed(requested, over)}, "
            f"used: {_listed(used, over)}, limited: {_listed(hard, over)}"
        )
        raise _refusal(review, text)


def _used(context: ServerContext, review: Review, quota: JsonObject, *, names: Amounts) -> Amounts:
    resource, collection = review.kind.qualified, review.kind.collection
    if resource not in quota_usage.MEASURED:
        number = context.store.collection(collection).count(prefix=f"{review.namespace}/")
        return dict.fromkeys(names, Quantity.of(number))
    values = context.objects(collection, namespace=review.namespace)
    return quota_usage.total(resource, values, quota["spec"], names=names, now=context.now())


def _listed(amounts: Mapping[str, Quantity] | JsonObject, names: list[str]) -> str:
    return ",".join(f"{name}={amounts[name]}" for name in names)


def _refusal(review: Review, text: str) -> errors.StatusError:
    return errors.forbidden(review.kind.about(review.name), text)
