# SPDX-License-Identifier: Apache-2.0
"""Delete: preconditions, grace, finalizers, collections.

Owns what becomes of an object that is asked to go, and telling the garbage collector once it is gone. Namespaces stay
until their controller has emptied them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final
from urllib.parse import parse_qs

from multikueue.core.timestamps import format_time
from multikueue.devcluster.apiserver import decoding, documents, errors, objects, protobuf, selectors, versions
from multikueue.devcluster.apiserver.admission import Admission, Review, new_options
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.options import dry_run_problems
from multikueue.devcluster.apiserver.reading import continue_token, number, open_token
from multikueue.devcluster.apiserver.requests import Answer, Request, Target, answer
from multikueue.devcluster.apiserver.resources import ResourceType
from multikueue.devcluster.apiserver.storage.entry import Entry
from multikueue.devcluster.apiserver.world import World

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
_POLICIES: Final = ("Background", "Foreground", "Orphan")
# A real server answers the deletion of these with the object, of others with a Status.
_RETURNED: Final = frozenset(
    {"pods", "services", "resourcequotas", "serviceaccounts", "persistentvolumes", "persistentvolumeclaims"}
    | {"podtemplates", "namespaces"}
)


_JOBS: Final = "jobs.batch"
_LEFT_BEHIND: Final = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)
_FORMS: Final[dict[str, tuple[type, str]]] = {
    "gracePeriodSeconds": (int, "int64"),
    "preconditions": (dict, "v1.Preconditions"),
    "orphanDependents": (bool, "bool"),
    "propagationPolicy": (str, "v1.DeletionPropagation"),
    "dryRun": (list, "[]string"),
}


@dataclass(frozen=True, slots=True)
class _Page:
    entries: list[Entry]
    metadata: JsonObject


@dataclass(frozen=True, slots=True)
class Options:
    """How something is to be deleted."""

    policy: str = ""
    grace: int | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False


class Deleter:
    """Answers deletions."""

    def __init__(self, world: World, admission: Admission) -> None:
        self._world = world
        self._admission = admission
        self.removed: list[Callable[[ResourceType, JsonObject], None]] = []
        """Told of each object that is gone."""
        self.takes_over: Callable[[ResourceType, JsonObject, bool], bool] = lambda _kind, _value, _dry_run: False
        """Marks, and says so, what somebody else sees to the end of."""

    async def delete(self, request: Request, kind: ResourceType, target: Target) -> Answer:
        """DELETE of one object. Raises `StatusError`."""
        options = self._completed(read_options(request), kind, request)
        entry, value = await self._admitted(request, kind, target, options)
        kept = self.begin(kind, entry, value, options)
        if kept is not None:
            return answer(200, versions.outward(kept, kind))
        if kind.collection in _RETURNED:
            return answer(200, value)
        return answer(200, errors.success(kind.about(target.name, value["metadata"]["uid"])))

    def empty(self, collection: str) -> None:
        """Delete all that is in a collection; what has finalizers stays for them."""
        kind = next((kind for kind in self._world.registry.types() if kind.collection == collection), None)
        if kind is not None:
            for entry in list(self._world.store.collection(collection).entries()):
                self.begin(kind, entry, entry.parse(), Options(policy="Background"))

    async def delete_collection(self, request: Request, kind: ResourceType, target: Target) -> Answer:
        """DELETE of all that is selected. Raises `StatusError`."""
        options = self._completed(read_options(request), kind, request)
        page = self._page(request, kind, target)
        items = []
        for entry in page.entries:
            value = entry.parse()
            items.append(entry.parse())
            metadata = value["metadata"]
            one = Target(kind.group, kind.version, kind.plural, metadata.get("namespace", ""), metadata["name"])
            try:
                current, value = await self._admitted(request, kind, one, options, named=False)
            except errors.StatusError as error:
                if error.code == 404:
                    continue
                raise
            self.begin(kind, current, value, options)
        for item in items:
            versions.outward(item, kind)
            if not kind.custom:
                del item["kind"], item["apiVersion"]
        return answer(
            200, {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": page.metadata, "items": items}
        )

    def _page(self, request: Request, kind: ResourceType, target: Target) -> _Page:
        """What a deletion of many selects. Raises `StatusError`."""
        query = request.query
        selection = selectors.selection(query, kind)
        limit = max(0, number(query.get("limit", "")))
        after = open_token(query["continue"])[1] if query.get("continue") else ""
        prefix = f"{target.namespace}/" if kind.namespaced and target.namespace else ""
        rows = self._world.store.collection(kind.collection)
        found = [
            entry
            for entry in rows.entries(prefix=prefix, after=after)
            if selection.everything or selection.matches(entry.parse(), kind)
        ]
        metadata: JsonObject = {"resourceVersion": str(self._world.store.version)}
        if kind.custom:
            metadata["continue"] = ""
        if limit and len(found) > limit:
            metadata["continue"] = continue_token(self._world.store.version, found[limit - 1].key)
            if selection.everything:
                metadata["remainingItemCount"] = len(found) - limit
            found = found[:limit]
        return _Page(found, metadata)

    def _completed(self, options: Options, kind: ResourceType, request: Request) -> Options:
        """Jobs leave their pods behind, when nobody says otherwise."""
        if kind.collection != _JOBS or options.policy:
            return options
        request.warnings.append(_LEFT_BEHIND)
        return replace(options, policy="Orphan")

    def remove(self, kind: ResourceType, key: str, last: JsonObject | None = None) -> None:
        """Take an object out of the store, whatever it says; nothing happens when it is gone."""
        entry = self._world.store.collection(kind.collection).get(key)
        if entry is None:
            return
        value = versions.inward(dict(last), kind, versions.storage_api_version(kind)) if last is not None else None
        event = self._world.store.remove(kind.collection, key, value)
        for listener in self.removed:
            listener(kind, event.value())

    def begin(self, kind: ResourceType, entry: Entry, value: JsonObject, options: Options) -> JsonObject | None:
        """Delete what is stored as `entry`; the object if it stays for a while, None when it is gone."""
        metadata = value["metadata"]
        if self.takes_over(kind, value, options.dry_run):
            return value
        if kind.collection == "namespaces":
            return self._terminate(kind, entry, value, options)
        finalizers = [name for name in metadata.get("finalizers") or [] if name not in (FOREGROUND, ORPHAN)]
        given = metadata.get("finalizers") or []
        if options.policy == "Foreground":
            finalizers.append(FOREGROUND)
        elif options.policy == "Orphan":
            finalizers.append(ORPHAN)
        elif not options.policy:
            finalizers = list(given)
        grace = kind.behaviour.grace(value, options.grace)
        marked = "deletionTimestamp" in metadata
        if not finalizers and not grace:
            if not options.dry_run:
                if grace is not None:
                    # What is given a grace is told that it is over before it goes.
                    self._mark(metadata, 0)
                    if not marked and metadata.get("generation"):
                        metadata["generation"] += 1
                    self._world.store.put(kind.collection, entry.key, value)
                self.remove(kind, entry.key)
                if grace is not None:
                    metadata["resourceVersion"] = str(self._world.store.version)
            return None
        before = documents.copy(value)
        if marked:
            seconds = metadata.get("deletionGracePeriodSeconds", 0)
            if grace is not None and grace < seconds:
                self._mark(metadata, grace)
            elif grace is None and not finalizers:
                if not options.dry_run:
                    self.remove(kind, entry.key)
                return None
            elif grace is None:
                metadata["deletionGracePeriodSeconds"] = 0
        else:
            self._mark(metadata, grace or 0)
            if metadata.get("generation"):
                metadata["generation"] += 1
        if finalizers:
            metadata["finalizers"] = finalizers
        else:
            metadata.pop("finalizers", None)
        if value == before or options.dry_run:
            return value
        metadata.update(objects.ordered(metadata))
        self._world.store.put(kind.collection, entry.key, value)
        return value

    def _mark(self, metadata: JsonObject, grace: int) -> None:
        metadata["deletionTimestamp"] = format_time(self._world.now() + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace

    def _terminate(self, kind: ResourceType, entry: Entry, value: JsonObject, options: Options) -> JsonObject | None:
        metadata = value["metadata"]
        if not documents.child(value, "spec").get("finalizers") and not metadata.get("finalizers"):
            self.remove(kind, entry.key)
            return None
        if "deletionTimestamp" not in metadata:
            metadata["deletionTimestamp"] = self._world.stamp()
            value["status"] = {**documents.child(value, "status"), "phase": "Terminating"}
            if not options.dry_run:
                self._world.store.put(kind.collection, entry.key, value)
        return value

    async def _admitted(
        self, request: Request, kind: ResourceType, target: Target, options: Options, *, named: bool = True
    ) -> tuple[Entry, JsonObject]:
        rows = self._world.store.collection(kind.collection)
        entry = rows.get(kind.key(target.namespace, target.name))
        about = kind.about(target.name)
        if entry is None:
            raise errors.not_found(about)
        value = entry.parse()
        metadata = value["metadata"]
        if options.uid and options.uid != metadata["uid"]:
            text = (
                f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata['uid']}). "
                "The object might have been deleted and then recreated"
            )
            raise errors.conflict(kind.about_kind(target.name), text)
        if options.resource_version and options.resource_version != metadata["resourceVersion"]:
            text = (
                f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
                f"ResourceVersion in record ({metadata['resourceVersion']}). The object might have been modified"
            )
            raise errors.conflict(kind.about_kind(target.name), text)
        asked = new_options("DeleteOptions", "", dry_run=options.dry_run)
        if options.policy:
            asked["propagationPolicy"] = options.policy
        if options.grace is not None:
            asked["gracePeriodSeconds"] = options.grace
        review = Review(
            kind=kind,
            operation="DELETE",
            user=request.user,
            namespace=target.namespace,
            name=target.name if named else "",
            value=None,
            old=value,
            dry_run=options.dry_run,
            options=asked,
            warnings=request.warnings,
        )
        self._admission.check_namespace(review)
        if self._admission.waits(kind, "DELETE", ""):
            await self._admission.mutate(review)
            await self._admission.validate(review)
            current = rows.get(entry.key)
            if current is None:
                raise errors.not_found(about)
            entry, value = current, current.parse()
        return entry, value


def _body(request: Request) -> JsonObject:
    """The body of a deletion, read as `DeleteOptions` of any version. Raises `StatusError`."""
    if not request.body:
        return {}
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media == protobuf.MEDIA_TYPE:
        return protobuf.decode(request.body)
    if media and media not in decoding.READ:
        raise decoding.unknown_format()
    body = decoding.head(request.body, is_yaml=media.endswith("yaml")) or {}
    given = body.get("kind")
    if given and given != "DeleteOptions":
        version = body.get("apiVersion", "")
        raise errors.bad_request(
            f'no kind "{given}" is registered for version "{version}" in scheme "pkg/runtime/scheme.go:111"'
        )
    for name, (form, go_type) in _FORMS.items():
        entry = body.get(name)
        if entry is not None and (not isinstance(entry, form) or (form is int and isinstance(entry, bool))):
            where = f"Go struct field DeleteOptions.{name} of type {go_type}"
            raise errors.bad_request(f"json: cannot unmarshal {decoding.word(entry)} into {where}")
    return body


def read_options(request: Request) -> Options:
    """The options of a deletion, from its body and its parameters. Raises `StatusError`."""
    body = _body(request)
    query = request.query
    policy = body.get("propagationPolicy") or query.get("propagationPolicy") or ""
    orphan = body.get("orphanDependents", query.get("orphanDependents"))
    if orphan is not None and policy:
        text = f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be both set'
        cause = errors.Cause("FieldValueInvalid", text, "propagationPolicy")
        raise errors.invalid(errors.About("", "meta.k8s.io", "DeleteOptions"), [cause])
    if orphan is not None:
        policy = "Orphan" if orphan in (True, "true") else "Background"
    about = errors.About("", "meta.k8s.io", "DeleteOptions")
    given = parse_qs(request.query_text, keep_blank_values=True).get("dryRun", []) if "dryRun" in query else []
    wrong = dry_run_problems(body.get("dryRun") or given)
    if wrong:
        raise errors.invalid(about, wrong)
    if policy and policy not in _POLICIES:
        listed = ", ".join(f'"{name}"' for name in ("Foreground", "Background", "Orphan"))
        text = f'Unsupported value: "{policy}": supported values: {listed}, "nil"'
        raise errors.invalid(about, [errors.Cause("FieldValueNotSupported", text, "propagationPolicy")])
    grace = body.get("gracePeriodSeconds")
    if grace is None and query.get("gracePeriodSeconds"):
        try:
            grace = int(query["gracePeriodSeconds"])
        except ValueError:
            text = f'strconv.ParseInt: parsing "{query["gracePeriodSeconds"]}": invalid syntax'
            raise errors.bad_request(text) from None
    if isinstance(grace, int) and grace < 0:
        grace = 1
    preconditions = documents.child(body, "preconditions")
    dry_run = bool(body.get("dryRun") or given)
    return Options(policy, grace, preconditions.get("uid", ""), preconditions.get("resourceVersion", ""), dry_run)
