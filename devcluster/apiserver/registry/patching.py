# SPDX-License-Identifier: Apache-2.0
"""PATCH of the four types: JSON patch, merge patch, strategic merge patch and server-side apply.

Owns parsing the patch and checking the patched object. How a patch changes a document is in `patch`, how the result is
stored in `writing`.
"""

from __future__ import annotations

from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.codec import decoding, documents, grammar
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.errors import StatusCause, StatusError
from devcluster.apiserver.http.requests import Answer, Request, RequestTarget
from devcluster.apiserver.patch import json_patch, managers, strategic
from devcluster.apiserver.patch.foreign import VersionMismatch
from devcluster.apiserver.patch.forms import problem as form_problem
from devcluster.apiserver.patch.managers import ApplyConflict, FieldManager
from devcluster.apiserver.registry import options, ownership
from devcluster.apiserver.registry.resources import ResourceType
from devcluster.apiserver.registry.writing import Writer

_MERGE: Final = "application/merge-patch+json"
_JSON: Final = "application/json-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
_APPLY: Final = "application/apply-patch+yaml"
_TYPES: Final = (_JSON, _MERGE, _STRATEGIC, _APPLY)
_CUSTOM_TYPES: Final = (_JSON, _MERGE, _APPLY)


class Patcher:
    """Answers patches."""

    def __init__(self, context: ServerContext, writer: Writer) -> None:
        self._context = context
        self._writer = writer

    async def patch(self, request: Request, kind: ResourceType, target: RequestTarget) -> Answer:
        """PATCH of the four types. Raises `StatusError`."""
        media = request.headers.get("content-type", "").partition(";")[0].strip()
        accepted = _CUSTOM_TYPES if kind.custom else _TYPES
        if media not in accepted:
            listed = f"accepted media types include: {', '.join(accepted)}"
            text = f"the body of the request was in an unknown format - {listed}"
            raise StatusError(415, "UnsupportedMediaType", text) if kind.custom else errors.unsupported_media_type()
        options.check(request, applies=media == _APPLY)
        if media == _APPLY:
            return await self._apply(request, kind, target)
        body = _read(request.body, media)
        mode = decoding.validation(request)
        unused = True

        def transform(old: JsonObject) -> JsonObject:
            nonlocal unused
            # Parts of a merge patch become parts of the object, so a retry needs a new copy.
            patch, unused = body if unused else documents.load(request.body), False
            patched = _patched(old, patch, media, kind)
            if not isinstance(patched, dict):
                raise errors.rejected()
            new: JsonObject = patched
            # The object is cleaned and defaulted in place below, so it must not share changed parts with the old one.
            # Custom resources may share what the patch does not touch, at any depth of a merge.
            if not kind.custom:
                new = documents.copy(new)
            elif media == _MERGE:
                if isinstance(new.get("metadata"), dict):
                    new["metadata"] = documents.copy_fresh(new["metadata"], old["metadata"])
            else:
                new = documents.copy_fresh(new, old)
            if media == _STRATEGIC:
                new["apiVersion"], new["kind"] = kind.api_version, kind.kind
            # Metadata that the patch does not touch was validated when it was written.
            known = kind.custom and new.get("metadata") == old.get("metadata")
            sent = body if media == _STRATEGIC else None
            shared = old if kind.custom else documents.EMPTY
            _read_again(new, kind, mode, request.warnings, sent, known=known, shared=shared)
            return new

        insists = isinstance(body, dict) and bool(documents.metadata(body).get("resourceVersion"))
        manager = ownership.manager_of(request)
        return await self._writer.change(request, kind, target, transform, manager=manager, insists=insists)

    async def _apply(self, request: Request, kind: ResourceType, target: RequestTarget) -> Answer:
        manager = request.query.get("fieldManager", "")
        twice: list[str] = []
        wanted = _configuration(request, kind, twice=twice)
        named = f"{wanted['metadata'].get('namespace', '')}/{wanted['metadata'].get('name', '')}"
        problem = form_problem(wanted, kind.node)
        if problem is not None:
            shown = _group_version_kind(wanted)
            raise StatusError(500, "", f"failed to create typed patch object ({named}; {shown}): {problem}")
        mode = decoding.validation(request)
        if twice and mode == "Strict":
            listed = "\n  ".join(twice)
            why = f"error converting YAML to JSON: yaml: unmarshal errors:\n  {listed}"
            raise errors.bad_request(f"error strict decoding YAML: {why}")
        decoding.clean(wanted, kind, mode, request.warnings, twice=twice)
        force = request.flag("force")
        by = FieldManager(manager, managers.APPLY, kind.api_version, target.subresource)
        owners: dict[FieldManager, managers.Owned] = {}

        def transform(old: JsonObject) -> JsonObject:
            nonlocal owners
            current = managers.read(documents.metadata(old).get("managedFields"))
            now = self._context.stamp()
            unowned = ownership.ignored(kind, target.subresource)
            if not current and documents.metadata(old).get("uid"):
                before = FieldManager(managers.BEFORE, managers.UPDATE, kind.api_version)
                current = managers.update(
                    ownership.zero(kind), old, kind=kind.node, managers={}, by=before, now=now, ignored=unowned
                )
            try:
                new, owners = managers.apply(
                    old,
                    wanted,
                    kind=kind.node,
                    managers=current,
                    by=by,
                    now=now,
                    force=force,
                    ignored=unowned,
                    foreign=ownership.foreign(kind, current),
                )
            except VersionMismatch as error:
                raise StatusError(500, "", str(error)) from error
            except ApplyConflict as error:
                raise ownership.conflict(error) from error
            new = documents.copy_fresh(new, old) if kind.custom else documents.copy(new)
            decoding.settle(new, kind)
            return new

        def track(old: JsonObject, new: JsonObject) -> None:
            ownership.track_apply(old, new, owners)

        key = kind.key(target.namespace, target.name)
        if not self._context.exists(kind.collection, key):
            if target.subresource:
                raise errors.not_found(kind.about(target.name))
            metadata = wanted["metadata"]
            metadata.pop("resourceVersion", None)
            if metadata.get("name") != target.name or not metadata.get("name"):
                raise _misnamed(metadata.get("name"), target)
            if metadata.get("uid"):
                raise errors.conflict(
                    kind.about(target.name),
                    f"uid mismatch: the provided object specified uid {metadata['uid']}, "
                    "and no existing object was found",
                )
            value = transform({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {}})
            return await self._writer.add(request, kind, target, value, manager=manager, track=track)
        insists = bool(wanted["metadata"].get("resourceVersion"))
        return await self._writer.change(
            request, kind, target, transform, manager=manager, insists=insists, track=track
        )


def _patched(old: JsonObject, body: JsonValue, media: str, kind: ResourceType) -> JsonValue:
    try:
        if media == _MERGE:
            return json_patch.merge_patch(old, body)
        if media == _STRATEGIC:
            return strategic.strategic_patch(old, body, kind.node)
        return json_patch.json_patch(old, body)
    except json_patch.PatchMalformed as error:
        raise errors.bad_request(str(error)) from error
    except json_patch.PatchFailed as error:
        if media == _JSON:
            raise errors.rejected() from error
        raise StatusError(500, "", str(error)) from error


def _read(raw: bytes, media: str) -> JsonValue:
    """The patch. Raises `StatusError`."""
    prefix = "" if media == _STRATEGIC else "error decoding patch: "
    try:
        body = documents.load(raw)
    except ValueError as error:
        problem = grammar.json_problem(raw.decode("utf-8", "replace")) or str(error)
        raise errors.bad_request(f"{prefix}{problem}") from error
    if media != _JSON and isinstance(body, dict):
        return body
    wanted: dict[type, str] = {dict: "map[string]interface {}"}
    if media == _JSON:
        wanted = {list: "[]handlers.jsonPatchOp", dict: "handlers.jsonPatchOp"}
    items = [body, *body] if media == _JSON and isinstance(body, list) else [body]
    for item, (form, name) in zip(items, [*wanted.items()][:1] + [*wanted.items()][1:] * len(items), strict=False):
        if not isinstance(item, form):
            why = f"json: cannot unmarshal {decoding.json_type(item)} into Go value of type {name}"
            raise errors.bad_request(f"{prefix}{why}")
    return body


def _read_again(
    value: JsonObject,
    kind: ResourceType,
    mode: str,
    warnings: list[str],
    patch: JsonObject | None,
    *,
    known: bool,
    shared: JsonObject,
) -> None:
    """Clean the patched object; problems are errors of the patch. `patch` is a strategic one, if any."""
    # Only strict field validation needs the unknown fields.
    shown = documents.copy(value) if mode == "Strict" else value
    problem: str | None
    if kind.custom and not value.get("kind"):
        text = documents.dump({name: shown[name] for name in sorted(shown)}).decode()
        problem = f"Object 'Kind' is missing in '{text}'"
    else:
        problem = decoding.type_problem(value, kind)
        if problem is None:
            if not kind.custom:
                decoding.check_type(value, kind)
            problem = None if known else decoding.mismatched(value, kind, restores=patch is not None)
    if problem is None:
        texts = [f'unknown field "{path}"' for path in decoding.unknown(value, kind, shared)]
        if not known:
            decoding.settle(value, kind)
        if texts and mode == "Strict":
            problem = f"strict decoding error: {', '.join(texts)}"
        elif texts and mode != "Ignore":
            warnings.extend(texts)
    if problem is not None:
        text = documents.dump({name: shown[name] for name in sorted(shown)}).decode()
        quoted = documents.dump(text if patch is None else strategic.go_text(patch)).decode()
        cause = StatusCause("FieldValueInvalid", f"Invalid value: {quoted}: {problem}", "patch")
        raise errors.invalid(errors.About(), [cause])


def _configuration(request: Request, kind: ResourceType, *, twice: list[str]) -> JsonObject:
    """The applied configuration; `twice` collects duplicate keys. Raises `StatusError`."""
    try:
        wanted = grammar.load_yaml(request.body, twice=twice)
    except ValueError as error:
        raise errors.bad_request(f"error decoding YAML: error converting YAML to JSON: {error}") from error
    if wanted is None:
        wanted = {}
    if not isinstance(wanted, dict):
        why = f"json: cannot unmarshal {decoding.json_type(wanted)} into Go value of type map[string]interface {{}}"
        raise errors.bad_request(f"error decoding YAML: error unmarshaling JSON: while decoding JSON: {why}")
    if wanted.get("apiVersion") != kind.api_version or wanted.get("kind") != kind.kind:
        raise errors.bad_request(f"invalid object type: {_group_version_kind(wanted)}")
    if not isinstance(wanted.get("metadata"), dict):
        wanted["metadata"] = {}
    if wanted["metadata"].get("managedFields"):
        raise errors.bad_request("metadata.managedFields must be nil")
    return wanted


def _group_version_kind(value: JsonObject) -> str:
    group, _, version = str(value.get("apiVersion") or "").rpartition("/")
    return f"{group}/{version}, Kind={value.get('kind') or ''}"


def _misnamed(name: str | None, target: RequestTarget) -> StatusError:
    if not name:
        return errors.bad_request(
            f"the name of the object ({target.name} based on URL) was undeterminable: name must be provided"
        )
    return errors.bad_request(f"the name of the object ({name}) does not match the name on the URL ({target.name})")
