# SPDX-License-Identifier: Apache-2.0
"""Configurations of mutating and validating webhooks."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from devcluster.apiserver import field_errors
from devcluster.apiserver.cel.types import BOOL
from devcluster.apiserver.codec import documents
from devcluster.apiserver.codec.documents import JsonObject, JsonValue
from devcluster.apiserver.errors import StatusCause
from devcluster.apiserver.kinds import selector_rules
from devcluster.apiserver.kinds.behaviour import KindBehaviour, RequestContext, age
from devcluster.apiserver.kinds.write_expressions import SCOPE, type_problems

_REVIEWS: Final = ("v1", "v1beta1")
_OPERATIONS: Final = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]


class WebhookBehaviour(KindBehaviour):
    """Webhook configurations of both kinds."""

    generation = True

    def default(self, value: JsonObject) -> None:
        """Set the defaults."""
        mutating = value.get("kind") == "MutatingWebhookConfiguration"
        for hook in documents.items(value, "webhooks"):
            hook.setdefault("failurePolicy", "Fail")
            hook.setdefault("matchPolicy", "Equivalent")
            hook.setdefault("namespaceSelector", {})
            hook.setdefault("objectSelector", {})
            hook.setdefault("timeoutSeconds", 10)
            if mutating:
                hook.setdefault("reinvocationPolicy", "Never")
            for rule in documents.items(hook, "rules"):
                rule.setdefault("scope", "*")
            service = documents.child(hook, "clientConfig", "service")
            if service:
                service.setdefault("port", 443)

    def validate(self, value: JsonObject, old: JsonObject | None, request_context: RequestContext) -> list[StatusCause]:
        """The problems of the object."""
        found = []
        seen: set[str] = set()
        for index, hook in enumerate(documents.items(value, "webhooks")):
            path, name = f"webhooks[{index}]", hook.get("name", "")
            found += _hook_problems(hook, path)
            if name and name in seen:
                found.append(field_errors.duplicate(f"{path}.name", name))
            seen.add(name)
        return found

    def cells(self, value: JsonObject, now: datetime) -> list[JsonValue] | None:
        """Name, Webhooks, Age."""
        return [value["metadata"]["name"], len(documents.items(value, "webhooks")), age(value, now)]


def _hook_problems(hook: JsonObject, path: str) -> list[StatusCause]:
    found = []
    name, versions = hook.get("name", ""), hook.get("admissionReviewVersions") or []
    if not name:
        found.append(field_errors.required(f"{path}.name"))
    elif not field_errors.is_subdomain(name):
        found.append(field_errors.invalid(f"{path}.name", name, field_errors.SUBDOMAIN_TEXT))
    elif name.count(".") < 2:
        text = "should be a domain with at least three segments separated by dots"
        found.append(field_errors.invalid(f"{path}.name", name, text))
    if not versions:
        found.append(
            field_errors.required(f"{path}.admissionReviewVersions", f"must specify one of {', '.join(_REVIEWS)}")
        )
    elif not set(_REVIEWS) & set(versions):
        text = f"must include at least one of {', '.join(_REVIEWS)}"
        found.append(field_errors.invalid(f"{path}.admissionReviewVersions", versions, text))
    effects = hook.get("sideEffects")
    if effects is None:
        found.append(field_errors.required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun"))
    elif effects not in ("None", "NoneOnDryRun"):
        found.append(field_errors.not_supported(f"{path}.sideEffects", effects, ["None", "NoneOnDryRun"]))
    for field, allowed in (
        ("failurePolicy", ["Fail", "Ignore"]),
        ("matchPolicy", ["Equivalent", "Exact"]),
        ("reinvocationPolicy", ["IfNeeded", "Never"]),
    ):
        if field in hook and hook[field] not in allowed:
            found.append(field_errors.not_supported(f"{path}.{field}", hook[field], allowed))
    seconds = hook.get("timeoutSeconds", 10)
    if not 1 <= seconds <= 30:
        text = "the timeout value must be between 1 and 30 seconds"
        found.append(field_errors.invalid(f"{path}.timeoutSeconds", seconds, text))
    for index, rule in enumerate(documents.items(hook, "rules")):
        found += rule_problems(rule, f"{path}.rules[{index}]")
    for field in ("namespaceSelector", "objectSelector"):
        found += selector_rules.problems(hook.get(field), f"{path}.{field}")
    found += _condition_problems(hook, f"{path}.matchConditions")
    return found + _client_problems(documents.child(hook, "clientConfig"), f"{path}.clientConfig")


def rule_problems(rule: JsonObject, path: str, *, star_is_alone: bool = True) -> list[StatusCause]:
    """The problems of a rule of a webhook, or of an admission policy, in which `*` may be among other resources."""
    required = ("operations", "apiGroups", "apiVersions")
    found = [field_errors.required(f"{path}.{field}") for field in required if not rule.get(field)]
    operations, resources = rule.get("operations") or [], rule.get("resources") or []
    if "*" in operations and len(operations) > 1:
        text = "if '*' is present, must not specify other operations"
        found.append(field_errors.invalid(f"{path}.operations", operations, text))
    found += [
        field_errors.not_supported(f"{path}.operations[{index}]", operation, _OPERATIONS)
        for index, operation in enumerate(operations)
        if operation not in _OPERATIONS
    ]
    if not resources:
        found.append(field_errors.required(f"{path}.resources"))
    elif star_is_alone and "*" in resources and any("/" not in entry and entry != "*" for entry in resources):
        text = "if '*' is present, must not specify other resources without subresources"
        found.append(field_errors.invalid(f"{path}.resources", resources, text))
    if rule.get("scope", "*") not in ("*", "Cluster", "Namespaced"):
        found.append(field_errors.not_supported(f"{path}.scope", rule["scope"], ["*", "Cluster", "Namespaced"]))
    return found


def _condition_problems(hook: JsonObject, path: str) -> list[StatusCause]:
    found = []
    seen: set[str] = set()
    for index, condition in enumerate(documents.items(hook, "matchConditions")):
        where, name, text = f"{path}[{index}]", condition.get("name", ""), condition.get("expression", "").strip()
        if not name:
            found.append(field_errors.required(f"{where}.name"))
        elif name in seen:
            found.append(field_errors.duplicate(f"{where}.name", name))
        seen.add(name)
        if not text:
            found.append(field_errors.required(f"{where}.expression"))
            continue
        found += type_problems(text, SCOPE, f"{where}.expression", BOOL)
    return found


def _client_problems(client: JsonObject, path: str) -> list[StatusCause]:
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        return [field_errors.required(path, "exactly one of url or service is required")]
    if isinstance(url, str):
        parts, where = urlsplit(url), f"{path}.url"
        form = "desired format: https://host[/path]"
        if parts.scheme != "https":
            return [field_errors.invalid(where, parts.scheme, f"'https' is the only allowed URL scheme; {form}")]
        if parts.query:
            return [field_errors.invalid(where, parts.query, "query parameters are not permitted in the URL")]
        if not parts.netloc:
            return [field_errors.invalid(where, "", f"host must be specified; {form}")]
        return []
    found = []
    service = service if isinstance(service, dict) else {}
    for field in ("name", "namespace"):
        if not service.get(field):
            # A real server names the same path for both.
            found.append(field_errors.required(f"{path}.service.{'namespace' if field == 'name' else field}"))
    port, start = service.get("port", 443), service.get("path")
    if not 1 <= port <= 65535:
        text = "port is not valid: must be between 1 and 65535, inclusive"
        found.append(field_errors.invalid(f"{path}.service.port", port, text))
    if isinstance(start, str) and not start.startswith("/"):
        found.append(field_errors.invalid(f"{path}.service.path", start, "must start with a '/'"))
        found.append(field_errors.invalid(f"{path}.service.path", start, "segment[0] may not be empty"))
    return found
