# SPDX-License-Identifier: Apache-2.0
"""The API server: routing, authentication, authorization, faults and the audit log around the handlers.

Owns the wiring; implements `wire.Handler`. A request that needs no webhook and no kubelet is answered in the same turn
of the event loop: its coroutine is run to the end at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from pathlib import Path
from random import Random, SystemRandom

from devcluster.apiserver import bootstrap, errors
from devcluster.apiserver.admission.admission import AdmissionChain
from devcluster.apiserver.admission.hooks import Hooks
from devcluster.apiserver.aggregation.aggregator import Aggregator, Remote
from devcluster.apiserver.aggregation.proxying import Proxy
from devcluster.apiserver.auth import authentication
from devcluster.apiserver.auth.authentication import Authentication
from devcluster.apiserver.auth.rbac import Authorizer
from devcluster.apiserver.auth.tokens import Tokens
from devcluster.apiserver.codec import documents
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.discovery.discovery import Discovery
from devcluster.apiserver.discovery.openapi import OpenApi
from devcluster.apiserver.dispatching import KUBELET_SUBRESOURCES, RequestDispatcher
from devcluster.apiserver.errors import StatusError
from devcluster.apiserver.http import audit, faults
from devcluster.apiserver.http.audit import Audit
from devcluster.apiserver.http.fair_turns import FairTurns
from devcluster.apiserver.http.faults import Faults
from devcluster.apiserver.http.nonresource import NonResourcePaths, not_found
from devcluster.apiserver.http.pod_access import Kubelets
from devcluster.apiserver.http.requests import (
    MASTERS,
    Answer,
    Reply,
    Request,
    RequestTarget,
    User,
    parse_target,
    verb_of,
)
from devcluster.apiserver.http.server_metrics import ServerMetrics
from devcluster.apiserver.registry import definitions
from devcluster.apiserver.registry.conversion import Converter
from devcluster.apiserver.registry.definitions import Definitions
from devcluster.apiserver.registry.deleting import Deleter
from devcluster.apiserver.registry.patching import Patcher
from devcluster.apiserver.registry.reading import Reader
from devcluster.apiserver.registry.resources import Registry, ResourceType
from devcluster.apiserver.registry.reviews import Reviews
from devcluster.apiserver.registry.subresources.actions import Subresources
from devcluster.apiserver.registry.subresources.evictions import Evictions
from devcluster.apiserver.registry.writing import Writer
from devcluster.apiserver.service_addresses import ServiceAddresses
from devcluster.apiserver.storage.entry import StoredChange
from devcluster.apiserver.storage.store import ObjectStore, WriteJournal
from devcluster.pki import FrontProxy
from multikueue.core.clock import Clock, SystemClock


class ApiServer:
    """One cluster's API, without any socket."""

    def __init__(
        self,
        *,
        signing_key: bytes,
        journal: WriteJournal | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
        static_tokens: Mapping[str, User] | None = None,
        services: Mapping[str, str] | None = None,
        audit: Audit | None = None,
        client_ca: Path | None = None,
        proxy: FrontProxy | None = None,
    ) -> None:
        self.context = ServerContext(
            ObjectStore(journal), Registry(), clock or SystemClock(), rng=rng or SystemRandom()
        )
        context = self.context
        bootstrap.populate(context)
        addresses = ServiceAddresses(context, services=dict(services or {}))
        self.hooks = Hooks(rng=context.rng, addresses=addresses)
        self.authorizer = Authorizer(context)
        self.tokens = Tokens(context, signing_key)
        self.authentication = Authentication(tokens=self.tokens, authorizer=self.authorizer, static=static_tokens)
        self.definitions = Definitions(context)
        self.admission = AdmissionChain(context, self.hooks, authorizer=self.authorizer, definitions=self.definitions)
        converter = Converter(self.hooks)
        self.reader = Reader(context, converter)
        self.deleter = Deleter(context, self.admission, self.definitions)
        self.writer = Writer(context, self.admission, converter, deleter=self.deleter, definitions=self.definitions)
        self.definitions.start_cleanup(self.deleter.empty)
        self._reviews = Reviews(context, self.authorizer, self.tokens)
        self._dispatcher = RequestDispatcher(
            context,
            self.authorizer,
            self.admission,
            reader=self.reader,
            writer=self.writer,
            patcher=Patcher(context, self.writer),
            deleter=self.deleter,
            subresources=Subresources(context, self.writer, self.tokens),
            evictions=Evictions(context, self.admission, self.deleter),
            reviews=self._reviews,
        )
        self.faults = Faults(context.rng, changed=self._apply_faults_to_watches)
        self.aggregator = Aggregator(context, addresses=addresses, proxy=proxy)
        bootstrap.publish_authentication(context, client_ca=client_ca, proxy=proxy)
        self._proxy = Proxy(context, self.aggregator)
        self._metrics = ServerMetrics(context, self.reader.feeds)
        self._paths = NonResourcePaths(
            context.registry,
            discovery=Discovery(context.registry, self.aggregator),
            openapi=OpenApi(context.registry, self.aggregator),
            tokens=self.tokens,
            metrics=self._metrics,
            switches=self,
        )
        self._audit = audit
        self._turns: FairTurns | None = None
        context.store.listen(self._changed)

    def take_turns(self, turns: FairTurns) -> None:
        """Let `turns` choose whose request is executed next, from now on; for a server with many clients at once."""
        self._turns = turns

    def publish_address(self, port: int) -> None:
        """Write the Service `kubernetes` with the port on which clients reach this server."""
        bootstrap.publish_address(self.context, port=port)

    def connect_kubelets(self, kubelets: Kubelets) -> None:
        """Answer logs, exec, attach, portforward and proxy with these kubelets from now on."""
        self._dispatcher.connect_kubelets(kubelets)

    # wire.Handler

    def handle(self, request: Request) -> Reply | Coroutine[object, object, Reply | None]:
        """The answer, or a coroutine that returns it."""
        try:
            request.user = self.authentication.user(request)
            if self.faults.rules:
                rule = self.faults.of(request)
                if rule is not None and not (request.path.startswith(faults.PATH) and MASTERS in request.user.groups):
                    return self._faulty(rule, request)
            return self._route(request)
        except StatusError as error:
            return self._failed(error, request)

    def certificate_user(self, certificate: bytes) -> User | None:
        """The user of a client certificate (DER) that the authority has signed."""
        return authentication.certificate_user(certificate)

    # switches for faults

    def cut_watches(self, *, user: str = "") -> None:
        """Break all watches, or those of one client."""
        for feed in list(self.reader.feeds):
            if not user or feed.request.user.name == user:
                feed.cut()

    def compact(self) -> None:
        """Forget the history, and end open watches with 410."""
        self.context.store.compact()
        for feed in list(self.reader.feeds):
            feed.fail(errors.expired("The resourceVersion for the provided watch is too old."))

    async def close(self) -> None:
        """End every watch and close every connection."""
        for feed in list(self.reader.feeds):
            feed.finish()
        await self._proxy.close()
        await self.aggregator.close()
        await self.hooks.close()
        self.context.store.close()

    def _changed(self, collection: str, event: StoredChange) -> None:
        if collection == definitions.COLLECTION and event.entry is None and event.old is not None:
            spec = event.old.parse()["spec"]
            removed = self.context.store.collection(f"{spec['names']['plural']}.{spec['group']}")
            for feed in list(self.reader.feeds):
                if feed.collection is removed:
                    feed.finish()

    def _not_found(self, request: Request) -> Answer:
        found = not_found()
        self._note(request, found)
        return found

    def _failed(self, error: StatusError, request: Request) -> Answer:
        headers = dict(error.headers)
        if error.retry_after is not None:
            headers["Retry-After"] = str(error.retry_after)
        found = Answer(error.code, documents.dump(error.document()), headers=headers)
        self._note(request, found)
        return found

    async def _faulty(self, rule: faults.Fault, request: Request) -> Reply | None:
        if rule.seconds:
            await asyncio.sleep(rule.seconds)
        if rule.hang:
            await self.faults.changed()
            next_rule = self.faults.of(request)
            if next_rule is not None:
                return await self._faulty(next_rule, request)
        if rule.drop:
            return None
        if rule.code:
            return self._failed(faults.error(rule), request)
        try:
            found = self._route(request)
        except StatusError as error:
            return self._failed(error, request)
        return await found if isinstance(found, Coroutine) else found

    def _apply_faults_to_watches(self) -> None:
        """Apply the rules in force to the open watches."""
        for feed in list(self.reader.feeds):
            rule = self.faults.of_running(feed.request)
            if rule is not None and rule.drop:
                feed.cut()
            else:
                feed.hold(held=rule is not None)

    def _route(self, request: Request) -> Reply | Coroutine[object, object, Reply | None]:
        path = request.path
        target = parse_target(path)
        if self.aggregator.remotes:
            remote = self._remote(path, target)
            if remote is not None:
                return self._proxied(request, target, remote)
        if target is None or not target.resource:
            self.authorizer.check_path(request.user, verb=request.method.lower(), path=request.path.rstrip("/") or "/")
            found = self._paths.respond(request, target)
            self._note(request, found)
            return found
        request.target = target
        kind = self.context.registry.find(target.group, target.version, target.resource)
        method = request.method
        if kind is None:
            self.authorizer.check_request(request, target, verb=verb_of(request, target), user=request.user)
            if target.group in self.context.registry.builtin_groups:
                raise errors.no_resource()
            return self._not_found(request)
        if kind.custom:
            misplaced = bool(target.namespace) and not kind.namespaced
            if misplaced or (kind.namespaced and not target.namespace and method != "GET"):
                return self._not_found(request)
        elif target.namespace and not kind.namespaced and kind.plural != "namespaces":
            raise errors.no_resource()
        if kind.warning:
            request.warnings.append(kind.warning)
        request.verb = verb = verb_of(request, target)
        self.authorizer.check_request(request, target, verb=verb, user=request.user)
        if self._turns is None or verb == "watch" or target.subresource in KUBELET_SUBRESOURCES:
            return self._execute(request, kind, target, verb)
        return self._turns.take(request.user, lambda: self._execute(request, kind, target, verb))

    def _execute(
        self, request: Request, kind: ResourceType, target: RequestTarget, verb: str
    ) -> Reply | Coroutine[object, object, Reply | None]:
        try:
            found = self._dispatcher.dispatch(request, kind, target, verb)
            if isinstance(found, Coroutine):
                if self._dispatcher.may_wait(kind, request.method, target):
                    return self._guarded(found, request)
                found = _run(found)
        except StatusError as error:
            return self._failed(error, request)
        self._note(request, found)
        return found

    def _remote(self, path: str, target: RequestTarget | None) -> Remote | None:
        """The server that serves the path, if it is another one."""
        target = parse_target(path.removeprefix("/openapi/v3")) if path.startswith("/openapi/v3/") else target
        return self.aggregator.remotes.get((target.group, target.version)) if target is not None else None

    def _proxied(
        self, request: Request, target: RequestTarget | None, remote: Remote
    ) -> Coroutine[object, object, Reply]:
        """The answer of another server, after authorization here. Raises `StatusError`."""
        if target is not None and target.resource:
            request.target, request.verb = target, verb_of(request, target)
            self.authorizer.check_request(request, target, verb=request.verb, user=request.user)
        else:
            self.authorizer.check_path(request.user, verb=request.method.lower(), path=request.path)
        return self._guarded(self._proxy.forward(request, remote), request)

    async def _guarded(self, waiting: Coroutine[object, object, Reply], request: Request) -> Reply:
        try:
            found = await waiting
        except StatusError as error:
            return self._failed(error, request)
        self._note(request, found)
        return found

    def _note(self, request: Request, reply: Reply) -> None:
        self._metrics.count(request, reply)
        if self._audit is not None:
            self._audit(audit.event(request, reply, self.context))


def _run(coroutine: Coroutine[object, object, Reply]) -> Reply:
    """Run a coroutine that has nothing to wait for, and return its result."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        found: Reply = done.value
        return found
    coroutine.close()
    raise RuntimeError(f"{coroutine!r} waited although nothing could make it wait")
