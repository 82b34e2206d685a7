# SPDX-License-Identifier: Apache-2.0
"""Delete: preconditions, grace periods, finalizers and collections.

A namespace stays until its controller has emptied it, a custom resource definition until its objects are deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.admission.admission import AdmissionChain, new_options
from devcluster.apiserver.admission.review import Review
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.http.requests import Answer, Request, RequestTarget, answer
from devcluster.apiserver.registry import objects, selectors, versions
from devcluster.apiserver.registry.definitions import Definitions
from devcluster.apiserver.registry.deletion_options import DeleteOptions, read_options
from devcluster.apiserver.registry.reading import continue_token, number, open_token
from devcluster.apiserver.registry.resources import ResourceType
from devcluster.apiserver.storage.entry import StoredObject
from multikueue.core.timestamps import format_time

FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
_LONGEST_GRACE: Final = 100 * 365 * 86_400
"""Seconds that a deletionTimestamp is in the future at most; the field is an int64, and a time has a last year."""
# The answer to a deletion of these is the object, of others a Status.
_RETURNED: Final = frozenset(
    {"pods", "services", "resourcequotas", "serviceaccounts", "persistentvolumes", "persistentvolumeclaims"}
    | {"podtemplates", "namespaces"}
    | {f"{name}.storage.k8s.io" for name in ("storageclasses", "csidrivers", "csinodes", "volumeattachments")}
    | {"volumeattributesclasses.storage.k8s.io"}
    | {f"{name}.resource.k8s.io" for name in ("deviceclasses", "resourceclaims", "resourceclaimtemplates")}
    | {"resourceslices.resource.k8s.io"}
)


_JOBS: Final = "jobs.batch"
_ORPHANING: Final = frozenset({_JOBS, "replicationcontrollers"})
"""The kinds whose deletion orphans their dependents by default."""
_LEFT_BEHIND: Final = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


@dataclass(frozen=True, slots=True)
class _Page:
    entries: list[StoredObject]
    metadata: JsonObject


class Deleter:
    """Answers deletions."""

    def __init__(self, context: ServerContext, admission: AdmissionChain, definitions: Definitions) -> None:
        self._context = context
        self._admission = admission
        self._definitions = definitions

    async def delete(self, request: Request, kind: ResourceType, target: RequestTarget) -> Answer:
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
        """Delete all objects of a collection; those with finalizers stay until these are removed."""
        kind = next((kind for kind in self._context.registry.types() if kind.collection == collection), None)
        if kind is not None:
            for entry in list(self._context.store.collection(collection).entries()):
                self.begin(kind, entry, entry.parse(), DeleteOptions(policy="Background"))

    async def delete_collection(self, request: Request, kind: ResourceType, target: RequestTarget) -> Answer:
        """DELETE of all selected objects. Raises `StatusError`."""
        options = self._completed(read_options(request), kind, request)
        page = self._page(request, kind, target)
        items = []
        for entry in page.entries:
            value = entry.parse()
            items.append(entry.parse())
            metadata = value["metadata"]
            one = RequestTarget(kind.group, kind.version, kind.plural, metadata.get("namespace", ""), metadata["name"])
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

    def _page(self, request: Request, kind: ResourceType, target: RequestTarget) -> _Page:
        """The page of objects that a deletion of a collection selects. Raises `StatusError`."""
        query = request.query
        selection = selectors.selection(query, kind)
        limit = max(0, number(query.get("limit", "")))
        after = open_token(query["continue"])[1] if query.get("continue") else ""
        prefix = f"{target.namespace}/" if kind.namespaced and target.namespace else ""
        rows = self._context.store.collection(kind.collection)
        found = [
            entry
            for entry in rows.entries(prefix=prefix, after=after)
            if selection.everything or selection.matches(entry.parse(), kind)
        ]
        metadata: JsonObject = {"resourceVersion": str(self._context.store.version)}
        if kind.custom:
            metadata["continue"] = ""
        if limit and len(found) > limit:
            metadata["continue"] = continue_token(self._context.store.version, found[limit - 1].key)
            if selection.everything:
                metadata["remainingItemCount"] = len(found) - limit
            found = found[:limit]
        return _Page(found, metadata)

    def _completed(self, options: DeleteOptions, kind: ResourceType, request: Request) -> DeleteOptions:
        """The options with the default policy of the kind; Jobs and replication controllers orphan their pods."""
        if kind.collection not in _ORPHANING or options.policy:
            return options
        if kind.collection == _JOBS:
            request.warnings.append(_LEFT_BEHIND)
        return replace(options, policy="Orphan")

    def remove(self, kind: ResourceType, key: str, last: JsonObject | None = None) -> None:
        """Remove an object from the store; does nothing if it is not there."""
        entry = self._context.store.collection(kind.collection).get(key)
        if entry is None:
            return
        value = versions.inward(dict(last), kind, versions.storage_api_version(kind)) if last is not None else None
        self._context.store.remove(kind.collection, key, value)

    def begin(
        self, kind: ResourceType, entry: StoredObject, value: JsonObject, options: DeleteOptions
    ) -> JsonObject | None:
        """Delete the object stored as `entry`; returns the object if it stays for now, None if it was removed."""
        metadata = value["metadata"]
        if self._definitions.begin_deletion(kind, value, options.dry_run):
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
            if grace is not None:
                # Kinds with a grace period are written with 0 seconds before they are removed.
                self._mark(metadata, 0)
                if not marked and metadata.get("generation"):
                    metadata["generation"] += 1
            if not options.dry_run:
                if grace is not None:
                    self._context.store.put(kind.collection, entry.key, value)
                self.remove(kind, entry.key)
                metadata["resourceVersion"] = str(self._context.store.version)
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
        self._context.store.put(kind.collection, entry.key, value)
        return value

    def _mark(self, metadata: JsonObject, grace: int) -> None:
        until = self._context.now() + timedelta(seconds=min(grace, _LONGEST_GRACE))
        metadata["deletionTimestamp"] = format_time(until)
        metadata["deletionGracePeriodSeconds"] = grace

    def _terminate(
        self, kind: ResourceType, entry: StoredObject, value: JsonObject, options: DeleteOptions
    ) -> JsonObject | None:
        metadata = value["metadata"]
        if not documents.child(value, "spec").get("finalizers") and not metadata.get("finalizers"):
            self.remove(kind, entry.key)
            return None
        if "deletionTimestamp" not in metadata:
            metadata["deletionTimestamp"] = self._context.stamp()
            value["status"] = {**documents.child(value, "status"), "phase": "Terminating"}
            if not options.dry_run:
                self._context.store.put(kind.collection, entry.key, value)
        return value

    async def _admitted(
        self, request: Request, kind: ResourceType, target: RequestTarget, options: DeleteOptions, *, named: bool = True
    ) -> tuple[StoredObject, JsonObject]:
        rows = self._context.store.collection(kind.collection)
        entry = rows.get(kind.key(target.namespace, target.name))
        about = kind.about(target.name)
        if entry is None:
            raise errors.not_found(about)
        value = entry.parse()
        metadata = value["metadata"]
        options.check_preconditions(metadata, kind.about_kind(target.name))
        delete_options = new_options("DeleteOptions", "", dry_run=options.dry_run)
        if options.policy:
            delete_options["propagationPolicy"] = options.policy
        if options.grace is not None:
            delete_options["gracePeriodSeconds"] = options.grace
        review = Review(
            kind=kind,
            operation="DELETE",
            user=request.user,
            namespace=target.namespace,
            name=target.name if named else "",
            value=None,
            old=value,
            dry_run=options.dry_run,
            options=delete_options,
            warnings=request.warnings,
        )
        self._admission.check_namespace(review)
        if self._admission.concerns(kind, "DELETE", ""):
            await self._admission.mutate(review)
            await self._admission.validate(review)
            current = rows.get(entry.key)
            if current is None:
                raise errors.not_found(about)
            entry, value = current, current.parse()
        return entry, value
