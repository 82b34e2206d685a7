# SPDX-License-Identifier: Apache-2.0
"""Create and update.

Owns the order of the steps of a write: decode, default, track managed fields, admission, prepare, validate, store.
Promises that a write without changes is not stored, and that a write without a resource version is retried after a
conflict. Only webhooks make a write wait; the stored object is compared again after the wait.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.admission.admission import AdmissionChain, new_options
from devcluster.apiserver.admission.review import Review
from devcluster.apiserver.codec import decoding, documents, forms
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.http.requests import Answer, Request, RequestTarget
from devcluster.apiserver.kinds import immutable_fields
from devcluster.apiserver.kinds.behaviour import RequestContext
from devcluster.apiserver.registry import objects, options, ownership, versions
from devcluster.apiserver.registry.conversion import Converter
from devcluster.apiserver.registry.definitions import Definitions
from devcluster.apiserver.registry.deleting import Deleter
from devcluster.apiserver.registry.resources import ResourceType
from devcluster.apiserver.schema import builtin
from devcluster.apiserver.schema.validate import validate
from devcluster.apiserver.service_allocation import SERVICES, ServiceAllocation
from devcluster.apiserver.storage.entry import StoredObject

_TRIES: Final = 5

Transform = Callable[[JsonObject], JsonObject]
"""Makes the desired object from the current one."""
Owners = Callable[[JsonObject, JsonObject], None]


class Writer:
    """Answers writes."""

    def __init__(
        self,
        context: ServerContext,
        admission: AdmissionChain,
        converter: Converter,
        *,
        deleter: Deleter,
        definitions: Definitions,
    ) -> None:
        self._context = context
        self._admission = admission
        self._converter = converter
        self._deleter = deleter
        self._definitions = definitions
        self._services = ServiceAllocation(context)

    async def create(self, request: Request, kind: ResourceType, target: RequestTarget) -> Answer:
        """POST. Raises `StatusError`."""
        options.check(request)
        value = decoding.read(request, kind)
        return await self.add(request, kind, target, value, manager=ownership.manager_of(request))

    async def add(
        self,
        request: Request,
        kind: ResourceType,
        target: RequestTarget,
        value: JsonObject,
        *,
        manager: str,
        track: Owners | None = None,
    ) -> Answer:
        """Store a new object that has been decoded. Raises `StatusError`."""
        stored = await self.add_object(request, kind, target, value, manager=manager, track=track)
        return self._answer(request, kind, 201, stored)

    async def add_object(
        self,
        request: Request,
        kind: ResourceType,
        target: RequestTarget,
        value: JsonObject,
        *,
        manager: str,
        track: Owners | None = None,
    ) -> JsonObject:
        """The new object as stored. Raises `StatusError`."""
        context = self._context
        objects.begin(value, kind=kind, namespace=target.namespace, now=context.stamp(), rng=context.rng)
        name = value["metadata"].get("name", "")
        review = Review(
            kind=kind,
            operation="CREATE",
            user=request.user,
            namespace=target.namespace,
            name=name,
            value=value,
            old=None,
            dry_run=options.dry_run(request),
            options=new_options("CreateOptions", options.manager(request), dry_run=options.dry_run(request)),
            warnings=request.warnings,
        )
        if request.method != "POST":
            self._admission.check_creation(review)
        self._admission.check_namespace(review)
        objects.default(value, kind)
        if track is not None:
            track({}, value)
        else:
            ownership.track({}, value, kind, manager=manager, subresource="", now=context.stamp())
        self._admission.complete(review)
        if self._admission.waits(kind, "CREATE", ""):
            await self._admission.mutate(review)
            value = self._after_mutation(review, kind)
            name = value["metadata"].get("name", "") or name
        self._admission.check_escalation(review)
        request_context = RequestContext(context.stamp(), target.namespace, requester=request.user.document())
        kind.behaviour.prepare_create(value, request_context)
        if kind.structural is None:
            builtin.fill_zero(kind.node, value)
        elif "status" not in value and "status" in kind.structural.defaulted:
            objects.default(value, kind)  # the status of the client was removed, and has defaults itself
        request.warnings.extend(objects.advice(value, kind))
        causes = objects.problems(value, kind=kind) + self._problems(value, None, kind, request_context)
        if causes:
            named = name or value["metadata"].get("generateName", "")
            raise errors.invalid(objects.about_given(value, named), causes)
        self._allocate(value, None, kind, named=name)
        request.warnings.extend(kind.behaviour.warnings(value, None))
        if self._admission.concerns(kind, "CREATE", ""):
            await self._admission.validate(review)
        self._admission.count(review)
        key = kind.key(target.namespace, name)
        if not options.dry_run(request) and _is_version(value["metadata"].get("resourceVersion")):
            raise errors.StatusError(500, "", "resourceVersion should not be set on objects to be created")
        present = context.get(kind.collection, key)
        if present is not None:
            raise errors.already_exists(kind.about(name), deleting="deletionTimestamp" in present["metadata"])
        if options.dry_run(request):
            value["metadata"] = objects.ordered(value["metadata"])
            return value
        return await self._store(kind, key, value, expected=None)

    async def replace(self, request: Request, kind: ResourceType, target: RequestTarget) -> Answer:
        """PUT. Raises `StatusError`."""
        options.check(request)
        value = decoding.read(request, kind)
        metadata = value["metadata"]
        _check_place(metadata, kind, target)
        manager = ownership.manager_of(request)
        key = kind.key(target.namespace, target.name)
        entry = self._context.store.collection(kind.collection).get(key)
        if entry is None:
            if not target.subresource and kind.behaviour.creates_on_update and not metadata.get("resourceVersion"):
                return await self.add(request, kind, target, value, manager=manager)
            raise errors.not_found(kind.about(target.name))
        uid = metadata.get("uid")
        current = documents.metadata(entry.parse()).get("uid")
        if uid and uid != current:
            where = f"{kind.group}/{kind.plural}" if kind.custom else kind.plural
            raise errors.conflict(
                kind.about(target.name),
                f"StorageError: invalid object, Code: 4, Key: /registry/{where}/{key}, ResourceVersion: 0, "
                f"AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {current}",
            )
        return await self.change(
            request,
            kind,
            target,
            lambda _: documents.copy(value),
            manager=manager,
            insists=bool(metadata.get("resourceVersion")),
        )

    async def change(
        self,
        request: Request,
        kind: ResourceType,
        target: RequestTarget,
        transform: Transform,
        *,
        manager: str,
        insists: bool,
        track: Owners | None = None,
    ) -> Answer:
        """Update an existing object. Raises `StatusError`."""
        stored = await self.change_object(
            request, kind, target, transform, manager=manager, insists=insists, track=track
        )
        return self._answer(request, kind, 200, stored)

    async def change_object(
        self,
        request: Request,
        kind: ResourceType,
        target: RequestTarget,
        transform: Transform,
        *,
        manager: str,
        insists: bool,
        track: Owners | None = None,
        scale: Transform | None = None,
    ) -> JsonObject:
        """The object after an update; webhooks are shown its `scale`, if given. Raises `StatusError`."""
        key = kind.key(target.namespace, target.name)
        for attempt in range(_TRIES):
            entry = self._context.store.collection(kind.collection).get(key)
            if entry is None:
                raise errors.not_found(kind.about(target.name))
            try:
                return await self._change_once(
                    request, kind, target, entry, transform, manager=manager, track=track, scale=scale
                )
            except _Raced:
                if insists or attempt == _TRIES - 1:
                    raise errors.modified(kind.about(target.name)) from None
        raise errors.modified(kind.about(target.name))

    async def _change_once(
        self,
        request: Request,
        kind: ResourceType,
        target: RequestTarget,
        entry: StoredObject,
        transform: Transform,
        *,
        manager: str,
        track: Owners | None,
        scale: Transform | None,
    ) -> JsonObject:
        context = self._context
        if versions.waits(kind):
            (raw,) = await self._converter.convert([entry.raw], kind)
            old = documents.load_object(raw)
        else:
            old = versions.outward(entry.parse(), kind)
        value = transform(old)
        metadata, before = value["metadata"], old["metadata"]
        _check_place(metadata, kind, target)
        _check_version(metadata.get("resourceVersion") or "", before["resourceVersion"], kind, target)
        metadata["resourceVersion"] = before["resourceVersion"]
        objects.carry(value, old)
        objects.default(value, kind, old)
        subresource = target.subresource
        request_context = RequestContext(context.stamp(), target.namespace, subresource)
        if track is not None:
            track(old, value)
        else:
            ownership.track(old, value, kind, manager=manager, subresource=subresource, now=request_context.now)
        dry_run = options.dry_run(request)
        review = Review(
            kind=kind,
            operation="UPDATE",
            user=request.user,
            namespace=target.namespace,
            name=target.name,
            value=value,
            old=old,
            subresource=subresource,
            dry_run=dry_run,
            warnings=request.warnings,
        )
        concerns = self._admission.concerns(kind, "UPDATE", "scale" if scale else subresource)
        if concerns:
            review.options = new_options("UpdateOptions", options.manager(request), dry_run=dry_run)
        if scale is None and self._admission.waits(kind, "UPDATE", subresource):
            await self._admission.mutate(review)
            value = self._after_mutation(review, kind)
            objects.carry(value, old)
        self._admission.check_escalation(review)
        kind.behaviour.prepare_update(value, old, request_context)
        if not kind.custom:
            builtin.fill_zero(kind.node, value)
        if value["metadata"].get("finalizers") != old["metadata"].get("finalizers"):
            request.warnings.extend(objects.advice(value, kind))
        causes = objects.problems(value, kind=kind, old=old) + self._problems(value, old, kind, request_context)
        if causes:
            raise errors.invalid(objects.about_given(value, target.name), causes)
        if not subresource and scale is None:
            self._allocate(value, old, kind, named=target.name)
            request.warnings.extend(kind.behaviour.warnings(value, old))
        if concerns:
            if scale is not None:
                review.value, review.old, review.subresource = scale(value), scale(old), "scale"
            await self._admission.validate(review)
        self._admission.count(review)
        if value == old:
            return old
        if dry_run:
            return value
        if _has_ended(value, kind):
            self._deleter.remove(kind, entry.key)
            return value
        return await self._store(kind, entry.key, value, expected=entry)

    def _allocate(self, value: JsonObject, old: JsonObject | None, kind: ResourceType, *, named: str) -> None:
        """Give a Service its addresses. Raises `StatusError`."""
        if kind.collection != SERVICES:
            return
        causes = self._services.allocate(value, old)
        if causes:
            raise errors.invalid(objects.about_given(value, named), causes)

    def _problems(
        self, value: JsonObject, old: JsonObject | None, kind: ResourceType, request_context: RequestContext
    ) -> list[StatusCause]:
        if kind.structural is not None:
            return validate(value, kind.structural, old=old, subresource=request_context.subresource)
        found = kind.behaviour.validate(value, old, request_context)
        if old is not None and not kind.custom and not request_context.subresource:
            found = found + immutable_fields.problems((kind.group, kind.plural), value, old)
        changed = old is None or old.get("spec") != value.get("spec")
        if kind.kind == "CustomResourceDefinition" and not found and changed:
            return self._definitions.problems(value)
        return found

    def _after_mutation(self, review: Review, kind: ResourceType) -> JsonObject:
        value = review.value
        if not isinstance(value, dict):
            raise errors.internal("a mutating webhook left no object")
        decoding.clean(value, kind, "Ignore", [])
        decoding.settle(value, kind)
        objects.default(value, kind)
        return value

    async def _store(
        self, kind: ResourceType, key: str, value: JsonObject, *, expected: StoredObject | None
    ) -> JsonObject:
        api_version = versions.storage_api_version(kind)
        shown = value
        if versions.waits(kind):
            value = await self._converter.inward(documents.copy(value), kind)
        elif value["apiVersion"] != api_version:
            value = versions.inward(dict(value), kind, api_version)
            if kind.storage_node is not None:
                # The answer is what is stored: with its defaults, but without fields that this version does not have.
                shown = versions.outward(documents.copy(value), kind)
        rows = self._context.store.collection(kind.collection)
        current = rows.get(key)
        if current is not expected:
            if expected is None:
                raise errors.already_exists(kind.about(shown["metadata"]["name"]))
            raise _Raced
        value["metadata"] = objects.ordered(value["metadata"])
        self._context.store.put(kind.collection, key, value)
        shown["metadata"] = value["metadata"]
        return shown

    def _answer(self, request: Request, kind: ResourceType, code: int, value: JsonObject) -> Answer:
        entry = self._context.store.collection(kind.collection).get(
            kind.key(value["metadata"].get("namespace", ""), value["metadata"].get("name", ""))
        )
        written = entry is not None and str(entry.version) == value["metadata"].get("resourceVersion")
        if written and entry is not None and entry.raw.startswith(kind.prefix) and not options.dry_run(request):
            raw = entry.raw
        else:
            raw = documents.dump_object(value)
        form = forms.negotiate(request)
        return Answer(code, forms.single(raw, kind, form, self._context.now()) if form.shape else raw)


class _Raced(Exception):
    """The object changed between the read and the write."""


def _has_ended(value: JsonObject, kind: ResourceType) -> bool:
    """Whether an object that is being deleted has no finalizers and no grace period left."""
    metadata = documents.metadata(value)
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if kind.collection == "namespaces":
        return not documents.child(value, "spec").get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")


def _check_place(metadata: JsonObject, kind: ResourceType, target: RequestTarget) -> None:
    """Check that name and namespace match the path. Raises `StatusError`."""
    name = metadata.get("name")
    if not name:
        raise errors.bad_request(
            f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        )
    if name != target.name:
        raise errors.bad_request(f"the name of the object ({name}) does not match the name on the URL ({target.name})")
    if not kind.namespaced:
        metadata.pop("namespace", None)
    elif (metadata.get("namespace") or target.namespace) != target.namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    else:
        metadata["namespace"] = target.namespace


def _check_version(wanted: str, current: str, kind: ResourceType, target: RequestTarget) -> None:
    """Check the resource version of a write, if it gives one or must give one. Raises `StatusError`."""
    if wanted and not wanted.isdigit():
        raise errors.StatusError(500, "", f'strconv.ParseUint: parsing "{wanted}": invalid syntax')
    if wanted in ("", "0"):
        if kind.custom or not kind.behaviour.unconditional:
            text = "Invalid value: 0: must be specified for an update"
            cause = StatusCause("FieldValueInvalid", text, "metadata.resourceVersion")
            raise errors.invalid(kind.about(target.name), [cause])
    elif wanted != current:
        raise errors.modified(kind.about(target.name))


def _is_version(text: JsonValue) -> bool:
    """Whether a new object is given with a version; one that is no number is ignored."""
    return isinstance(text, str) and text.isascii() and text.isdigit() and int(text) != 0
