# SPDX-License-Identifier: Apache-2.0
"""Paths that name no resource: discovery, OpenAPI, health, version, token keys and the list of paths."""

from __future__ import annotations

from typing import Final

from devcluster.apiserver import errors
from devcluster.apiserver.auth.tokens import Tokens
from devcluster.apiserver.codec import documents
from devcluster.apiserver.discovery.discovery import Discovery
from devcluster.apiserver.discovery.openapi import OpenApi
from devcluster.apiserver.http import faults
from devcluster.apiserver.http.faults import Switches
from devcluster.apiserver.http.requests import MASTERS, Answer, Request, RequestTarget, answer
from devcluster.apiserver.http.server_metrics import ServerMetrics
from devcluster.apiserver.registry.resources import Registry
from devcluster.apiserver.schema import builtin

_TEXT: Final = "text/plain; charset=utf-8"
_CHECKS: Final = ("ping", "log", "etcd", "poststarthook/crd-informer-synced", "poststarthook/rbac/bootstrap-roles")
_PATHS: Final = (
    "/api",
    "/api/v1",
    "/apis",
    "/apis/",
    "/healthz",
    "/livez",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/readyz",
)
_WITH_SLASH: Final = ("", "api", "apis", "version")
"""The first segments of paths that may end with a slash."""


class NonResourcePaths:
    """Answers requests whose path names no resource."""

    def __init__(
        self,
        registry: Registry,
        *,
        discovery: Discovery,
        openapi: OpenApi,
        tokens: Tokens,
        metrics: ServerMetrics,
        switches: Switches,
    ) -> None:
        self._registry = registry
        self._discovery = discovery
        self._openapi = openapi
        self._tokens = tokens
        self._metrics = metrics
        self._switches = switches

    def respond(self, request: Request, target: RequestTarget | None) -> Answer:
        """The answer; `target` holds the group and version of a path that has them. Raises `StatusError`."""
        path = request.path.rstrip("/") or "/"
        parts = path.split("/")
        if target is not None:
            if target.group and not self._registry.has(target.group, target.version):
                return not_found()
            if len(parts) > (4 if target.group else 3):  # an empty segment, as in `/api/v1//pods`
                raise errors.no_resource()
            return self._discovery.resources(target.group, target.version)
        if path != request.path and parts[1] not in _WITH_SLASH:
            return not_found()
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
                return _health(path, verbose="verbose" in request.query)
            case "metrics" if path == "/metrics":
                return self._metrics.page()
            case "openapi":
                if path == "/openapi/v3":
                    return self._openapi.index()
                if path == "/openapi/v2":
                    return self._openapi.v2(request)
                return self._openapi.document(path.removeprefix("/openapi/v3/"))
            case "openid" if path == "/openid/v1/jwks":
                return Answer(200, documents.dump(self._tokens.keys()), "application/jwk-set+json")
            case ".well-known" if path == "/.well-known/openid-configuration":
                return answer(200, self._tokens.configuration())
            case "faults" if MASTERS in request.user.groups:
                return faults.respond(request, self._switches)
            case "" if path == "/":
                return answer(200, {"paths": self._paths()})
        return not_found()

    def _paths(self) -> list[str]:
        found = list(_PATHS)
        for group, served in self._discovery.groups_served().items():
            found += [f"/apis/{group}", *(f"/apis/{group}/{version}" for version in served)]
        return sorted([*found, "/version"])


def not_found() -> Answer:
    """The answer to a path that nothing serves."""
    return Answer(404, b"404 page not found\n", _TEXT)


def _health(path: str, *, verbose: bool) -> Answer:
    """The answer to `/healthz`, `/livez` or `/readyz`: a server that answers is healthy."""
    name, _, check = path.strip("/").partition("/")
    if check:
        return Answer(200, b"ok", _TEXT) if check in _CHECKS else not_found()
    if not verbose:
        return Answer(200, b"ok", _TEXT)
    lines = "".join(f"[+]{entry} ok\n" for entry in _CHECKS)
    return Answer(200, f"{lines}{name} check passed\n".encode(), _TEXT)
