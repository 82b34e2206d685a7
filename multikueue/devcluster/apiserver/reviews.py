# SPDX-License-Identifier: Apache-2.0
"""Reviews: objects that are asked and answered and never stored."""

from __future__ import annotations

from multikueue.devcluster.apiserver import decoding, documents, errors
from multikueue.devcluster.apiserver.auth.rbac import Authorizer
from multikueue.devcluster.apiserver.auth.tokens import ISSUER, Tokens
from multikueue.devcluster.apiserver.documents import JsonObject
from multikueue.devcluster.apiserver.requests import Answer, Request, Target, User, answer
from multikueue.devcluster.apiserver.resources import ResourceType
from multikueue.devcluster.apiserver.world import World


class Reviews:
    """Answers reviews."""

    def __init__(self, world: World, authorizer: Authorizer, tokens: Tokens) -> None:
        self._world = world
        self._authorizer = authorizer
        self._tokens = tokens

    def create(self, request: Request, kind: ResourceType, target: Target) -> Answer:
        """POST of a review. Raises `StatusError`."""
        body = decoding.read(request, kind)
        spec = documents.child(body, "spec")
        match kind.kind:
            case "SelfSubjectReview":
                body = {"metadata": {"creationTimestamp": self._world.stamp()}}
                body["status"] = {"userInfo": request.user.document()}
            case "SelfSubjectAccessReview":
                body["status"] = self._access(request.user, spec)
            case "SubjectAccessReview" | "LocalSubjectAccessReview":
                if not spec.get("user") and not spec.get("groups"):
                    text = 'Invalid value: "": at least one of user or group must be specified'
                    cause = errors.Cause("FieldValueInvalid", text, "spec.user")
                    raise errors.invalid(kind.about_kind(), [cause])
                extra = {key: tuple(values) for key, values in documents.child(spec, "extra").items()}
                user = User(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""), extra)
                body["status"] = self._access(user, spec)
            case "SelfSubjectRulesReview":
                body["status"] = self._rules(request.user, spec.get("namespace", ""))
            case "TokenReview":
                body["status"] = self._token(spec)
        return answer(201, {"kind": kind.kind, "apiVersion": kind.api_version, **body})

    def _access(self, user: User, spec: JsonObject) -> JsonObject:
        wanted = documents.child(spec, "resourceAttributes")
        if wanted:
            decision = self._authorizer.decide(
                user,
                verb=wanted.get("verb", ""),
                group=wanted.get("group", ""),
                resource=wanted.get("resource", ""),
                namespace=wanted.get("namespace", ""),
                name=wanted.get("name", ""),
                sub=wanted.get("subresource", ""),
            )
        else:
            path = documents.child(spec, "nonResourceAttributes")
            decision = self._authorizer.decide_path(user, verb=path.get("verb", ""), path=path.get("path", ""))
        found: JsonObject = {"allowed": decision.allowed}
        return {**found, "reason": decision.reason} if decision.reason else found

    def _rules(self, user: User, namespace: str) -> JsonObject:
        resources, paths = [], []
        for rule in self._authorizer.rules(user, namespace):
            if rule.get("nonResourceURLs"):
                paths.append({"verbs": rule["verbs"], "nonResourceURLs": rule["nonResourceURLs"]})
            else:
                names = ("verbs", "apiGroups", "resources", "resourceNames")
                resources.append({name: rule[name] for name in names if rule.get(name)})
        return {"resourceRules": resources, "nonResourceRules": paths, "incomplete": False}

    def _token(self, spec: JsonObject) -> JsonObject:
        audiences = spec.get("audiences") or []
        found = self._tokens.check(spec.get("token", ""), audiences)
        if found is None:
            return {"user": {}, "error": "invalid bearer token"}
        user, fitting = found
        return {"authenticated": True, "user": user.document(), "audiences": fitting or [ISSUER]}
