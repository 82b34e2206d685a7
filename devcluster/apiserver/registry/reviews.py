# SPDX-License-Identifier: Apache-2.0
"""Token and access reviews: answered, never stored."""

from __future__ import annotations

from devcluster.apiserver import errors, field_errors
from devcluster.apiserver.auth.rbac import Authorizer
from devcluster.apiserver.auth.tokens import ISSUER, Tokens
from devcluster.apiserver.codec import decoding, documents, forms
from devcluster.apiserver.codec.documents import JsonObject
from devcluster.apiserver.codec.forms import Form
from devcluster.apiserver.context import ServerContext
from devcluster.apiserver.http.requests import Answer, Request, RequestTarget, User, answer
from devcluster.apiserver.registry import ownership
from devcluster.apiserver.registry.resources import ResourceType


class Reviews:
    """Answers reviews."""

    def __init__(self, context: ServerContext, authorizer: Authorizer, tokens: Tokens) -> None:
        self._context = context
        self._authorizer = authorizer
        self._tokens = tokens

    def create(self, request: Request, kind: ResourceType, target: RequestTarget) -> Answer:
        """POST of a review. Raises `StatusError`."""
        form = forms.negotiate(request, tables=False)
        body = decoding.read(request, kind)
        spec = documents.child(body, "spec")
        if kind.kind == "SelfSubjectReview":
            body = {"metadata": {"creationTimestamp": self._context.stamp()}}
            body["status"] = {"userInfo": request.user.document()}
            return _answer(body, kind, form)
        _drop_empty(spec)
        if kind.namespaced:
            body["metadata"]["namespace"] = target.namespace
        manager = ownership.manager_of(request)
        ownership.track({}, body, kind, manager=manager, subresource="", now=self._context.stamp())
        match kind.kind:
            case "SelfSubjectAccessReview":
                _check_attributes(spec)
                body["status"] = self._access(request.user, spec)
            case "SubjectAccessReview" | "LocalSubjectAccessReview":
                _check_attributes(spec, namespace=target.namespace, user=True)
                extra = {key: tuple(values) for key, values in documents.child(spec, "extra").items()}
                user = User(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""), extra)
                body["status"] = self._access(user, spec)
            case "SelfSubjectRulesReview":
                if not spec.get("namespace"):
                    raise errors.bad_request("no namespace on request")
                body["status"] = self._rules(request.user, spec["namespace"])
            case "TokenReview":
                if not spec.get("token"):
                    raise errors.bad_request("token is required for TokenReview in authentication")
                body["status"] = self._token(spec)
        return _answer(body, kind, form)

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
            return {"user": {}, "error": self._tokens.refusal(spec.get("token", ""), audiences)}
        user, fitting = found
        return {"authenticated": True, "user": user.document(), "audiences": fitting or [ISSUER]}


def _answer(body: JsonObject, kind: ResourceType, form: Form) -> Answer:
    shown = (
        forms.partial(body, form.version) if form.shape else {"kind": kind.kind, "apiVersion": kind.api_version, **body}
    )
    return answer(201, shown)


def _drop_empty(spec: JsonObject) -> None:
    """Remove empty texts, which mean the same as absent ones."""
    for attributes in (spec.get("resourceAttributes"), spec.get("nonResourceAttributes")):
        if isinstance(attributes, dict):
            for name in [name for name, entry in attributes.items() if entry == ""]:
                del attributes[name]


def _check_attributes(spec: JsonObject, *, namespace: str = "", user: bool = False) -> None:
    """Validate the attributes of an access review. Raises `StatusError`."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    found = []
    shown = {"Path": path.get("path", ""), "Verb": path.get("verb", "")} if isinstance(path, dict) else {}
    if resource is not None and path is not None:
        text = "cannot be specified in combination with resourceAttributes"
        found.append(field_errors.invalid("spec.nonResourceAttributes", shown, text))
    elif resource is None and path is None:
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        found.append(field_errors.invalid("spec.resourceAttributes", None, text))
    if user and not spec.get("user") and not spec.get("groups"):
        found.append(field_errors.invalid("spec.user", "", "at least one of user or group must be specified"))
    if namespace and isinstance(resource, dict) and resource.get("namespace", "") != namespace:
        text = "must match metadata.namespace"
        found.append(field_errors.invalid("spec.resourceAttributes.namespace", resource.get("namespace", ""), text))
    if namespace and path is not None:
        found.append(field_errors.invalid("spec.nonResourceAttributes", shown, "disallowed on this kind of request"))
    if found:
        raise errors.invalid(errors.About(group="authorization.k8s.io"), found)
