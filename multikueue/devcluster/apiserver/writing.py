# SPDX-License-Identifier: Apache-2.0
"""Create, update, patch and apply.

Owns the order of steps in which Kubernetes writes an object: read, default, track owners, admission, prepare, validate,
store. Promises that a write that changes nothing is no write, and that one which lost a race is tried again when the
client did not insist on a version. Only webhooks make it wait, and what was read before a wait is compared afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from multikueue.devcluster.apiserver import documents, errors, forms, objects, versions
from multikueue.devcluster.apiserver.admission import Admission, Review, new_options
from multikueue.devcluster.apiserver.conversion import Converter
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.errors import Cause, StatusError
from multikueue.devcluster.apiserver.kinds.behaviour import Occasion
from multikueue.devcluster.apiserver.patch import json_patch, managers, strategic
from multikueue.devcluster.apiserver.patch.managers import ApplyConflict, Manager
from multikueue.devcluster.apiserver.requests import Answer, Request, Target
from multikueue.devcluster.apiserver.resources import ResourceType
from multikueue.devcluster.apiserver.schema import builtin
from multikueue.devcluster.apiserver.schema.validate import quoted, validate
from multikueue.devcluster.apiserver.storage.entry import Entry
from multikueue.devcluster.apiserver.world import World

_TRIES: Final = 5
_MERGE: Final = "application/merge-patch+json"
_JSON: Final = "application/json-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_APPLY: Final = ("application/apply-patch+yaml", "application/apply-patch+json")
_MAX_MANAGER: Final = 128

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
        self.removed: Callable[[ResourceType, str, JsonObject], None] | None = None
        """Called instead of storing when an update took the last finalizer of an object that is being deleted."""

    async def create(self, request: Request, kind: ResourceType, target: Target) -> Answer:
        """POST. Raises `StatusError`."""
        _check_options(request)
        value = objects.read(request, kind)
        return await self.add(request, kind, target, value, manager=manager_of(request))

    async def add(
        self, request: Request, kind: ResourceType, target: Target, value: JsonObject, *, manager: str
    ) -> Answer:
        """Store a new object that has been read already. Raises `StatusError`."""
        stored = await self.add_object(request, kind, target, value, manager=manager)
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
            dry_run=_dry_run(request),
            options=new_options("CreateOptions", manager, dry_run=_dry_run(request)),
            warnings=request.warnings,
        )
        self._admission.check_namespace(review)
        objects.default(value, kind)
        if track is not None:
            track({}, value)
        else:
            self._track({}, value, kind, manager, "")
        self._admission.complete(review)
        if self._admission.waits(kind, "CREATE", ""):
            await self._admission.mutate(review)
            value = self._after_mutation(review, kind)
        occasion = Occasion(world.stamp(), target.namespace)
        kind.behaviour.prepare_create(value, occasion)
        if not kind.custom:
            builtin.fill_zero(kind.node, value)
        causes = objects.problems(value, kind=kind) + self._problems(value, None, kind, occasion)
        if causes:
            raise errors.invalid(kind.about_kind(name or value["metadata"].get("generateName", "")), causes)
        if self._admission.waits(kind, "CREATE", ""):
            await self._admission.validate(review)
        self._admission.count(review)
        key = kind.key(target.namespace, name)
        if world.exists(kind.collection, key):
            raise errors.already_exists(kind.about(name))
        if _dry_run(request):
            value["metadata"] = objects.ordered(value["metadata"])
            return value
        return await self._store(kind, key, value, expected=None)

    async def replace(self, request: Request, kind: ResourceType, target: Target) -> Answer:
        """PUT. Raises `StatusError`."""
        _check_options(request)
        value = objects.read(request, kind)
        metadata = value["metadata"]
        name = metadata.get("name")
        if not name:
            metadata["name"] = target.name
            if not kind.custom and name is None:
                raise errors.bad_request(
                    "the name of the object ( based on URL) was undeterminable: name must be provided"
                )
        elif name != target.name:
            raise errors.bad_request(
                f"the name of the object ({name}) does not match the name on the URL ({target.name})"
            )
        if kind.namespaced:
            given = metadata.setdefault("namespace", target.namespace)
            if given != target.namespace:
                raise errors.bad_request(
                    f"the namespace of the object ({given}) does not match the namespace on the URL "
                    f"({target.namespace})"
                )
        manager = manager_of(request)
        if not target.subresource and kind.behaviour.creates_on_update:
            key = kind.key(target.namespace, target.name)
            if not self._world.exists(kind.collection, key) and not metadata.get("resourceVersion"):
                return await self.add(request, kind, target, value, manager=manager)
        needs_version = not kind.behaviour.unconditional or (kind.custom and not target.subresource)
        if (
            needs_version
            and not metadata.get("resourceVersion")
            and self._world.exists(kind.collection, kind.key(target.namespace, target.name))
        ):
            cause = Cause(
                "FieldValueInvalid", "Invalid value: 0: must be specified for an update", "metadata.resourceVersion"
            )
            raise errors.invalid(kind.about_kind(target.name), [cause])
        return await self.change(
            request,
            kind,
            target,
            lambda _: documents.copy(value),
            manager=manager,
            insists=bool(metadata.get("resourceVersion")),
        )

    async def patch(self, request: Request, kind: ResourceType, target: Target) -> Answer:
        """PATCH of the four types. Raises `StatusError`."""
        _check_options(request)
        media = request.headers.get("content-type", "").partition(";")[0].strip()
        if media in _APPLY:
            return await self._apply(request, kind, target)
        if media not in (_MERGE, _JSON, _STRATEGIC) or (media == _STRATEGIC and kind.custom):
            raise errors.unsupported_media_type(
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml, "
                "application/apply-patch+cbor"
                if media == _STRATEGIC
                else "415: Unsupported Media Type"
            )
        try:
            body = documents.load(request.body)
        except ValueError as error:
            raise errors.bad_request(f"error decoding patch: {error}") from error
        if media != _JSON and not isinstance(body, dict):
            raise errors.bad_request("json: cannot unmarshal array into Go value of type map[string]interface {}")
        mode = objects.validation(request)

        def transform(old: JsonObject) -> JsonObject:
            try:
                if media == _MERGE:
                    new = json_patch.merge_patch(old, body)
                elif media == _STRATEGIC:
                    new = strategic.strategic_patch(old, body, kind.node)
                else:
                    new = json_patch.json_patch(old, body)
            except json_patch.PatchFailed as error:
                if media == _JSON:
                    raise errors.rejected() from error
                raise errors.bad_request(str(error)) from error
            if not isinstance(new, dict):
                raise errors.rejected()
            # What is cleaned and defaulted in place below must not be the old object's.
            new = documents.copy(new)
            if not isinstance(new.get("metadata"), dict):
                new["metadata"] = {}
            objects.check_type(new, kind)
            objects.clean(new, kind, mode, request.warnings)
            return new

        insists = isinstance(body, dict) and bool(documents.metadata(body).get("resourceVersion"))
        return await self.change(request, kind, target, transform, manager=manager_of(request), insists=insists)

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
        world, about = self._world, kind.about(target.name)
        if versions.waits(kind):
            (raw,) = await self._converter.convert([entry.raw], kind)
            old = documents.load_object(raw)
        else:
            old = versions.outward(entry.parse(), kind)
        value = transform(old)
        metadata, before = value["metadata"], old["metadata"]
        if metadata.get("name", target.name) != target.name:
            cause = Cause(
                "FieldValueInvalid", f"Invalid value: {quoted(metadata['name'])}: field is immutable", "metadata.name"
            )
            raise errors.invalid(kind.about_kind(target.name), [cause])
        wanted = metadata.get("resourceVersion")
        if wanted and wanted != "0" and wanted != before["resourceVersion"]:
            raise errors.modified(about)
        uid = metadata.get("uid")
        if uid and uid != before["uid"]:
            raise errors.conflict(
                about, f"Precondition failed: UID in precondition: {uid}, UID in object meta: {before['uid']}"
            )
        metadata["resourceVersion"] = before["resourceVersion"]
        objects.carry(value, old)
        objects.default(value, kind)
        subresource = target.subresource
        if track is not None:
            track(old, value)
        else:
            self._track(old, value, kind, manager, subresource)
        review = Review(
            kind=kind,
            operation="UPDATE",
            user=request.user,
            namespace=target.namespace,
            name=target.name,
            value=value,
            old=old,
            subresource=subresource,
            dry_run=_dry_run(request),
            options=new_options("UpdateOptions", manager, dry_run=_dry_run(request)),
            warnings=request.warnings,
        )
        waits = self._admission.waits(kind, "UPDATE", subresource)
        occasion = Occasion(world.stamp(), target.namespace, subresource)
        if waits:
            await self._admission.mutate(review)
            value = self._after_mutation(review, kind)
            objects.carry(value, old)
        kind.behaviour.prepare_update(value, old, occasion)
        if not kind.custom:
            builtin.fill_zero(kind.node, value)
        causes = objects.problems(value, kind=kind, old=old) + self._problems(value, old, kind, occasion)
        if causes:
            raise errors.invalid(kind.about_kind(target.name), causes)
        if waits:
            await self._admission.validate(review)
        if value == old:
            return old
        if _dry_run(request):
            return value
        if self.removed is not None and _has_ended(value, kind):
            self.removed(kind, entry.key, value)
            return value
        return await self._store(kind, entry.key, value, expected=entry)

    async def _apply(self, request: Request, kind: ResourceType, target: Target) -> Answer:
        manager = request.query.get("fieldManager", "")
        if not manager:
            cause = Cause("FieldValueRequired", "Required value: is required for apply patch", "fieldManager")
            raise errors.invalid(errors.About("", "meta.k8s.io", "PatchOptions"), [cause])
        wanted = objects.decode(Request("PATCH", request.path, "", {"content-type": "application/yaml"}, request.body))
        if not isinstance(wanted, dict):
            raise errors.bad_request("error decoding YAML: the apply patch is no object")
        for field in ("apiVersion", "kind"):
            if not wanted.get(field):
                raise errors.bad_request(
                    f"Object '{field.title()}' is missing in '{request.body.decode(errors='replace')}'"
                )
        if not isinstance(wanted.get("metadata"), dict):
            wanted["metadata"] = {}
        if wanted["metadata"].get("managedFields"):
            raise errors.bad_request("metadata.managedFields must be nil")
        objects.check_type(wanted, kind)
        objects.clean(wanted, kind, objects.validation(request), request.warnings)
        if wanted["metadata"].setdefault("name", target.name) != target.name:
            raise errors.bad_request(
                f"the name of the object ({wanted['metadata']['name']}) does not match the name on the URL "
                f"({target.name})"
            )
        force = request.flag("force")
        by = Manager(manager, managers.APPLY, kind.api_version, target.subresource)
        owners: dict[Manager, managers.Owned] = {}

        def transform(old: JsonObject) -> JsonObject:
            nonlocal owners
            try:
                new, owners = managers.apply(
                    old,
                    wanted,
                    kind=kind.node,
                    managers=managers.read(documents.metadata(old).get("managedFields")),
                    by=by,
                    now=self._world.stamp(),
                    force=force,
                    ignored=_ignored(kind, target.subresource),
                )
            except ApplyConflict as error:
                raise _apply_conflict(error) from error
            return documents.copy(new)

        def track(old: JsonObject, new: JsonObject) -> None:
            current = managers.read(documents.metadata(old).get("managedFields"))
            metadata = new["metadata"]
            if _same_but_times(current, owners) and _same_content(old, new):
                metadata["managedFields"] = documents.metadata(old).get("managedFields", [])
            else:
                metadata["managedFields"] = managers.write(owners)
            if not metadata["managedFields"]:
                del metadata["managedFields"]

        key = kind.key(target.namespace, target.name)
        if not self._world.exists(kind.collection, key):
            if target.subresource:
                raise errors.not_found(kind.about(target.name))
            if wanted["metadata"].get("uid"):
                raise errors.conflict(
                    kind.about(target.name),
                    f"uid mismatch: the provided object specified uid {wanted['metadata']['uid']}, "
                    "and no existing object was found",
                )
            value = transform({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}})
            stored = await self.add_object(request, kind, target, value, manager=manager, track=track)
            return self._answer(request, kind, 201, stored)
        insists = bool(wanted["metadata"].get("resourceVersion"))
        return await self.change(request, kind, target, transform, manager=manager, insists=insists, track=track)

    def _track(self, old: JsonObject, value: JsonObject, kind: ResourceType, manager: str, subresource: str) -> None:
        metadata = value["metadata"]
        given = metadata.get("managedFields")
        before = documents.metadata(old).get("managedFields")
        if isinstance(given, list) and (given == [] or given == [{}]) and old:
            metadata.pop("managedFields", None)
            return
        base = managers.read(given) or managers.read(before)
        by = Manager(manager, managers.UPDATE, kind.api_version, subresource)
        start = old or self._zero(kind)
        owners = managers.update(
            start,
            value,
            kind=kind.node,
            managers=base,
            by=by,
            now=self._world.stamp(),
            ignored=_ignored(kind, subresource),
        )
        if owners == base and before is not None and old:
            metadata["managedFields"] = before
            return
        found = managers.write(owners)
        if found:
            metadata["managedFields"] = found
        else:
            metadata.pop("managedFields", None)

    def _zero(self, kind: ResourceType) -> JsonObject:
        return {} if kind.custom else builtin.fill_zero(kind.node, {"metadata": {}})

    def _problems(
        self, value: JsonObject, old: JsonObject | None, kind: ResourceType, occasion: Occasion
    ) -> list[Cause]:
        if kind.structural is not None:
            return validate(value, kind.structural, old=old)
        found = kind.behaviour.validate(value, old, occasion)
        changed = old is None or old.get("spec") != value.get("spec")
        if kind.kind == "CustomResourceDefinition" and self.definition_problems is not None and not found and changed:
            return self.definition_problems(value)
        return found

    def _after_mutation(self, review: Review, kind: ResourceType) -> JsonObject:
        value = review.value
        if not isinstance(value, dict):
            raise errors.internal("a mutating webhook left no object")
        objects.clean(value, kind, "Ignore", [])
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
        if written and entry is not None and entry.raw.startswith(kind.prefix) and not _dry_run(request):
            raw = entry.raw
        else:
            raw = documents.dump_object(value)
        form = forms.negotiate(request)
        return Answer(code, forms.single(raw, kind, form, self._world.now()))


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


def _ignored(kind: ResourceType, subresource: str) -> JsonObject | None:
    if subresource == "status":
        return kind.behaviour.ignored_by_status
    return kind.behaviour.ignored_by_main


def _same_but_times(left: dict[Manager, managers.Owned], right: dict[Manager, managers.Owned]) -> bool:
    return left.keys() == right.keys() and all(left[manager].fields == right[manager].fields for manager in left)


def _same_content(old: JsonObject, new: JsonObject) -> bool:
    def bare(value: JsonObject) -> JsonObject:
        metadata = {k: v for k, v in documents.metadata(value).items() if k not in ("managedFields", "resourceVersion")}
        return {**value, "metadata": metadata}

    return bare(old) == bare(new)


def _apply_conflict(error: ApplyConflict) -> StatusError:
    conflicts = error.conflicts
    by_manager: dict[str, list[str]] = {}
    for conflict in conflicts:
        by_manager.setdefault(conflict.manager.description, []).append(conflict.path)
    causes = [
        Cause("FieldManagerConflict", f"conflict with {conflict.manager.description}", conflict.path)
        for conflict in conflicts
    ]
    if len(conflicts) == 1:
        text = f"conflict with {conflicts[0].manager.description}: {conflicts[0].path}"
        return StatusError(409, "Conflict", f"Apply failed with 1 conflict: {text}", errors.About(), causes)
    parts = [
        f"conflicts with {description}:\n" + "\n".join(f"- {path}" for path in paths)
        for description, paths in sorted(by_manager.items())
    ]
    text = f"Apply failed with {len(conflicts)} conflicts: " + "\n".join(parts)
    return StatusError(409, "Conflict", text, errors.About(), causes)


def manager_of(request: Request) -> str:
    """Who writes: what the request says, else what the client calls itself. Raises `StatusError`."""
    found = request.query.get("fieldManager", "")
    if len(found) > _MAX_MANAGER:
        cause = Cause("FieldValueTooLong", f"Too long: may not be more than {_MAX_MANAGER} bytes", "fieldManager")
        raise errors.invalid(errors.About("", "meta.k8s.io", f"{request.method.title()}Options"), [cause])
    return found or request.headers.get("user-agent", "").partition("/")[0][:_MAX_MANAGER] or "unknown"


def _dry_run(request: Request) -> bool:
    return bool(request.query_text) and "All" in request.query.get("dryRun", "")


def _check_options(request: Request) -> None:
    if not request.query_text:
        return
    query = request.query
    options = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}.get(request.method, "")
    causes = []
    if query.get("dryRun", "All") not in ("All", ""):
        causes.append(
            Cause(
                "FieldValueNotSupported", f'Unsupported value: ["{query["dryRun"]}"]: supported values: "All"', "dryRun"
            )
        )
    if query.get("fieldValidation", "Strict") not in ("Ignore", "Warn", "Strict", ""):
        text = f'Unsupported value: "{query["fieldValidation"]}": supported values: "Ignore", "Strict", "Warn"'
        causes.append(Cause("FieldValueNotSupported", text, "fieldValidation"))
    if causes:
        raise errors.invalid(errors.About("", "meta.k8s.io", options), causes)
