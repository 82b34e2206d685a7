# SPDX-License-Identifier: Apache-2.0
"""Mutating and validating webhooks of a write.

Owns which webhooks are called, the order and reinvocation of mutating ones, their patches, and the answer if a webhook
denies the write or fails.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from binascii import Error as Base64Error
from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.admission import matching
from devcluster.apiserver.admission.access import authorizer_value
from devcluster.apiserver.admission.hooks import HookFailed, Hooks
from devcluster.apiserver.admission.matching import Expressions
from devcluster.apiserver.admission.review import Review
from devcluster.apiserver.admission.rounds import Rounds
from devcluster.apiserver.auth.rbac import Authorizer
from devcluster.apiserver.cel.syntax import CelError
from devcluster.apiserver.cel.values import Variables
from devcluster.apiserver.codec import decoding, documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.errors import StatusError
from devcluster.apiserver.patch import json_patch
from devcluster.apiserver.registry.resources import ResourceType

MUTATING: Final = "mutatingwebhookconfigurations.admissionregistration.k8s.io"
VALIDATING: Final = "validatingwebhookconfigurations.admissionregistration.k8s.io"
_UNASKED: Final = frozenset({MUTATING, VALIDATING})
_NO_PATCH: Final = "json: cannot unmarshal object into Go value of type jsonpatch.Patch"


class Webhooks:
    """Calls the webhooks of writes."""

    def __init__(self, context: ServerContext, hooks: Hooks, authorizer: Authorizer) -> None:
        self._context = context
        self._hooks = hooks
        self._authorizer = authorizer
        self._expressions = Expressions()
        self._configured: dict[str, tuple[int, list[JsonObject]]] = {}

    def waits(self, kind: ResourceType, operation: str, subresource: str) -> bool:
        """Whether a webhook may have to be called for such a write."""
        hooks = [*self._of(MUTATING), *self._of(VALIDATING)]
        return bool(hooks) and any(self._covered(hook, kind, operation, subresource) for hook in hooks)

    async def mutate(self, review: Review, rounds: Rounds) -> None:
        """Call the mutating webhooks of a round. Raises `StatusError`."""
        rounds.begin(review.value)
        for index, hook in enumerate(self._of(MUTATING)):
            key = (str(index), str(hook["name"]))
            if not self._matches(hook, review) or rounds.skips(key):
                continue
            before = review.value
            await self._change(hook, review)
            rounds.note(key, changed=before != review.value, repeats=hook.get("reinvocationPolicy") == "IfNeeded")
        rounds.end(review.value)

    async def validate(self, review: Review) -> None:
        """Call the validating webhooks, all at once. Raises `StatusError`."""
        called = [hook for hook in self._of(VALIDATING) if self._matches(hook, review)]
        if not called:
            return
        found = await asyncio.gather(*(self._call(hook, review) for hook in called), return_exceptions=True)
        for outcome in found:
            if isinstance(outcome, BaseException):
                raise outcome

    async def _change(self, hook: JsonObject, review: Review) -> None:
        response = await self._call(hook, review, patches=True)
        if response is None or review.value is None or not response.get("patch"):
            return
        changed: JsonValue = review.value
        for operation in response["patch"]:
            try:
                changed = json_patch.json_patch(changed, [operation])
            except json_patch.PatchFailed as error:
                raise errors.internal(_patch_problem(operation, error)) from error
        if isinstance(changed, dict):
            problem = decoding.mismatched(changed, review.kind)
            if problem is not None:
                raise errors.internal(problem)
            review.value = changed

    def _of(self, collection: str) -> list[JsonObject]:
        rows = self._context.store.collection(collection)
        kept = self._configured.get(collection)
        if kept is None or kept[0] != rows.version:
            found = [hook for value in self._context.objects(collection) for hook in documents.items(value, "webhooks")]
            kept = self._configured[collection] = (rows.version, found)
        return kept[1]

    def _covered(self, hook: JsonObject, kind: ResourceType, operation: str, subresource: str) -> bool:
        return matching.covers(
            documents.items(hook, "rules"),
            self._context,
            kind,
            operation=operation,
            subresource=subresource,
            policy=hook.get("matchPolicy", "Equivalent"),
        )

    def _matches(self, hook: JsonObject, review: Review) -> bool:
        """Whether the webhook is called. Raises `StatusError` if its match conditions fail."""
        kind = review.kind
        if kind.collection in _UNASKED or not self._covered(hook, kind, review.operation, review.subresource):
            return False
        if not matching.selected(hook, review, self._context):
            return False
        conditions = documents.items(hook, "matchConditions")
        if not conditions:
            return True
        try:
            return self._expressions.conditions_hold(conditions, self._variables(review))
        except CelError as error:
            if hook.get("failurePolicy") == "Ignore":
                return False
            raise errors.forbidden(review.kind.about(review.name), str(error)) from error

    def _variables(self, review: Review) -> Variables:
        return {
            "object": review.value,
            "oldObject": review.old,
            "request": review.request(self._hooks.new_uid()),
            "authorizer": authorizer_value(self._authorizer, review),
            "namespaceObject": None,  # as on a real server, whatever the namespace
        }

    async def _call(self, hook: JsonObject, review: Review, *, patches: bool = False) -> JsonObject | None:
        """The response of a webhook that allows the write; None if it failed and its failures are ignored."""
        name = hook["name"]
        if review.dry_run and hook.get("sideEffects") not in ("None", "NoneOnDryRun"):
            raise errors.bad_request(f'admission webhook "{name}" does not support dry run')
        request = review.request(self._hooks.new_uid())
        request |= {"object": review.value, "oldObject": review.old}
        body = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
        try:
            seconds = float(hook.get("timeoutSeconds", 10))
            answer = await self._hooks.call(hook.get("clientConfig", {}), body, seconds=seconds)
            response = _read(answer, uid=request["uid"], patches=patches)
        except HookFailed as error:
            if hook.get("failurePolicy") == "Ignore":
                return None
            raise errors.internal(f'failed calling webhook "{name}": {error}') from error
        if review.warnings is not None:
            review.warnings += [str(text) for text in response.get("warnings") or []]
        if response.get("allowed") is not True:
            raise _denied(name, documents.child(response, "status"))
        return response


def _read(answer: JsonObject, *, uid: str, patches: bool) -> JsonObject:
    """The response, its patch decoded. Raises `HookFailed`."""

    def invalid(why: str) -> HookFailed:
        return HookFailed(f"received invalid webhook response: {why}")

    version, kind = answer.get("apiVersion", ""), answer.get("kind", "")
    if (version or kind) and (version, kind) != ("admission.k8s.io/v1", "AdmissionReview"):
        where = 'in scheme "pkg/runtime/scheme.go:111"'
        raise HookFailed(f'failed to call webhook: no kind "{kind}" is registered for version "{version}" {where}')
    found = answer.get("response")
    if not isinstance(found, dict):
        raise invalid("webhook response was absent")
    response: JsonObject = found
    if response.get("uid") != uid:
        raise invalid(f'expected response.uid="{uid}", got "{response.get("uid", "")}"')
    patch, kind = response.get("patch"), response.get("patchType")
    if not patches:
        if patch:
            raise invalid("validating webhook may not return response.patch")
        return response
    if patch and not kind:
        raise invalid("webhook returned response.patch but not response.patchType")
    if kind and not patch:
        raise invalid("webhook returned response.patchType but not response.patch")
    if patch and kind != "JSONPatch":
        return {**response, "patch": []}  # other patch types change nothing
    if patch:
        try:
            operations = documents.load(b64decode(patch))
        except (ValueError, Base64Error) as error:
            raise HookFailed(f"received undecodable patch in webhook response: {error}") from error
        if not isinstance(operations, list):
            raise HookFailed(f"received undecodable patch in webhook response: {_NO_PATCH}")
        response = {**response, "patch": operations}
    return response


def _patch_problem(operation: JsonValue, error: Exception) -> str:
    if isinstance(operation, dict) and operation.get("op") == "remove":
        path = str(operation.get("path", ""))
        key = path.rpartition("/")[2]
        return f"error in remove for path: '{path}': Unable to remove nonexistent key: {key}: missing value"
    return str(error)


def _denied(name: str, status: JsonObject) -> StatusError:
    """The answer if a webhook denies the write."""
    message = status.get("message")
    reason = status.get("reason")
    prefix = f'admission webhook "{name}" denied the request'
    text = f"{prefix}: {message or reason}" if message or reason else f"{prefix} without explanation"
    code = status.get("code") or 400
    causes = [
        errors.StatusCause(cause.get("reason", ""), cause.get("message", ""), cause.get("field", ""))
        for cause in documents.items(status, "details", "causes")
    ]
    return StatusError(code if 400 <= code < 600 else 400, reason or "", text, None, causes)
