# SPDX-License-Identifier: Apache-2.0
"""Create and update.

Owns the order of steps in which Kubernetes writes an object: read, default, track owners, admission, prepare, validate,
store. Promises that a write that changes nothing is no write, and that one which lost a race is tried again when the
client did not insist on a version. Only webhooks make it wait, and what was read before a wait is compared afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from multikueue.devcluster.apiserver import (
    decoding,
    documents,
    errors,
    forms,
    objects,
    options,
    ownership,
    versions,
)
from multikueue.devcluster.apiserver.admission import Admission, Review, new_options
from multikueue.devcluster.apiserver.conversion import Converter
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.errors import Cause
from multikueue.devcluster.apiserver.kinds.behaviour import Occasion
from multikueue.devcluster.apiserver.requests import Answer, Request, Target
from multikueue.devcluster.apiserver.resources import ResourceType
from multikueue.devcluster.apiserver.schema import builtin
from multikueue.devcluster.apiserver.schema.validate import validate
from multikueue.devcluster.apiserver.storage.entry import Entry
from multikueue.devcluster.apiserver.world import World

_TRIES: Final = 5

Transform = Callable[[JsonObject], JsonObject]
"""From the object as it is to the object as it is wanted."""
Owners = Callable[[JsonObject, JsonObject], None]


class Writer:
    """Answers writes."""

    def __init__(self, world: World, admission: Admission, converter: Converter) -> None:
        self._world = world
        self._admission = admission
        self._converter = converter
        self.definition_problems: Callable[[JsonObject], list[Cause]] | None = None
        """Looks at the schemas of a custom resource definition."""
        self.removed: Callable[[ResourceType, str], None] | None = None
        """Called instead of storing when an update took the last finalizer of an object that is being deleted."""

    async def create(self, request: Request, kind: ResourceType, target: Target) -> Answer:
        """POST. Raises `StatusError`."""
        options.check(request)
        value = decoding.read(request, kind)
        return await self.add(request, kind, target, value, manager=ownership.manager_of(request))

    async def add(
        self,
        request: Request,
        kind: ResourceType,
        target: Target,
        value: JsonObject,
        *,
        manager: str,
        track: Owners | None = None,
    ) -> Answer:
        """Store a new object that has been read already. Raises `StatusError`."""
        stored = await self.add_object(request, kind, target, value, manager=manager, track=track)
        return self._answer(request, kind, 201, stored)

    async def add_object(
        self,
        request: Request,
        kind: ResourceType,
        target: Target,
        value: JsonObject,
        *,
        manager: str,
        track: Owners | None = None,
    ) -> JsonObject:
        """The new object as it was stored. Raises `StatusError`."""
        world = self._world
        objects.begin(value, kind=kind, namespace=target.namespace, now=world.stamp(), rng=world.rng)
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
            self._admission.guard_creation(review)
        self._admission.check_namespace(review)
        objects.default(value, kind)
        if track is not None:
            track({}, value)
        else:
            ownership.track({}, value, kind, manager=manager, subresource="", now=world.stamp())
        self._admission.complete(review)
        if self._admission.waits(kind, "CREATE", ""):
            await self._admission.mutate(review)
            value = self._after_mutation(review, kind)
        self._admission.guard(review)
        occasion = Occasion(world.stamp(), target.namespace, requester=request.user.document())
        kind.behaviour.prepare_create(value, occasion)
        if not kind.custom:
            builtin.fill_zero(kind.node, value)
        request.warnings.extend(objects.advice(value, kind))
        causes = objects.problems(value, kind=kind) + self._problems(value, None, kind, occasion)
        if causes:
            named = name or value["metadata"].get("generateName", "")
            raise errors.invalid(objects.about_given(value, named), causes)
        if self._admission.waits(kind, "CREATE", ""):
            await self._admission.validate(review)
        self._admission.count(review)
        key = kind.key(target.namespace, name)
        present = world.get(kind.collection, key)
        if present is not None:
            raise errors.already_exists(kind.about(name), going="deletionTimestamp" in present["metadata"])
        if options.dry_run(request):
            value["metadata"] = objects.ordered(value["metadata"])
            return value
        return await self._store(kind, key, value, expected=None)

    async def replace(self, request: Request, kind: ResourceType, target: Target) -> Answer:
        """PUT. Raises `StatusError`."""
        options.check(request)
        value = decoding.read(request, kind)
        metadata = value["metadata"]
        _check_place(metadata, kind, target)
        manager = ownership.manager_of(request)
        key = kind.key(target.namespace, target.name)
        entry = self._world.store.collection(kind.collection).get(key)
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
        target: Target,
        transform: Transform,
        *,
        manager: str,
        insists: bool,
        track: Owners | None = None,
    ) -> Answer:
        """Update an object that is there. Raises `StatusError`."""
        stored = await self.change_object(
            request, kind, target, transform, manager=manager, insists=insists, track=track
        )
        return self._answer(request, kind, 200, stored)

    async def change_object(
        self,
        request: Request,
        kind: ResourceType,
        target: Target,
        transform: Transform,
        *,
        manager: str,
        insists: bool,
        track: Owners | None = None,
    ) -> JsonObject:
        """The object after an update. Raises `StatusError`."""
        key = kind.key(target.namespace, target.name)
        for attempt in range(_TRIES):
            entry = self._world.store.collection(kind.collection).get(key)
            if entry is None:
                raise errors.not_found(kind.about(target.name))
            try:
                return await self._change_once(request, kind, target, entry, transform, manager=manager, track=track)
            except _Raced:
                if insists or attempt == _TRIES - 1:
                    raise errors.modified(kind.about(target.name)) from None
        raise errors.modified(kind.about(target.name))

    async def _change_once(
        self,
        request: Request,
        kind: ResourceType,
        target: Target,
        entry: Entry,
        transform: Transform,
        *,
        manager: str,
        track: Owners | None,
    ) -> JsonObject:
        world = self._world
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
        occasion = Occasion(world.stamp(), target.namespace, subresource)
        if track is not None:
            track(old, value)
        else:
            ownership.track(old, value, kind, manager=manager, subresource=subresource, now=occasion.now)
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
        waits = self._admission.waits(kind, "UPDATE", subresource)
        if waits:
            review.options = new_options("UpdateOptions", options.manager(request), dry_run=dry_run)
            await self._admission.mutate(review)
            value = self._after_mutation(review, kind)
            objects.carry(value, old)
        self._admission.guard(review)
        kind.behaviour.prepare_update(value, old, occasion)
        if not kind.custom:
            builtin.fill_zero(kind.node, value)
        if value["metadata"].get("finalizers") != old["metadata"].get("finalizers"):
            request.warnings.extend(objects.advice(value, kind))
        causes = objects.problems(value, kind=kind, old=old) + self._problems(value, old, kind, occasion)
        if causes:
            raise errors.invalid(objects.about_given(value, target.name), causes)
        if waits:
            await self._admission.validate(review)
        if value == old:
            return old
        if dry_run:
            return value
        if self.removed is not None and _has_ended(value, kind):
            self.removed(kind, entry.key)
            return value
        return await self._store(kind, entry.key, value, expected=entry)

    def _problems(
        self, value: JsonObject, old: JsonObject | None, kind: ResourceType, occasion: Occasion
    ) -> list[Cause]:
        if kind.structural is not None:
            return validate(value, kind.structural, old=old, subresource=occasion.subresource)
        found = kind.behaviour.validate(value, old, occasion)
        changed = old is None or old.get("spec") != value.get("spec")
        if kind.kind == "CustomResourceDefinition" and self.definition_problems is not None and not found and changed:
            return self.definition_problems(value)
        return found

    def _after_mutation(self, review: Review, kind: ResourceType) -> JsonObject:
        value = review.value
        if not isinstance(value, dict):
            raise errors.internal("a mutating webhook left no object")
        decoding.clean(value, kind, "Ignore", [])
        decoding.settle(value, kind)
        objects.default(value, kind)
        return value

    async def _store(self, kind: ResourceType, key: str, value: JsonObject, *, expected: Entry | None) -> JsonObject:
        api_version = versions.storage_api_version(kind)
        shown = value
        if versions.waits(kind):
            value = await self._converter.inward(documents.copy(value), kind)
        elif value["apiVersion"] != api_version:
            value = versions.inward(dict(value), kind, api_version)
        rows = self._world.store.collection(kind.collection)
        current = rows.get(key)
        if current is not expected:
            if expected is None:
                raise errors.already_exists(kind.about(shown["metadata"]["name"]))
            raise _Raced
        value["metadata"] = objects.ordered(value["metadata"])
        self._world.store.put(kind.collection, key, value)
        shown["metadata"] = value["metadata"]
        return shown

    def _answer(self, request: Request, kind: ResourceType, code: int, value: JsonObject) -> Answer:
        entry = self._world.store.collection(kind.collection).get(
            kind.key(value["metadata"].get("namespace", ""), value["metadata"].get("name", ""))
        )
        written = entry is not None and str(entry.version) == value["metadata"].get("resourceVersion")
        if written and entry is not None and entry.raw.startswith(kind.prefix) and not options.dry_run(request):
            raw = entry.raw
        else:
            raw = documents.dump_object(value)
        form = forms.negotiate(request)
        return Answer(code, forms.single(raw, kind, form, self._world.now()) if form.shape else raw)


class _Raced(Exception):
    """Somebody wrote between our reading and our storing."""


def _has_ended(value: JsonObject, kind: ResourceType) -> bool:
    """Whether nothing holds an object any more that is being deleted."""
    metadata = documents.metadata(value)
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if kind.collection == "namespaces":
        return not documents.child(value, "spec").get("finalizers")
    return not metadata.get("deletionGracePeriodSeconds")


def _check_place(metadata: JsonObject, kind: ResourceType, target: Target) -> None:
    """What is written must be what the path addresses. Raises `StatusError`."""
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


def _check_version(wanted: str, current: str, kind: ResourceType, target: Target) -> None:
    """A write insists on a version, or need not. Raises `StatusError`."""
    if wanted and not wanted.isdigit():
        raise errors.StatusError(500, "", f'strconv.ParseUint: parsing "{wanted}": invalid syntax')
    if wanted in ("", "0"):
        if kind.custom or not kind.behaviour.unconditional:
            text = "Invalid value: 0: must be specified for an update"
            cause = Cause("FieldValueInvalid", text, "metadata.resourceVersion")
            raise errors.invalid(kind.about(target.name), [cause])
    elif wanted != current:
        raise errors.modified(kind.about(target.name))
