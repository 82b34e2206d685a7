# SPDX-License-Identifier: Apache-2.0
"""Get, list and watch.

Owns the meaning of the parameters: resource versions, pages of a consistent snapshot, WatchList. Reads never wait
unless a conversion webhook must be called.
"""

from __future__ import annotations

import random
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.codec import documents, forms
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.errors import StatusError
from devcluster.apiserver.http.requests import Answer, Reply, Request, RequestTarget, Stream
from devcluster.apiserver.registry import selectors, versions
from devcluster.apiserver.registry.conversion import Converter
from devcluster.apiserver.registry.resources import ResourceType
from devcluster.apiserver.registry.watching import DEFAULT_SECONDS, WatchFeed
from devcluster.apiserver.schema.forms import base64_problem
from devcluster.apiserver.storage.collection import Collection, Compacted
from devcluster.apiserver.storage.entry import StoredChange, StoredObject

_EXPIRED_TOKEN: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class Reader:
    """Answers reads."""

    def __init__(self, context: ServerContext, converter: Converter) -> None:
        self._context = context
        self._converter = converter
        self.feeds: dict[WatchFeed, None] = {}  # in the order in which they began
        """The open watches."""
        self.stale: int | None = None
        """A fault on demand: gets and lists return the state of this version."""

    def get(self, request: Request, kind: ResourceType, target: RequestTarget) -> Answer:
        """One object that needs no conversion webhook. Raises `StatusError`."""
        entry = self._entry(kind, target)
        if request.query_text:
            _check_get(request.query.get("resourceVersion", ""))
        if entry is None:
            raise errors.not_found(kind.about(target.name))
        raw = entry.raw if entry.raw.startswith(kind.prefix) else versions.present(entry.raw, kind)
        form = forms.negotiate(request)
        return Answer(200, forms.single(raw, kind, form, self._context.now()) if form.shape else raw)

    async def get_converted(self, request: Request, kind: ResourceType, target: RequestTarget) -> Answer:
        """One object, converted by webhook. Raises `StatusError`."""
        entry = self._entry(kind, target)
        if entry is None:
            raise errors.not_found(kind.about(target.name))
        (raw,) = await self._converter.convert([entry.raw], kind)
        return Answer(200, forms.single(raw, kind, forms.negotiate(request), self._context.now()))

    def list_all(self, request: Request, kind: ResourceType, target: RequestTarget) -> Answer:
        """A list that needs no conversion webhook. Raises `StatusError`."""
        entries, metadata = self._select(request, kind, target)
        form = forms.negotiate(request)
        if kind.custom and not form.shape:
            metadata.setdefault("continue", "")  # lists of custom resources always have it
        prefix = kind.prefix
        items = [e.raw if e.raw.startswith(prefix) else versions.present(e.raw, kind) for e in entries]
        return Answer(200, forms.listed(items, kind, form, self._context.now(), metadata))

    async def list_converted(self, request: Request, kind: ResourceType, target: RequestTarget) -> Answer:
        """A list, converted by webhook. Raises `StatusError`."""
        entries, metadata = self._select(request, kind, target)
        items = await self._converter.convert([entry.raw for entry in entries], kind)
        form = forms.negotiate(request)
        if not form.shape:
            metadata.setdefault("continue", "")
        return Answer(200, forms.listed(items, kind, form, self._context.now(), metadata))

    def watch(self, request: Request, kind: ResourceType, target: RequestTarget) -> Reply:
        """A watch. Raises `StatusError`."""
        context, query = self._context, request.query
        selection = selectors.selection(query, kind)
        form = forms.negotiate(request)
        if target.name:
            selection = selectors.Selection(selection.labels, (*selection.fields, ("metadata.name", True, target.name)))
        collection = context.store.collection(kind.collection)
        prefix = f"{target.namespace}/" if kind.namespaced and target.namespace else ""
        version_text = query.get("resourceVersion", "")
        version = _version(version_text)
        ahead = version > context.store.version
        initial: Sequence[StoredObject] = ()
        backlog: Sequence[StoredChange] = ()
        initial_end = False
        match_rule = query.get("resourceVersionMatch", "")
        if "sendInitialEvents" in query:
            if match_rule != "NotOlderThan":
                raise _invalid_options("sendInitialEvents")
            if request.flag("sendInitialEvents"):
                if not request.flag("allowWatchBookmarks"):
                    raise _invalid_options("allowWatchBookmarks")
                if ahead:
                    return _ended_by(errors.too_large_version(version, context.store.version))
                initial = list(collection.entries(prefix=prefix))
                initial_end = True
            elif version:
                backlog = self._since(collection, version)
        elif match_rule:
            text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            causes = [errors.StatusCause("FieldValueForbidden", f"Forbidden: {text}", "resourceVersionMatch")]
            if match_rule != "NotOlderThan":
                causes.append(_unsupported_match(match_rule, '"NotOlderThan"'))
            raise _refused(causes)
        elif version == 0:
            initial = list(collection.entries(prefix=prefix))
        else:
            try:
                backlog = collection.since(version)
            except Compacted as gone:
                return _ended_by(errors.expired(f"too old resource version: {gone.requested} ({gone.oldest})"))
        seconds = number(query.get("timeoutSeconds", "")) or DEFAULT_SECONDS * (1 + random.random())
        waits = versions.waits(kind)
        feed = WatchFeed(
            context,
            kind,
            collection=collection,
            prefix=prefix,
            selection=selection,
            form=form,
            request=request,
            seconds=seconds,
            bookmarks=request.flag("allowWatchBookmarks"),
            after=version if ahead else 0,
            backlog=backlog,
            initial=initial,
            initial_end=initial_end,
            convert=(lambda raws: self._converter.convert(raws, kind)) if waits else None,
            ended=self._ended,
        )
        self.feeds[feed] = None
        return Stream(feed)

    def _ended(self, feed: WatchFeed) -> None:
        self.feeds.pop(feed, None)

    def _entry(self, kind: ResourceType, target: RequestTarget) -> StoredObject | None:
        rows = self._context.store.collection(kind.collection)
        key = kind.key(target.namespace, target.name)
        if self.stale is None:
            return rows.get(key)
        try:
            return rows.get_at(key, self.stale)
        except Compacted as gone:
            raise errors.expired("The resourceVersion for the provided list is too old.") from gone

    def _since(self, collection: Collection, version: int) -> Sequence[StoredChange]:
        try:
            return collection.since(version)
        except Compacted as gone:
            raise errors.expired(f"too old resource version: {gone.requested} ({gone.oldest})") from gone

    def _select(
        self, request: Request, kind: ResourceType, target: RequestTarget
    ) -> tuple[list[StoredObject], JsonObject]:
        context, query = self._context, request.query
        selection = selectors.selection(query, kind)
        collection = context.store.collection(kind.collection)
        prefix = f"{target.namespace}/" if kind.namespaced and target.namespace else ""
        limit = max(0, number(query.get("limit", "")))
        number(query.get("timeoutSeconds", ""))
        if "sendInitialEvents" in query:
            text = "Forbidden: sendInitialEvents is forbidden for list"
            raise _refused([errors.StatusCause("FieldValueForbidden", text, "sendInitialEvents")])
        token = query.get("continue", "")
        match_rule = query.get("resourceVersionMatch", "")
        version_text = query.get("resourceVersion", "")
        requested = _version(version_text)
        if version_text == "0" and not token:
            if match_rule == "Exact":
                text = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
                raise _refused([errors.StatusCause("FieldValueForbidden", text, "resourceVersionMatch")])
            limit = 0  # the whole snapshot in one page
        after = ""
        at: int | None = None
        shown = context.store.version
        if token:
            if version_text and version_text != "0":
                raise errors.bad_request("specifying resource version is not allowed when using continue")
            at, after = open_token(token)
            if at < 0:
                at = None
            else:
                shown = at
        else:
            if match_rule and match_rule not in ("Exact", "NotOlderThan"):
                raise _refused([_unsupported_match(match_rule, '"Exact", "NotOlderThan", ""')])
            if match_rule and not version_text:
                raise _invalid_options("resourceVersionMatch")
            if requested > context.store.version:
                raise errors.too_large_version(requested, context.store.version)
            if requested and (match_rule == "Exact" or (limit and not match_rule)):
                at = shown = requested
        if at is None and self.stale is not None:
            at = shown = self.stale
        found: list[StoredObject] = []
        more = False
        try:
            for entry in collection.entries(prefix=prefix, after=after, at=at):
                if not selection.everything and not self._matches(selection, entry, kind):
                    continue
                if limit and len(found) == limit:
                    more = True
                    break
                found.append(entry)
        except Compacted as gone:
            if not token:
                raise errors.expired("The resourceVersion for the provided list is too old.") from gone
            raise errors.expired(_EXPIRED_TOKEN, token=continue_token(-1, after)) from gone
        metadata: JsonObject = {"resourceVersion": str(shown)}
        if more:
            metadata["continue"] = continue_token(shown, found[-1].key)
            if selection.everything:
                metadata["remainingItemCount"] = collection.count(prefix=prefix, after=found[-1].key)
        return found, metadata

    def _matches(self, selection: selectors.Selection, entry: StoredObject, kind: ResourceType) -> bool:
        name = selection.name
        if name is not None and not entry.key.endswith(name):
            return False
        value = entry.parse()
        return selection.matches(versions.outward(value, kind) if kind.collection == "events" else value, kind)


def _ended_by(error: StatusError) -> Answer:
    """A watch whose only event is an error."""
    return Answer(200, b'{"type":"ERROR","object":' + documents.dump(error.document()) + b"}\n")


def _version(text: str) -> int:
    if not text:
        return 0
    try:
        found = int(text)
        if found < 0:
            raise ValueError
    except ValueError:
        raise errors.bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": '
            "invalid syntax"
        ) from None
    return found


def _check_get(text: str) -> None:
    if text and not text.isdigit():
        why = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise StatusError(500, "", why)


def number(text: str) -> int:
    """The number of a parameter; 0 if not given. Raises `StatusError`."""
    try:
        return int(text or 0)
    except ValueError:
        raise errors.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


def _invalid_options(field: str) -> StatusError:
    text = {
        "sendInitialEvents": "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        "allowWatchBookmarks": "Forbidden: sendInitialEvents requires setting allowWatchBookmarks to true",
        "resourceVersionMatch": "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
    }[field]
    cause = errors.StatusCause(
        "FieldValueForbidden", text, "resourceVersionMatch" if field != "allowWatchBookmarks" else field
    )
    return _refused([cause])


def _refused(causes: Sequence[errors.StatusCause]) -> StatusError:
    return errors.invalid(errors.About("", "meta.k8s.io", "ListOptions"), causes)


def _unsupported_match(given: str, supported: str) -> errors.StatusCause:
    text = f'Unsupported value: "{given}": supported values: {supported}'
    return errors.StatusCause("FieldValueNotSupported", text, "resourceVersionMatch")


def continue_token(version: int, key: str) -> str:
    """The token for the next page."""
    body = documents.dump({"v": "meta.k8s.io/v1", "rv": version, "start": f"{key}\u0000"})
    return urlsafe_b64encode(body).decode().rstrip("=")


def open_token(text: str) -> tuple[int, str]:
    """The version of a list and the key after which its next page begins. Raises `StatusError`."""
    try:
        value = documents.load(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return int(value["rv"]), str(value["start"]).rstrip("\u0000")
    except (ValueError, KeyError, TypeError) as error:
        why = base64_problem(text) or "encoded continue token has incorrect format"
        raise errors.bad_request(f"invalid continue token: continue key is not valid: {why}") from error
