# SPDX-License-Identifier: Apache-2.0
"""The API server: one request in, one answer out.

Owns routing, authentication, authorization, faults and the audit log around the handlers. Implements `wire.Handler`.
What needs no waiting is answered in the same turn of the event loop: a coroutine is run to its end at once when nothing
it may meet (webhooks, conversion by webhook) can make it wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from random import Random, SystemRandom
from typing import Final

from multikueue.core.clock import Clock, SystemClock
from multikueue.devcluster.apiserver import (
    audit,
    bootstrap,
    definitions,
    documents,
    errors,
    faults,
    health,
    injecting,
    versions,
)
from multikueue.devcluster.apiserver.admission import Admission
from multikueue.devcluster.apiserver.aggregation.aggregator import Aggregator, Remote
from multikueue.devcluster.apiserver.aggregation.authentication import publish
from multikueue.devcluster.apiserver.aggregation.proxying import Proxy
from multikueue.devcluster.apiserver.audit import Audit
from multikueue.devcluster.apiserver.auth import authentication
from multikueue.devcluster.apiserver.auth.authentication import Authentication
from multikueue.devcluster.apiserver.auth.escalation import Escalation
from multikueue.devcluster.apiserver.auth.rbac import Authorizer
from multikueue.devcluster.apiserver.auth.tokens import Tokens
from multikueue.devcluster.apiserver.conversion import Converter
from multikueue.devcluster.apiserver.definitions import Definitions
from multikueue.devcluster.apiserver.deleting import Deleter
from multikueue.devcluster.apiserver.discovery import Discovery
from multikueue.devcluster.apiserver.errors import StatusError
from multikueue.devcluster.apiserver.faults import Faults
from multikueue.devcluster.apiserver.hooks import Hooks
from multikueue.devcluster.apiserver.openapi import OpenApi
from multikueue.devcluster.apiserver.patching import Patcher
from multikueue.devcluster.apiserver.reading import Reader
from multikueue.devcluster.apiserver.requests import MASTERS, Answer, Reply, Request, Target, User, answer, target
from multikueue.devcluster.apiserver.resources import Registry, ResourceType
from multikueue.devcluster.apiserver.reviews import Reviews
from multikueue.devcluster.apiserver.schema import builtin
from multikueue.devcluster.apiserver.selectors import named
from multikueue.devcluster.apiserver.storage.entry import Event
from multikueue.devcluster.apiserver.storage.store import Journal, Store
from multikueue.devcluster.apiserver.subresources import Subresources
from multikueue.devcluster.apiserver.world import World
from multikueue.devcluster.apiserver.writing import Writer
from multikueue.devcluster.pki import FrontProxy

_REVIEW_GROUPS: Final = frozenset({"authentication.k8s.io", "authorization.k8s.io"})
_COLLECTIVE: Final = frozenset({"list", "watch", "deletecollection"})
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "GET": "get", "HEAD": "get"}
_WRITES: Final = {"POST": "CREATE", "PUT": "UPDATE", "PATCH": "UPDATE", "DELETE": "DELETE"}
_ALLOWED: Final = {"create": "POST", "update": "PUT", "patch": "PATCH", "get": "GET", "list": "GET", "watch": "GET"}

Logs = Callable[[Request, Target], Coroutine[object, object, Reply]]
"""What answers `pods/log`; whoever runs the pods provides it."""


class ApiServer:
    """One cluster's API, without any socket."""

    def __init__(
        self,
        *,
        signing_key: bytes,
        journal: Journal | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
        static_tokens: Mapping[str, User] | None = None,
        services: Mapping[str, str] | None = None,
        audit: Audit | None = None,
        client_ca: Path | None = None,
        proxy: FrontProxy | None = None,
    ) -> None:
        self.world = World(Store(journal), Registry(), clock or SystemClock(), rng=rng or SystemRandom())
        world = self.world
        bootstrap.populate(world)
        self.hooks = Hooks(rng=world.rng, services=services)
        self.authorizer = Authorizer(world)
        self.tokens = Tokens(world, signing_key)
        self.authentication = Authentication(tokens=self.tokens, authorizer=self.authorizer, static=static_tokens)
        self.authentication.refused = self._may_not
        self.admission = Admission(world, self.hooks)
        rights = Escalation(self.authorizer)
        self.admission.guard, self.admission.guard_creation = rights.check, rights.check_creation
        converter = Converter(self.hooks)
        self.reader = Reader(world, converter)
        self.writer = Writer(world, self.admission, converter)
        self.patcher = Patcher(world, self.writer)
        self.deleter = Deleter(world, self.admission)
        self.writer.removed = self.deleter.remove
        self.definitions = Definitions(world)
        self.writer.definition_problems = self.definitions.problems
        self.definitions.attach(self.deleter.empty)
        self.deleter.takes_over = self.definitions.begin_end
        self.admission.admit = self.definitions.admit
        self.subresources = Subresources(world, self.writer, self.deleter, self.tokens)
        self.faults = Faults(world.rng, changed=self._befall)
        self.logs: Logs | None = None
        self._reviews = Reviews(world, self.authorizer, self.tokens)
        self.aggregator = Aggregator(world, services=self.hooks.services, proxy=proxy)
        publish(world, client_ca=client_ca, proxy=proxy)
        self._proxy = Proxy(world, self.aggregator)
        self._discovery = Discovery(world.registry, self.aggregator)
        self._openapi = OpenApi(world.registry, self.aggregator)
        self._audit = audit
        world.store.listen(self._changed)

    # wire.Handler

    def handle(self, request: Request) -> Reply | Coroutine[object, object, Reply | None]:
        """The answer, or what has to be awaited for it."""
        try:
            request.user = self.authentication.user(request)
            if self.faults.rules:
                rule = self.faults.of(request)
                if rule is not None and not (
                    request.path.startswith(injecting.PATH) and MASTERS in request.user.groups
                ):
                    return self._faulty(rule, request)
            return self._route(request)
        except StatusError as error:
            return self._failed(error, request)

    def certificate_user(self, certificate: bytes) -> User | None:
        """Who a client certificate (DER) that the authority has signed belongs to."""
        return authentication.certificate_user(certificate)

    # faults that are switches

    def cut_watches(self, *, user: str = "") -> None:
        """Break all watches, or those of one client."""
        for feed in list(self.reader.feeds):
            if not user or feed.request.user.name == user:
                feed.cut()

    def compact(self) -> None:
        """Forget the history, and tell running watches that they are too old."""
        self.world.store.compact()
        for feed in list(self.reader.feeds):
            feed.fail(errors.expired("The resourceVersion for the provided watch is too old."))

    async def close(self) -> None:
        """End every watch, and give back what is open."""
        for feed in list(self.reader.feeds):
            feed.finish()
        await self._proxy.close()
        await self.aggregator.close()
        await self.hooks.close()
        self.world.store.close()

    # inside

    def _changed(self, collection: str, event: Event) -> None:
        if collection == definitions.COLLECTION and event.entry is None and event.old is not None:
            spec = event.old.parse()["spec"]
            gone = self.world.store.collection(f"{spec['names']['plural']}.{spec['group']}")
            for feed in list(self.reader.feeds):
                if feed.collection is gone:
                    feed.finish()

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
            again = self.faults.of(request)
            if again is not None:
                return await self._faulty(again, request)
        if rule.drop:
            return None
        if rule.code:
            return self._failed(faults.error(rule), request)
        try:
            found = self._route(request)
        except StatusError as error:
            return self._failed(error, request)
        return await found if isinstance(found, Coroutine) else found

    def _befall(self) -> None:
        """Do to the watches that run what the rules in force now do."""
        for feed in list(self.reader.feeds):
            rule = self.faults.of_running(feed.request)
            if rule is not None and rule.drop:
                feed.cut()
            else:
                feed.hold(held=rule is not None)

    def _route(self, request: Request) -> Reply | Coroutine[object, object, Reply | None]:
        path = request.path
        meant = target(path)
        if self.aggregator.remotes:
            remote = self._remote(path, meant)
            if remote is not None:
                return self._pass(request, meant, remote)
        if meant is None or not meant.resource:
            plain = self._plain(request, meant)
            self._note(request, plain)
            return plain
        request.target = meant
        kind = self.world.registry.find(meant.group, meant.version, meant.resource)
        method = request.method
        if kind is None:
            self._check(request, meant, self._verb(request, meant))
            if meant.group in self.world.registry.builtin_groups:
                raise errors.no_resource()
            return Answer(404, b"404 page not found\n", "text/plain; charset=utf-8")
        if kind.custom:
            misplaced = bool(meant.namespace) and not kind.namespaced
            if misplaced or (kind.namespaced and not meant.namespace and method != "GET"):
                return Answer(404, b"404 page not found\n", "text/plain; charset=utf-8")
        elif meant.namespace and not kind.namespaced and kind.plural != "namespaces":
            raise errors.no_resource()
        if kind.warning:
            request.warnings.append(kind.warning)
        request.verb = verb = self._verb(request, meant)
        self._check(request, meant, verb)
        found = self._dispatch(request, kind, meant, verb)
        if isinstance(found, Coroutine):
            if self._waits(kind, method, meant):
                return self._guarded(found, request)
            found = _run(found)
        if self._audit is not None:
            self._note(request, found)
        return found

    def _remote(self, path: str, meant: Target | None) -> Remote | None:
        """Whose the path is, if that is another server."""
        meant = target(path.removeprefix("/openapi/v3")) if path.startswith("/openapi/v3/") else meant
        return self.aggregator.remotes.get((meant.group, meant.version)) if meant is not None else None

    def _pass(self, request: Request, meant: Target | None, remote: Remote) -> Coroutine[object, object, Reply]:
        """Let another server answer what whoever asks may ask. Raises `StatusError`."""
        if meant is not None and meant.resource:
            request.target, request.verb = meant, self._verb(request, meant)
            self._check(request, meant, request.verb)
        else:
            self.authorizer.check_path(request.user, verb=request.method.lower(), path=request.path)
        return self._guarded(self._proxy.forward(request, remote), request)

    def _verb(self, request: Request, meant: Target) -> str:
        method = request.method
        watches = method == "GET" and (
            meant.watch or (bool(request.query_text) and "watch" in request.query and request.flag("watch"))
        )
        if watches and not meant.subresource:
            return "watch"
        if method == "GET" and not meant.name:
            return "list"
        if method == "DELETE":
            return "delete" if meant.name else "deletecollection"
        return _VERBS.get(method, "")

    def _may_not(self, request: Request, user: User, prefix: str) -> StatusError:
        meant = target(request.path)
        try:
            if meant is None or not meant.resource:
                self.authorizer.check_path(user, verb=f"{prefix}:{request.method.lower()}", path=request.path)
            else:
                self._check(request, meant, f"{prefix}:{self._verb(request, meant)}", user=user)
        except StatusError as error:
            return error
        return errors.unauthorized()

    def _check(self, request: Request, meant: Target, verb: str, *, user: User | None = None) -> None:
        """Raises `StatusError` unless whoever asks may do that."""
        user = user or request.user
        if MASTERS in user.groups:
            return
        name = meant.name
        if not name and verb in _COLLECTIVE and "fieldSelector" in request.query:
            name = named(request.query["fieldSelector"])
        self.authorizer.check(
            user,
            verb=verb,
            group=meant.group,
            resource=meant.resource,
            namespace=meant.namespace,
            name=name,
            sub=meant.subresource,
        )

    def _dispatch(
        self, request: Request, kind: ResourceType, meant: Target, verb: str
    ) -> Reply | Coroutine[object, object, Reply]:
        if meant.subresource:
            return self._subresource(request, kind, meant)
        if kind.group in _REVIEW_GROUPS and verb == "create":
            return self._reviews.create(request, kind, meant)
        if verb not in kind.verbs:
            raise errors.no_resource() if meant.name and "get" not in kind.verbs else errors.method_not_allowed()
        if not meant.name and verb in ("update", "patch"):
            raise errors.bad_request("name must be provided") if kind.custom else errors.method_not_allowed()
        if kind.namespaced and not meant.namespace and verb in ("create", "deletecollection"):
            raise errors.method_not_allowed()
        match verb:
            case "get":
                if versions.waits(kind):
                    return self.reader.get_converted(request, kind, meant)
                return self.reader.get(request, kind, meant)
            case "list":
                if versions.waits(kind):
                    return self.reader.list_converted(request, kind, meant)
                return self.reader.list_all(request, kind, meant)
            case "watch":
                return self.reader.watch(request, kind, meant)
            case "create":
                if meant.name and not kind.custom:
                    raise errors.method_not_allowed()
                if kind.plural == "bindings":
                    return self._bind(request, meant)
                return self.writer.create(request, kind, meant)
            case "update":
                return self.writer.replace(request, kind, meant)
            case "patch":
                return self.patcher.patch(request, kind, meant)
            case "delete":
                return self.deleter.delete(request, kind, meant)
        return self.deleter.delete_collection(request, kind, meant)

    def _bind(self, request: Request, meant: Target) -> Coroutine[object, object, Reply]:
        pods = self.world.registry.find("", "v1", "pods")
        assert pods is not None
        return self.subresources.bind(request, pods, meant)

    def _subresource(
        self, request: Request, kind: ResourceType, meant: Target
    ) -> Reply | Coroutine[object, object, Reply]:
        name, method = meant.subresource, request.method
        entry = kind.subresources.get(name)
        if entry is None:
            raise errors.not_found(kind.about(meant.name)) if kind.custom else errors.no_resource()
        if kind.custom and name == "status" and method in ("POST", "DELETE"):
            raise errors.unsupported_verb(kind.about(), "create" if method == "POST" else "delete")
        if method not in {_ALLOWED.get(verb) for verb in entry["verbs"]}:
            raise errors.method_not_allowed()
        match name:
            case "scale":
                if method == "GET":
                    return self.subresources.get_scale(request, kind, meant)
                return self.subresources.write_scale(request, kind, meant)
            case "binding":
                return self.subresources.bind(request, kind, meant)
            case "eviction":
                return self.subresources.evict(request, kind, meant)
            case "token":
                return self.subresources.issue_token(request, kind, meant)
            case "finalize":
                return self.subresources.finalize(request, kind, meant)
            case "log":
                return self._log(request, kind, meant)
        if method == "GET":
            return self.reader.get(request, kind, meant)
        if method == "PUT":
            return self.writer.replace(request, kind, meant)
        return self.patcher.patch(request, kind, meant)

    def _log(self, request: Request, kind: ResourceType, meant: Target) -> Reply | Coroutine[object, object, Reply]:
        pod = self.world.get(kind.collection, kind.key(meant.namespace, meant.name))
        if pod is None:
            raise errors.not_found(kind.about(meant.name))
        containers = [entry["name"] for entry in documents.items(pod, "spec", "containers")]
        asked = request.query.get("container", "")
        if asked and asked not in containers:
            raise errors.bad_request(f"container {asked} is not valid for pod {meant.name}")
        if not documents.child(pod, "spec").get("nodeName"):
            return Answer(200, b"", "text/plain")
        if self.logs is None:
            raise errors.internal(f"the pods of node {pod['spec']['nodeName']} are run by nobody who keeps logs")
        return self.logs(request, meant)

    def _waits(self, kind: ResourceType, method: str, meant: Target) -> bool:
        if meant.subresource == "log" or versions.waits(kind):
            return True
        operation = _WRITES.get(method)
        if operation is None:
            return False
        # An apply or a PUT may turn out to be a create.
        return self.admission.waits(kind, operation, meant.subresource) or (
            operation == "UPDATE" and self.admission.waits(kind, "CREATE", meant.subresource)
        )

    async def _guarded(self, waiting: Coroutine[object, object, Reply], request: Request) -> Reply:
        try:
            found = await waiting
        except StatusError as error:
            return self._failed(error, request)
        self._note(request, found)
        return found

    def _plain(self, request: Request, meant: Target | None) -> Reply:
        path = request.path.rstrip("/") or "/"
        self.authorizer.check_path(request.user, verb=request.method.lower(), path=path)
        if meant is not None:
            if meant.group and not self.world.registry.has(meant.group, meant.version):
                return Answer(404, b"404 page not found\n", "text/plain; charset=utf-8")
            return self._discovery.resources(meant.group, meant.version)
        parts = path.split("/")
        match parts[1]:
            case "api" if len(parts) == 2:
                return self._discovery.core(request)
            case "apis" if len(parts) == 2:
                return self._discovery.groups(request)
            case "apis" if len(parts) == 3 and self._discovery.has(parts[2]):
                return self._discovery.group(parts[2])
            case "version":
                return Answer(200, documents.dump_indented(builtin.table("version.json")))
            case "healthz" | "livez" | "readyz":
                return health.check(path, verbose="verbose" in request.query)
            case "openapi":
                if path == "/openapi/v3":
                    return self._openapi.index()
                if path == "/openapi/v2":
                    return self._openapi.v2(request)
                return self._openapi.document(path.removeprefix("/openapi/v3/"))
            case "openid" if path == "/openid/v1/jwks":
                return Answer(200, documents.dump(self.tokens.keys()), "application/jwk-set+json")
            case ".well-known" if path == "/.well-known/openid-configuration":
                return answer(200, self.tokens.configuration())
            case "faults" if MASTERS in request.user.groups:
                return injecting.respond(request, self)
            case "" if path == "/":
                return answer(200, {"paths": self._paths()})
        return Answer(404, b"404 page not found\n", "text/plain; charset=utf-8")

    def _paths(self) -> list[str]:
        found = ["/api", "/api/v1", "/apis", "/apis/", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz"]
        for group, served in self._discovery.groups_served().items():
            found += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in served)]
        return sorted([*found, "/version"])

    def _note(self, request: Request, reply: Reply) -> None:
        if self._audit is not None:
            self._audit(audit.event(request, reply, self.world))


def _run(coroutine: Coroutine[object, object, Reply]) -> Reply:
    """Run to its end what has nothing to wait for."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        found: Reply = done.value
        return found
    coroutine.close()
    raise RuntimeError(f"{coroutine!r} waited where nothing could make it wait")
